"""Which of the scales and vocabularies looked at keeps a wanted error or token budget, and why."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vlaprep.advice import ScaleAdvice

__all__ = ["recommend"]


def recommend(
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


def _about(tokens: float) -> str:
    return f"{tokens:.2g}" if tokens < 10 else f"{tokens:,.0f}"
