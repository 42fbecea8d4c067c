"""Which action chunks a tokenizer is fitted on: draws that follow the reference draw for draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vlaprep.errors import NoChunksError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["sample_chunks"]

MOST_DRAWS = 10**9
"""Of a billion draws the places alone take 16 GB."""


def sample_chunks(
    episode_index: ArrayLike,
    length: ArrayLike,
    *,
    chunk_size: int,
    n_samples: int,
    seed: int,
    n_draws: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw action chunks as (episode, start) pairs.

    Parameters
    ----------
    episode_index : array_like of int, shape (E,)
        Episode ids, each once, in any order; they need not be dense.
    length : array_like of int, shape (E,)
        Frames of each episode.
    chunk_size : int
        Frames of a chunk. Shorter episodes are left out.
    n_samples : int
        Chunks wanted.
    seed : int
        Seed of ``numpy.random.default_rng``; it means the same as in the reference.
    n_draws : int, optional
        How many draws to return, `n_samples` by default. The sequence of draws is endless and does
        not depend on `n_draws`: whoever has to discard draws asks for more, and gets the same ones
        followed by further ones.

    Returns
    -------
    episode_index : int64 array, shape (n_draws,)
    start : int64 array, shape (n_draws,)
        First frame of each chunk within its episode. Draws are with replacement.

    Raises
    ------
    NoChunksError
        No episode holds `chunk_size` frames.
    ValueError
        Arrays that do not fit together, an id twice, or a count below 1.

    Notes
    -----
    The reference (LeRobot pi052's ``fit_fast_tokenizer``) permutes the ascending ids, then draws
    ``max(1, n_samples // E)`` starts from each episode that is long enough, one ``integers`` call
    an episode. A single call over the repeated upper bounds consumes the generator identically,
    because NumPy fills 64-bit integers one by one. Episodes that are too short count in ``E``, so
    one pass may yield fewer than `n_samples`; here the passes go on over the same episodes in the
    same order, and the picks of the reference are a prefix of ours.

    Examples
    --------
    >>> from vlaprep.sampling import sample_chunks
    >>> episode, start = sample_chunks([0, 1, 2], [9, 30, 12], chunk_size=10, n_samples=4, seed=1)
    >>> episode.tolist(), start.tolist()
    ([1, 2, 1, 2], [0, 0, 17, 2])
    """
    n_draws = n_samples if n_draws is None else n_draws
    if chunk_size < 1 or n_samples < 1 or not 1 <= n_draws <= MOST_DRAWS:
        raise ValueError(
            f"chunk_size, n_samples and n_draws must be at least 1, and n_draws at most "
            f"{MOST_DRAWS}, got {chunk_size}, {n_samples} and {n_draws}"
        )
    ids, lengths = _ascending_episodes(episode_index, length)
    rng = np.random.default_rng(seed)
    visits = rng.permutation(len(ids))
    visits = visits[lengths[visits] >= chunk_size]
    if not len(visits):
        raise _too_short(lengths, chunk_size)
    per_visit = max(1, n_samples // len(ids))
    chosen = visits[np.arange(n_draws) // per_visit % len(visits)]
    # int64 on purpose: smaller integer types buffer bits per call and would give another stream.
    start = rng.integers(0, lengths[chosen] - chunk_size + 1, dtype=np.int64)
    return ids[chosen], start


def _ascending_episodes(
    episode_index: ArrayLike, length: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ids, lengths = _whole_numbers("episode_index", episode_index), _whole_numbers("length", length)
    if ids.ndim != 1 or ids.shape != lengths.shape:
        raise ValueError(
            f"episode_index and length must be flat and equally long, got shapes {ids.shape} and "
            f"{lengths.shape}"
        )
    order = np.argsort(ids, kind="stable")
    ids, lengths = ids[order], lengths[order]
    repeated = ids[1:][ids[1:] == ids[:-1]]
    if len(repeated):
        raise ValueError(f"episode_index holds episode {repeated[0]} more than once")
    return ids, lengths


def _whole_numbers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold integers, got {array.dtype}")
    return array.astype(np.int64)


def _too_short(lengths: NDArray[np.int64], chunk_size: int) -> NoChunksError:
    if not len(lengths):
        return NoChunksError("no action chunk can be drawn: there are no episodes")
    return NoChunksError(
        f"no action chunk can be drawn: all {len(lengths)} episodes are shorter than "
        f"chunk_size={chunk_size} (the longest has {lengths.max()} frames); pass a smaller "
        "chunk_size"
    )
