"""The trainers' formulas to normalise actions, each in its trainer's own arithmetic.

All but IDENTITY are affine maps by two statistics of each dim, ``lo`` and ``hi``. What differs is
the order of operations, the guard against narrow dims, the clip and the dtype: little, and yet
enough for other bits. So what they share is written once, and each class says where it departs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.floating[Any]]

__all__ = ["CONVENTIONS", "STATISTICS", "Convention", "find_convention"]

STATISTICS: Mapping[str, tuple[str, ...]] = {
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
    "IDENTITY": (),
}
"""Every mode, and what ``meta/stats.json`` calls the two statistics that are its lo and hi."""


class Convention(ABC):
    """One trainer's formula: actions to normalised values by two statistics of each dim, and back.

    ``lo`` and ``hi`` have shape (D,) and the convention's dtype; none have a meaning under
    IDENTITY, which gives back what it gets. Actions have shape (..., D).
    """

    name: ClassVar[str]
    rule_version: ClassVar[int]
    """Raised whenever a bit of any result changes; cached fits carry it in their signature."""
    modes: ClassVar[tuple[str, ...]]
    default_mode: ClassVar[str] = "QUANTILES"
    """What the trainer's own fit of a tokenizer takes where nobody says."""
    dtype: ClassVar[type[np.floating[Any]]]
    """Statistics are kept, and actions computed with, in this."""
    result_dtype: ClassVar[type[np.floating[Any]]]
    """Of normalised values."""
    epsilon: ClassVar[float]

    @abstractmethod
    def divisor(self, spread: Floats, mode: str) -> Floats:
        """Give what to divide by, for a `spread` that can be zero."""

    def forward(self, x: Floats, lo: Floats, hi: Floats, mode: str) -> Floats:
        """Actions to normalised values, between the two clips: `clip_actions`, `clip_values`."""
        if mode == "IDENTITY":
            return x
        x, spread = x.astype(self.dtype, copy=False), self.spread(lo, hi, mode)
        if mode == "MEAN_STD":
            return self._finish((x - lo) / self.divisor(spread, mode))
        return self._finish(self._scale(self._from_lo(x, lo, spread), self.divisor(spread, mode)))

    def inverse(self, y: Floats, lo: Floats, hi: Floats, mode: str) -> Floats:
        """Normalised values back to actions: `forward` solved for the actions."""
        if mode == "IDENTITY":
            return y
        spread = self.spread(lo, hi, mode)
        if mode == "MEAN_STD":
            return y * self.divisor(spread, mode) + lo
        return self._to_lo((y + 1) / 2 * self.divisor(spread, mode), spread) + lo

    def clip_actions(
        self,
        x: Floats,
        lo: Floats,  # noqa: ARG002 (as it is where a trainer does not clip)
        hi: Floats,  # noqa: ARG002
        mode: str,  # noqa: ARG002
    ) -> Floats:
        """Clip what `forward` gets, where the trainer does."""
        return x

    def clip_values(self, y: Floats, mode: str) -> Floats:  # noqa: ARG002
        """Clip what `forward` gave, where the trainer does."""
        return y

    def constant(self, lo: Floats, hi: Floats, mode: str) -> NDArray[np.bool_]:
        """Dims whose range is no larger than the epsilon: that, or a stand-in, rules the result."""
        narrow: NDArray[np.bool_] = self.spread(lo, hi, mode) <= self.dtype(self.epsilon)
        return narrow

    def spread(self, lo: Floats, hi: Floats, mode: str) -> Floats:
        """Width of each dim: ``hi - lo``, or the standard deviation, which is hi."""
        return hi if mode == "MEAN_STD" else hi - lo

    def _scale(self, x: Floats, divisor: Floats) -> Floats:
        return x / divisor * 2 - 1

    def _from_lo(self, x: Floats, lo: Floats, spread: Floats) -> Floats:  # noqa: ARG002
        return x - lo

    def _to_lo(self, x: Floats, spread: Floats) -> Floats:  # noqa: ARG002
        return x

    def _finish(self, y: Floats) -> Floats:
        return y


class Pi052(Convention):
    """Quantiles of the fitted sample, clipped: LeRobot pi052's first ``fit_fast_tokenizer``.

    ``clip((x - q01) / span * 2 - 1, -1, 1)`` in float32, where ``span = q99 - q01`` if that is
    above 1e-6, else 1. A constant dim becomes -1 and comes back as q01.
    """

    name = "pi052"
    rule_version = 1
    modes: ClassVar[tuple[str, ...]] = ("QUANTILES", "IDENTITY")
    dtype = result_dtype = np.float32
    epsilon = 1e-6

    def divisor(self, spread: Floats, mode: str) -> Floats:  # noqa: ARG002
        # The threshold as a float32: under NumPy 1 and 2 alike that is what the reference compares.
        return np.where(spread <= np.float32(self.epsilon), np.float32(1), spread)

    def clip_values(self, y: Floats, mode: str) -> Floats:
        return y if mode == "IDENTITY" else np.clip(y, -1, 1)


