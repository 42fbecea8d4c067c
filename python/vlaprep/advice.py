"""Which scale and vocabulary a tokenizer should have, told before anything is fitted."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, fields
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.advice_statistics import MAX_RANGE, estimate_tokens, scale_statistics, transform
from vlaprep.fit import _Plan, _Source
from vlaprep.fit_build import CONVENTION, MODE
from vlaprep.fit_sample import selected_episodes
from vlaprep.normalization import Normalization

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from numpy.typing import NDArray

    from vlaprep.advice_statistics import ScaleStatistics

__all__ = ["Advice", "ScaleAdvice", "advise_tokenizer"]

SCALES = (5.0, 10.0, 20.0, 50.0, 100.0)
VOCAB_SIZES = (256, 512, 1024, 2048, 4096)
MAX_VOCABULARY = 1 << 20
"""What a fit takes."""
TOKENS_LOW, TOKENS_HIGH = 1 / 1.35, 1 / 0.85
"""Nine in ten fits needed between so many times the estimate, and so many times it."""
FEW_MERGES = 8
"""With fewer than that a single merge can halve the text, so only the bounds are sure."""


@dataclass(frozen=True, eq=False)
class ScaleAdvice:
    """What one scale costs and gives. Arrays (V,) run along `Advice.vocab_sizes`.

    Parameters
    ----------
    scale : float
        Quantisation steps per unit of a coefficient.
    min_token, max_token, alphabet_size : int
        Smallest and largest rounded coefficient; their range + 1.
    byte_characters : int
        Different byte-level characters in the text of the chunks.
    start_size : int
        Entries that a vocabulary of the published format starts with, before any merge: the
        characters of the range and the byte-level characters, those that are both counted once.
    dead_entries : int
        Entries that no text of these chunks can ever use: characters of the range that are no
        byte-level character of it.
    rmse, rmse_units : float
        Root mean square of what rounding changes, over all dims: in normalised units, and in those
        of the dataset.
    dim_rmse, dim_rmse_units : float64 array, shape (D,)
        The same of each dim. Clipping comes on top, see `Advice.clipping_rmse_units`.
    words, bytes : float
        Bounds on the tokens of a chunk, on average over the chunks: no fewer than words of GPT-2's
        pattern, no more than bytes.
    holds : bool array, shape (V,)
        Whether a fit takes the vocabulary: what it begins with may not exceed it.
    merges : int64 array, shape (V,)
        Entries left for merges.
    dead_share : float64 array, shape (V,)
        `dead_entries` as a share of the vocabulary. Larger where training ends early for want of
        pairs that occur twice.
    tokens, tokens_low, tokens_high : float64 array, shape (V,)
        Estimated tokens of a chunk, on average over the chunks fitted on, and between what nine in
        ten fits lay; NaN where the vocabulary is not held. Without any merge, exact.
    """

    scale: float
    min_token: int
    max_token: int
    alphabet_size: int
    byte_characters: int
    start_size: int
    dead_entries: int
    rmse: float
    rmse_units: float
    dim_rmse: NDArray[np.float64]
    dim_rmse_units: NDArray[np.float64]
    words: float
    bytes: float
    holds: NDArray[np.bool_]
    merges: NDArray[np.int64]
    dead_share: NDArray[np.float64]
    tokens: NDArray[np.float64]
    tokens_low: NDArray[np.float64]
    tokens_high: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Advice:
    """What `advise_tokenizer` found.

    Parameters
    ----------
    dataset : str
        Folder, or Hub id with the commit.
    action_key : str
        Column of the actions.
    dims : tuple of str
        Names of the dims; their numbers where the dataset has no names.
    chunks, chunk_size : int
        How many chunks were looked at, and their frames.
    normalization : vlaprep.Normalization
        What the fit would normalise by.
    clipping_rmse_units : float64 array, shape (D,)
        Root mean square, in units of the dataset, of what clipping to [-1, 1] changes: no scale
        makes it smaller.
    vocab_sizes : tuple of int
        Ascending.
    scales : tuple of ScaleAdvice
        By ascending scale.
    max_error : float, optional
        Wanted bound on the normalised RMSE.
    max_tokens : float, optional
        Wanted bound on the tokens of a chunk, on average.
    scale, vocab_size : float, int, optional
        What is recommended; None where nothing was wanted, or nothing fits.
    reason : str
        Why; or what to change.
    """

    dataset: str
    action_key: str
    dims: tuple[str, ...]
    chunks: int
    chunk_size: int
    normalization: Normalization
    clipping_rmse_units: NDArray[np.float64]
    vocab_sizes: tuple[int, ...]
    scales: tuple[ScaleAdvice, ...]
    max_error: float | None
    max_tokens: float | None
    scale: float | None
    vocab_size: int | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types; a number that is not there is None."""
        return {
            **{field.name: _plain(getattr(self, field.name)) for field in fields(self)},
            "normalization": self.normalization.to_dict(),
            "scales": [
                {field.name: _plain(getattr(scale, field.name)) for field in fields(scale)}
                for scale in self.scales
            ],
        }

    def __str__(self) -> str:
        """Tables of 100 columns."""
        from rich.console import Console

        from vlaprep.advice_tables import advice_tables

        text = io.StringIO()
        options = {"markup": False, "emoji": False, "highlight": False, "no_color": True}
        console = Console(file=text, width=100, force_terminal=False, **options)  # type: ignore[arg-type]
        console.print(advice_tables(self.to_dict()), crop=False)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def advise_tokenizer(
    *,
    dataset_repo_id: str | None = None,
    dataset_root: str | PathLike[str] | None = None,
    n_samples: int = 1024,
    chunk_size: int = 50,
    seed: int = 42,
    action_key: str = "action",
    revision: str | None = None,
    episodes: Iterable[int] | None = None,
    exclude_episodes: Iterable[int] | None = None,
    nan: str = "skip",
    scales: Iterable[float] = SCALES,
    vocab_sizes: Iterable[int] = VOCAB_SIZES,
    max_error: float | None = None,
    max_tokens: float | None = None,
    num_threads: int | None = None,
) -> Advice:
    """Tell what scales and vocabularies would make of a dataset, without fitting any.

    Draws and normalises the very chunks that `vlaprep.fit_fast_tokenizer` would fit on, and tells
    for each scale the size of the alphabet, the dead part of the vocabulary, the error, and about
    how many tokens a chunk would take.

    Parameters
    ----------
    dataset_repo_id, dataset_root, n_samples, chunk_size, seed, action_key, revision, episodes, \
exclude_episodes, nan, num_threads
        As in `vlaprep.fit_fast_tokenizer`.
    scales : iterable of float
        Scales to look at.
    vocab_sizes : iterable of int
        Sizes of vocabularies to look at.
    max_error : float, optional
        Recommend the coarsest scale whose RMSE, in normalised units, is at most this.
    max_tokens : float, optional
        Recommend what takes at most so many tokens a chunk on average, by the estimate: the finest
        scale, or with `max_error` the coarsest.

    Returns
    -------
    Advice
        ``str()`` of it is a table.

    Raises
    ------
    ValueError
        An argument that makes no sense.
    DatasetNotFoundError, DatasetFormatError, EpisodeSelectionError, NoChunksError
        As in `vlaprep.fit_fast_tokenizer`.

    Notes
    -----
    Alphabet, dead entries and errors are exact for these chunks. **Tokens are an estimate**: ``0.38
    * bits / merges ** 0.152``, where ``bits`` is the entropy of the symbols summed over all places
    of a chunk, joined with the number of words by a cubic mean. Against 952 real fits (25 sets of
    160 to 3,000 chunks, recorded, simulated and random, horizons 10 to 100, 2 to 32 dims, scales 5
    to 100, vocabularies 256 to 4,096, at least 8 merges), each kind of data left out when the
    constants were fitted for it, half of the estimates were within 5 %, nine in ten within 22 %,
    and the worst was 2.4 times too high. On the recorded sets alone, 30 and 48 short episodes, half
    were within 12 % and nine in ten within 39 %: the estimate is too high where chunks repeat (few
    episodes, drawn often) and the vocabulary is large enough to learn them by heart.

    Examples
    --------
    >>> import vlaprep
    >>> advice = vlaprep.advise_tokenizer(
    ...     dataset_root="tests/golden/lerobot_v30", chunk_size=10, max_error=0.01
    ... )
    >>> [scale.alphabet_size for scale in advice.scales]
    [33, 65, 127, 317, 633]
    >>> advice.scale, advice.vocab_size
    (20.0, 512)
    """
    plan = _Plan(
        n_samples=index(n_samples),
        chunk_size=index(chunk_size),
        seed=index(seed),
        action_key=action_key,
        scale=10.0,
        vocab_size=1024,
        max_token_length=10_000,
        alphabet="bytes",
        compatible=False,
        coverage="sample",
        nan=nan,
    )
    grid = _ascending("scales", map(float, scales))
    sizes = _ascending("vocab_sizes", map(index, vocab_sizes))
    if sizes[-1] > MAX_VOCABULARY:
        raise ValueError(f"vocab_sizes must be at most {MAX_VOCABULARY}, got {sizes[-1]}")
    for name, wanted in (("max_error", max_error), ("max_tokens", max_tokens)):
        if wanted is not None and not (math.isfinite(wanted) and wanted > 0):
            raise ValueError(f"{name} must be a positive number, got {wanted}")
    source = _Source.find(
        dataset_repo_id,
        dataset_root,
        revision,
        *selected_episodes(episodes, exclude_episodes),
        num_threads,
    )
    dataset = source.open()
    sample = source.draw(plan, dataset)
    sample.warn_of_skipped(plan.n_samples, source.label, action_key)
    norm = Normalization.fit(sample.chunks, convention=CONVENTION, mode=MODE)
    chunks = np.ascontiguousarray(norm.normalize(sample.chunks))
    back = norm.unnormalize(chunks.astype(np.float64))
    fine, unit = transform(chunks)
    found = tuple(
        _advise_scale(scale, scale_statistics(chunks, fine, unit, scale), sizes, norm)
        for scale in grid
    )
    names = dataset.feature_names(action_key) or []
    scale, vocab_size, reason = _recommend(found, sizes, max_error, max_tokens)
    return Advice(
        dataset=source.label,
        action_key=action_key,
        dims=tuple(
            names if len(names) == len(norm.lo) else map(str, range(len(norm.lo))),
        ),
        chunks=len(chunks),
        chunk_size=plan.chunk_size,
        normalization=norm,
        clipping_rmse_units=_frozen(np.sqrt(((back - sample.chunks) ** 2).mean(axis=(0, 1)))),
        vocab_sizes=sizes,
        scales=found,
        max_error=max_error,
        max_tokens=max_tokens,
        scale=scale,
        vocab_size=vocab_size,
        reason=reason,
    )


