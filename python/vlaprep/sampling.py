"""Which action chunks a tokenizer is fitted on: draws that follow the reference draw for draw.

A *window* is a place a chunk can be drawn from: an episode and a start in it. `tail` says which
starts there are. `per` puts the episodes into groups that get equal numbers of draws: each episode
is one, each task is one, or all together are one; within a group every window is equally likely.
Windows are then numbered, group after group, episode after episode, start after start;
`vlaprep.draws` draws numbers, and a number is turned into its episode and start again. Episodes
are sorted by their ids first, so the order they are passed in never shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from vlaprep.draws import MOST_DISTINCT, MOST_DRAWS, draw_distinct, draw_repeating
from vlaprep.errors import NoChunksError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Ints = NDArray[np.int64]

__all__ = ["MOST_DRAWS", "sample_chunks"]

Per = Literal["episode", "frame", "task"]
Tail = Literal["exclude", "clamp"]

MOST_FRAMES = 2**62
"""So many frames in all are more than 64 bits can number safely."""


def sample_chunks(
    episode_index: ArrayLike,
    length: ArrayLike,
    *,
    chunk_size: int,
    n_samples: int,
    seed: int,
    n_draws: int | None = None,
    per: Per = "episode",
    replace: bool = True,
    tail: Tail = "exclude",
    task_index: ArrayLike | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw action chunks as (episode, start) pairs.

    Parameters
    ----------
    episode_index : array_like of int, shape (E,)
        Episode ids, each once, in any order; they need not be dense.
    length : array_like of int, shape (E,)
        Frames of each episode.
    chunk_size : int
        Frames of a chunk.
    n_samples : int
        Chunks wanted.
    seed : int
        Seed of ``numpy.random.default_rng``; it means the same as in the reference.
    n_draws : int, optional
        How many draws to return, `n_samples` by default. The sequence of draws does not depend on
        `n_draws`: whoever has to discard draws asks for more, and gets the same ones followed by
        further ones. It is endless, except with ``replace=False``, where it ends after the last
        window: fewer than `n_draws` pairs mean that they are all there are, and this happens only
        where `n_draws` is above `n_samples`.
    per : {"episode", "frame", "task"}
        What gets equal numbers of draws. ``"episode"`` (the reference): each episode, so that a
        frame of a short one is drawn more often. ``"frame"``: each window, so that long episodes
        and frequent tasks weigh more. ``"task"``: each task; within a task, each window.
    replace : bool
        Whether a window may be drawn again. If not, episodes or tasks take turns in an order that
        the seed permutes, one draw a turn, and drop out when they are exhausted.
    tail : {"exclude", "clamp"}
        Which frames start a chunk. ``"exclude"`` (the reference): those with `chunk_size` frames
        from them on; shorter episodes are left out. ``"clamp"`` (as LeRobot trains): all, for
        whoever reads such a chunk repeats the last frame of its episode past the end.
    task_index : array_like of int, shape (E,), optional
        Task of each episode; for ``per="task"``, which needs it, and for nothing else. Episodes
        whose task is not resolved, -1, are left in: together they are one more task.

    Returns
    -------
    episode_index : int64 array, shape (n_draws,)
    start : int64 array, shape (n_draws,)
        First frame of each chunk within its episode.

    Raises
    ------
    NoChunksError
        There is no window, or with ``replace=False`` fewer than `n_samples`; the message says how
        many there are.
    ValueError
        Arrays that do not fit together, an id twice, a count below 1, or an unknown mode.

    Notes
    -----
    The reference (LeRobot pi052's ``fit_fast_tokenizer``) permutes the ascending ids, then draws
    ``max(1, n_samples // E)`` starts from each episode that is long enough, one ``integers`` call
    an episode. A single call over the repeated upper bounds consumes the generator identically,
    because NumPy fills 64-bit integers one by one. Episodes that are too short count in ``E``, so
    one pass may yield fewer than `n_samples`; here the passes go on over the same episodes in the
    same order, and the picks of the reference are a prefix of ours.

    Every other mode takes one draw at each turn of a group, so that after any number of draws the
    groups that are not exhausted differ by one at most. Time and memory grow with the draws and
    the episodes, not with the windows.

    Examples
    --------
    >>> from vlaprep.sampling import sample_chunks
    >>> episode, start = sample_chunks([0, 1, 2], [9, 30, 12], chunk_size=10, n_samples=4, seed=1)
    >>> episode.tolist(), start.tolist()
    ([1, 2, 1, 2], [0, 0, 17, 2])

    Equal numbers from both tasks, no window twice:

    >>> episode, start = sample_chunks(
    ...     [0, 1, 2], [9, 30, 12], chunk_size=10, n_samples=6, seed=1,
    ...     per="task", task_index=[5, 5, 8], replace=False,
    ... )
    >>> episode.tolist(), start.tolist()
    ([1, 2, 1, 2, 1, 2], [10, 2, 20, 1, 4, 0])

    All there are, when more are asked for than wanted:

    >>> episode, start = sample_chunks(
    ...     [0, 1], [10, 11], chunk_size=10, n_samples=2, seed=1, replace=False, n_draws=100
    ... )
    >>> episode.tolist(), start.tolist()
    ([0, 1, 1], [0, 1, 0])
    """
    n_draws = n_samples if n_draws is None else n_draws
    if chunk_size < 1 or n_samples < 1 or not 1 <= n_draws <= MOST_DRAWS:
        raise ValueError(
            f"chunk_size, n_samples and n_draws must be at least 1, and n_draws at most "
            f"{MOST_DRAWS}, got {chunk_size}, {n_samples} and {n_draws}"
        )
    for name, value, known in (
        ("per", per, get_args(Per)),
        ("tail", tail, get_args(Tail)),
        ("replace", replace, (True, False)),
    ):
        _check_one_of(name, value, known)
    ids, lengths, groups = _ascending_episodes(episode_index, length, per, task_index)
    starts = np.maximum(lengths - min(chunk_size, MOST_FRAMES) + 1, 0)
    windows = _Windows.number(ids, starts if tail == "exclude" else lengths, groups)
    if not windows.total:
        raise _no_window(lengths, chunk_size, tail)
    rng = np.random.default_rng(seed)
    if replace:
        per_visit = max(1, n_samples // len(ids)) if per == "episode" else 1
        return windows.at(draw_repeating(windows.sizes, n_draws, rng, per_visit=per_visit))
    _check_quota(windows, n_samples, chunk_size, tail)
    return windows.at(draw_distinct(windows.sizes, n_draws, rng))


@dataclass(frozen=True, eq=False)
class _Windows:
    """All windows, numbered group after group, and within a group by episode and start.

    Parameters
    ----------
    ids : int64 array, shape (E,)
        Episodes in the order of the numbers.
    ends : int64 array, shape (E,)
        One more than the number of each episode's last window.
    sizes : int64 array, shape (G,)
        Windows of each group.
    """

    ids: Ints
    ends: Ints
    sizes: Ints

    @classmethod
    def number(cls, ids: Ints, counts: Ints, groups: Ints) -> _Windows:
        """Give numbers to the windows of episodes that have `counts` of them each."""
        order = np.lexsort((ids, groups))
        ids, counts, groups = ids[order], counts[order], groups[order]
        is_first = np.append([True], groups[1:] != groups[:-1])[: len(groups)]
        sizes = np.add.reduceat(counts, np.flatnonzero(is_first)) if len(ids) else counts
        return cls(ids, np.cumsum(counts), sizes)

    @property
    def total(self) -> int:
        """How many there are."""
        return int(self.sizes.sum())

    def at(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Episode and start of windows."""
        row = np.searchsorted(self.ends, numbers, side="right")
        first = np.append(np.zeros(1, dtype=np.int64), self.ends)[row]
        return self.ids[row], numbers - first


def _ascending_episodes(
    episode_index: ArrayLike, length: ArrayLike, per: Per, task_index: ArrayLike | None
) -> tuple[Ints, Ints, Ints]:
    """Ids, lengths and groups of the episodes, by ascending id."""
    ids, lengths = _whole_numbers("episode_index", episode_index), _whole_numbers("length", length)
    if ids.ndim != 1 or ids.shape != lengths.shape:
        raise ValueError(
            f"episode_index and length must be flat and equally long, got shapes {ids.shape} and "
            f"{lengths.shape}"
        )
    groups = _groups(ids, per, task_index)
    order = np.argsort(ids, kind="stable")
    ids, lengths, groups = ids[order], lengths[order], groups[order]
    repeated = ids[1:][ids[1:] == ids[:-1]]
    if len(repeated):
        raise ValueError(f"episode_index holds episode {repeated[0]} more than once")
    if (lengths < 0).any():
        worst = int(np.argmin(lengths))
        raise ValueError(f"length of episode {ids[worst]} is {lengths[worst]}, below 0")
    if lengths.sum(dtype=np.float64) >= MOST_FRAMES:
        raise ValueError(f"the episodes have more than {MOST_FRAMES} frames in all; check length")
    return ids, lengths, groups


def _groups(ids: Ints, per: Per, task_index: ArrayLike | None) -> Ints:
    """Tell the group of each episode, as any number."""
    if per != "task":
        if task_index is not None:
            raise ValueError(
                f"task_index is for per='task' only, got per={per!r}; pass per='task' or no "
                "task_index"
            )
        return ids if per == "episode" else np.zeros_like(ids)
    if task_index is None:
        raise ValueError("per='task' needs task_index, the task of each episode")
    tasks = _whole_numbers("task_index", task_index)
    if tasks.shape != ids.shape:
        raise ValueError(
            f"task_index must have one task for each of {len(ids)} episodes, got shape "
            f"{tasks.shape}"
        )
    return tasks


def _whole_numbers(name: str, values: ArrayLike) -> Ints:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold integers, got {array.dtype}")
    return array.astype(np.int64)


def _check_one_of(name: str, value: object, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def _check_quota(windows: _Windows, n_samples: int, chunk_size: int, tail: Tail) -> None:
    """Refuse what would have to be cut down, or is too much to number."""
    total = windows.total
    if n_samples > total:
        raise NoChunksError(
            f"n_samples={n_samples} chunks cannot be drawn without replacement: the "
            f"{len(windows.ids)} episodes have {total} windows of chunk_size={chunk_size} with "
            f"tail={tail!r}; pass n_samples={total} or less, replace=True, or a smaller chunk_size"
        )
    if total > MOST_DISTINCT:
        raise ValueError(
            f"{total} windows are too many to draw without replacement, which takes at most "
            f"{MOST_DISTINCT}; pass replace=True or fewer episodes"
        )


def _no_window(lengths: Ints, chunk_size: int, tail: Tail) -> NoChunksError:
    if not len(lengths):
        return NoChunksError("no action chunk can be drawn: there are no episodes")
    if tail == "clamp":
        return NoChunksError(
            f"no action chunk can be drawn: all {len(lengths)} episodes have no frames; check "
            "length"
        )
    return NoChunksError(
        f"no action chunk can be drawn: all {len(lengths)} episodes are shorter than "
        f"chunk_size={chunk_size} (the longest has {lengths.max()} frames); pass a smaller "
        "chunk_size, or tail='clamp'"
    )