class LeRobot(Convention):
    """LeRobot's training normaliser (``NormalizerProcessorStep``), float32, never clipped.

    ``2 (x - lo) / d - 1`` with ``d = hi - lo``, or 1e-8 where that is 0; MEAN_STD is
    ``(x - mean) / (std + 1e-8)``. A dim of zero range takes a value that deviates by 1 to 1e8.

    Notes
    -----
    The later branch form of pi052's ``fit_fast_tokenizer`` has the same modes of range, and for
    MEAN_STD divides by std, or by 1e-8 where that is 0; in float32 the two differ where std is
    below about 0.3. This is the form of training, which a tokenizer has to serve. LeRobot goes
    back by ``y * std + mean``; here ``y * (std + 1e-8) + mean`` undoes the forward.
    """

    name = "lerobot"
    rule_version = 1
    modes: ClassVar[tuple[str, ...]] = tuple(STATISTICS)
    dtype = result_dtype = np.float32
    epsilon = 1e-8

    def divisor(self, spread: Floats, mode: str) -> Floats:
        if mode == "MEAN_STD":
            denominator: Floats = spread + self.dtype(self.epsilon)
            return denominator
        return np.where(spread == 0, self.dtype(self.epsilon), spread)

    def _scale(self, x: Floats, divisor: Floats) -> Floats:
        return 2 * x / divisor - 1


class LeRobotTrainTokenizer(Convention):
    """LeRobot's command ``lerobot-train-tokenizer``, in float64.

    ``2 (clip(x, lo, hi) - lo) / max(hi - lo, 1e-8) - 1``, without the clip for MIN_MAX; MEAN_STD
    is ``(x - mean) / max(std, 1e-8)``.
    """

    name = "lerobot-train-tokenizer"
    rule_version = 1
    modes: ClassVar[tuple[str, ...]] = tuple(STATISTICS)
    dtype = result_dtype = np.float64
    epsilon = 1e-8

    def divisor(self, spread: Floats, mode: str) -> Floats:  # noqa: ARG002
        return np.maximum(spread, self.epsilon)

    def clip_actions(self, x: Floats, lo: Floats, hi: Floats, mode: str) -> Floats:
        return np.clip(x, lo, hi) if mode in ("QUANTILES", "QUANTILE10") else x

    def _scale(self, x: Floats, divisor: Floats) -> Floats:
        return 2 * x / divisor - 1


class OpenPi(Convention):
    """openpi's ``Normalize``, in float64 as with statistics from its JSON files, never clipped.

    ``(x - lo) / (hi - lo + 1e-6) * 2 - 1``; MEAN_STD is ``(x - mean) / (std + 1e-6)``.

    Notes
    -----
    Its own are QUANTILES and MEAN_STD; MIN_MAX and QUANTILE10 carry the formula on.
    """

    name = "openpi"
    rule_version = 1
    modes: ClassVar[tuple[str, ...]] = tuple(STATISTICS)
    dtype = result_dtype = np.float64
    epsilon = 1e-6

    def divisor(self, spread: Floats, mode: str) -> Floats:  # noqa: ARG002
        return spread + self.epsilon


class OpenTau(Convention):
    """OpenTau's fit script: computed in float64, given in float32, never clipped.

    ``((x - lo) + 0.5 (d - (hi - lo))) / (d + 1e-6) * 2 - 1`` with ``d = hi - lo``, or 1 where that
    is below 1e-6, so that a constant dim lies at 0; then NaN and infinity become 0.

    Notes
    -----
    Its training computes the same in float32, with QUANTILES as with MIN_MAX.
    """

    name = "opentau"
    rule_version = 1
    modes: ClassVar[tuple[str, ...]] = ("MIN_MAX", "QUANTILES", "IDENTITY")
    default_mode = "MIN_MAX"
    dtype = np.float64
    result_dtype = np.float32
    epsilon = 1e-6

    def divisor(self, spread: Floats, mode: str) -> Floats:  # noqa: ARG002
        return self._snapped(spread) + self.epsilon

    def constant(self, lo: Floats, hi: Floats, mode: str) -> NDArray[np.bool_]:
        narrow: NDArray[np.bool_] = np.abs(self.spread(lo, hi, mode)) < self.epsilon
        return narrow

    def _snapped(self, spread: Floats) -> Floats:
        return np.where(np.abs(spread) < self.epsilon, 1.0, spread)

    def _from_lo(self, x: Floats, lo: Floats, spread: Floats) -> Floats:
        return (x - lo) + 0.5 * (self._snapped(spread) - spread)

    def _to_lo(self, x: Floats, spread: Floats) -> Floats:
        return x - 0.5 * (self._snapped(spread) - spread)

    def _finish(self, y: Floats) -> Floats:
        return np.nan_to_num(y, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float32)


CONVENTIONS: Mapping[str, Convention] = {
    rule.name: rule for rule in (Pi052(), LeRobot(), LeRobotTrainTokenizer(), OpenPi(), OpenTau())
}
"""Every convention by name."""


def find_convention(name: str, mode: str) -> Convention:
    """Give the convention of that name, which has to have the mode."""
    if name not in CONVENTIONS:
        raise ValueError(
            f"unknown normalisation convention {name!r}; known: {', '.join(sorted(CONVENTIONS))}"
        )
    rule = CONVENTIONS[name]
    if mode not in rule.modes:
        raise ValueError(
            f"convention {name!r} has no mode {mode!r}; it has: {', '.join(rule.modes)}"
        )
    return rule