def _advise_scale(
    scale: float, stats: ScaleStatistics, sizes: tuple[int, ...], norm: Normalization
) -> ScaleAdvice:
    span = stats.max_token - stats.min_token
    # The alphabet stops where characters do; what lies beyond counts all the same.
    beyond = max(span - MAX_RANGE, 0)
    start = len(stats.alphabet | stats.byte_characters) + beyond
    dead = len(stats.alphabet - stats.byte_characters) + beyond
    asked = np.array(sizes, dtype=np.int64)
    holds = (asked >= start) & (span <= MAX_RANGE)
    merges = np.where(holds, np.maximum(asked - start, 0), 0)
    tokens = np.array(
        [
            estimate_tokens(stats.bits, stats.words, stats.bytes, int(count)) if held else np.nan
            for count, held in zip(merges, holds, strict=True)
        ]
    )
    guessed, sure = merges > 0, merges >= FEW_MERGES
    low = np.maximum(tokens * np.where(sure, TOKENS_LOW, 0), stats.words)
    high = np.minimum(tokens * np.where(sure, TOKENS_HIGH, np.inf), stats.bytes)
    width = norm.unnormalize(np.ones(norm.action_dim)) - norm.unnormalize(np.zeros(norm.action_dim))
    units = stats.square_error * width**2
    return ScaleAdvice(
        scale=scale,
        min_token=stats.min_token,
        max_token=stats.max_token,
        alphabet_size=span + 1,
        byte_characters=len(stats.byte_characters),
        start_size=start,
        dead_entries=dead,
        rmse=math.sqrt(stats.square_error.mean()),
        rmse_units=math.sqrt(units.mean()),
        dim_rmse=_frozen(np.sqrt(stats.square_error)),
        dim_rmse_units=_frozen(np.sqrt(units)),
        words=stats.words,
        bytes=stats.bytes,
        holds=_frozen(holds),
        merges=_frozen(merges),
        dead_share=_frozen(dead / np.maximum(asked, start)),
        tokens=_frozen(tokens),
        tokens_low=_frozen(np.where(guessed, low, tokens)),
        tokens_high=_frozen(np.where(guessed, high, tokens)),
    )


# ------------------------------------------------------------------------------ recommendation


def _recommend(
    scales: tuple[ScaleAdvice, ...],
    sizes: tuple[int, ...],
    max_error: float | None,
    max_tokens: float | None,
) -> tuple[float | None, int | None, str]:
    """Choose (scale, vocab_size) and say why; (None, None) where nothing fits, and what to do."""
    if max_error is None and max_tokens is None:
        return None, None, "say max_error or max_tokens for a recommendation"
    close = [scale for scale in scales if max_error is None or scale.rmse <= max_error]
    if max_error is not None and not close:
        finest = scales[-1]
        # Residuals spread evenly over a step of 1 / scale have an RMS of 1 / (scale * sqrt(12)).
        enough = max(math.ceil(1 / (max_error * math.sqrt(12))), math.ceil(finest.scale) + 1)
        return (
            None,
            None,
            (
                f"no scale has an RMSE of at most {max_error:g}; the finest, {finest.scale:g}, has "
                f"{finest.rmse:.3g}: look at scales from about {enough} on, or allow a larger error"
            ),
        )
    usable = [scale for scale in close if scale.merges.any()]
    if not usable:
        first = close[0]
        return (
            None,
            None,
            (
                f"a vocabulary for scale {first.scale:g} starts with {first.start_size:,} entries, "
                f"more than {sizes[-1]:,} leaves room for: look at larger vocabularies, or allow a "
                "larger error"
            ),
        )
    if max_tokens is None:
        scale = usable[0]
        at = _roomy(scale)
        return scale.scale, sizes[at], _why(scale, sizes, at, max_error)
    # An error bound asks for the coarsest scale that keeps it, a budget alone for the finest.
    for scale in usable if max_error is not None else reversed(usable):
        within = np.flatnonzero((scale.merges > 0) & (scale.tokens <= max_tokens))
        if len(within):
            at = int(within[0])
            return scale.scale, sizes[at], _why(scale, sizes, at, max_error, max_tokens)
    return None, None, _too_many(usable, scales, max_error, max_tokens)


def _roomy(scale: ScaleAdvice) -> int:
    """Find the smallest vocabulary with more merges than what it starts with, else the largest."""
    roomy = np.flatnonzero(scale.merges > scale.start_size)
    return int(roomy[0]) if len(roomy) else len(scale.merges) - 1


def _why(
    scale: ScaleAdvice,
    sizes: tuple[int, ...],
    at: int,
    max_error: float | None,
    max_tokens: float | None = None,
) -> str:
    took = (
        f"{_about(scale.tokens[at])} tokens a chunk ({_about(scale.tokens_low[at])} to "
        f"{_about(scale.tokens_high[at])})"
    )
    first = (
        f"the finest scale of at most {max_tokens:g} tokens a chunk (RMSE {scale.rmse:.3g})"
        if max_error is None
        else f"the coarsest scale with an RMSE of at most {max_error:g}: {scale.rmse:.3g}"
    )
    if max_tokens is not None:
        second = f"the smallest vocabulary that takes about {took}"
    elif scale.merges[at] > scale.start_size:
        second = (
            "the smallest vocabulary with more merges than entries to start with "
            f"({scale.merges[at]:,} and {scale.start_size:,}): about {took}"
        )
    else:
        second = f"the largest vocabulary, {scale.merges[at]:,} merges of it: about {took}"
    return f"scale {scale.scale:g} is {first}; {sizes[at]:,} is {second}"


def _too_many(
    usable: list[ScaleAdvice],
    scales: tuple[ScaleAdvice, ...],
    max_error: float | None,
    max_tokens: float,
) -> str:
    best = min(usable, key=_fewest)
    least = _fewest(best)
    ways = [f"raise max_tokens to {math.ceil(least)}", "look at larger vocabularies"]
    if max_error is None:
        ways += ["look at lower scales"]
    else:
        fitting = [scale for scale in scales if _fewest(scale) <= max_tokens]
        ways += [f"allow an error of {fitting[-1].rmse:.3g} (scale {fitting[-1].scale:g})"] * bool(
            fitting
        )
    bound = "" if max_error is None else f" with an RMSE of at most {max_error:g}"
    return (
        f"no scale and vocabulary{bound} take at most {max_tokens:g} tokens a chunk; scale "
        f"{best.scale:g} takes about {_about(least)}: {', '.join(ways)}, or take a smaller "
        "chunk_size"
    )


def _fewest(scale: ScaleAdvice) -> float:
    return float(np.min(scale.tokens, where=scale.merges > 0, initial=math.inf))


# --------------------------------------------------------------------------------------- pieces


def _about(tokens: float) -> str:
    return f"{tokens:.2g}" if tokens < 10 else f"{tokens:,.0f}"


def _ascending(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Bring numbers to ascending order, each once."""
    kept = tuple(sorted(set(values)))
    bad = [value for value in kept if not (math.isfinite(value) and value > 0)]
    if bad or not kept:
        raise ValueError(f"{name} must be positive numbers, got {bad[0] if bad else 'none'}")
    return kept


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return list(value) if isinstance(value, tuple) else value
