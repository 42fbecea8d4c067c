"""The trainers' ways to normalise actions, by the name of the convention.

A tokenizer serves a policy only when both see actions normalised alike, down to the last bit, so
every convention here is one trainer's own formula in that trainer's own arithmetic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from vlaprep.errors import DatasetFormatError, TokenizerFormatError
from vlaprep.fit_chunks import RowBlocks
from vlaprep.fit_report import read_report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    Floats: TypeAlias = NDArray[np.floating[Any]]

__all__ = ["CONVENTIONS", "Convention", "Normalization"]

FORMAT_VERSION = 1


class Convention(ABC):
    """One trainer's formula: how statistics come from chunks, and actions from statistics.

    ``lo`` and ``hi`` are the two statistics of the mode, shape (D,), in the dtype the trainer
    computes in.
    """

    name: ClassVar[str]
    rule_version: ClassVar[int]
    """Raised whenever a bit of any result changes; cached fits carry it in their signature."""
    modes: ClassVar[tuple[str, ...]]
    dtype: ClassVar[type[np.floating[Any]]]

    @abstractmethod
    def statistics(self, rows: Floats, mode: str) -> tuple[Floats, Floats]:
        """``(lo, hi)`` of action rows (N, D)."""

    @abstractmethod
    def forward(self, x: Floats, lo: Floats, hi: Floats) -> Floats:
        """Actions to normalised values, before any clip of the values."""

    @abstractmethod
    def inverse(self, y: Floats, lo: Floats, hi: Floats) -> Floats:
        """Normalised values back to actions."""

    @abstractmethod
    def limit(self, y: Floats) -> Floats:
        """Clip what `forward` gave where the trainer clips, and cast it to the trainer's dtype."""

    @abstractmethod
    def constant(self, lo: Floats, hi: Floats) -> NDArray[np.bool_]:
        """Dims whose range is too small to divide by."""


class Pi052(Convention):
    """Quantiles of the fitted sample, clipped: LeRobot pi052's first ``fit_fast_tokenizer``.

    ``clip((x - q01) / span * 2 - 1, -1, 1)`` in float32, where ``span = q99 - q01`` if that is
    above 1e-6, else 1. A constant dim becomes -1 and comes back as q01.
    """

    name = "pi052"
    rule_version = 1
    modes: ClassVar[tuple[str, ...]] = ("QUANTILES",)
    dtype: ClassVar[type[np.floating[Any]]] = np.float32

    def statistics(self, rows: Floats, mode: str) -> tuple[Floats, Floats]:
        from vlaprep.kernels import block_quantiles, quantile

        del mode  # there is only one
        if isinstance(rows, RowBlocks):
            lo, hi = block_quantiles(rows, (0.01, 0.99))
        else:
            lo, hi = quantile(np.ascontiguousarray(rows, dtype=np.float32), (0.01, 0.99))
        return lo, hi

    def forward(self, x: Floats, lo: Floats, hi: Floats) -> Floats:
        return (x.astype(np.float32, copy=False) - lo) / self._span(lo, hi) * 2 - 1

    def inverse(self, y: Floats, lo: Floats, hi: Floats) -> Floats:
        return (y + 1) / 2 * self._span(lo, hi) + lo

    def limit(self, y: Floats) -> Floats:
        return np.clip(y, -1, 1)

    def constant(self, lo: Floats, hi: Floats) -> NDArray[np.bool_]:
        # The threshold as a float32: under NumPy 1 and 2 alike that is what the reference compares.
        tiny: NDArray[np.bool_] = hi - lo <= np.float32(1e-6)
        return tiny

    def _span(self, lo: Floats, hi: Floats) -> Floats:
        return np.where(self.constant(lo, hi), np.float32(1), hi - lo)


CONVENTIONS: Mapping[str, Convention] = {rule.name: rule for rule in (Pi052(),)}
"""Every convention by name."""


@dataclass(frozen=True, eq=False)
class Normalization:
    """A convention with the statistics it was fitted to.

    Parameters
    ----------
    convention : str
        Name of one of `CONVENTIONS`.
    mode : str
        Which statistics, one of the convention's modes.
    lo, hi : array_like, shape (D,)
        The two statistics of the mode: for ``"QUANTILES"`` the 1 % and 99 % quantiles.

    Raises
    ------
    ValueError
        A name or mode that does not exist, or statistics that are no two finite (D,) arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from vlaprep.normalization import Normalization
    >>> norm = Normalization("pi052", "QUANTILES", lo=[0.0, 5.0], hi=[2.0, 5.0])
    >>> norm.normalize(np.array([[[0.5, 5.0], [3.0, 5.0]]]))
    array([[[-0.5, -1. ],
            [ 1. , -1. ]]], dtype=float32)
    >>> norm.constant_dims
    (1,)
    """

    convention: str
    mode: str
    lo: Floats
    hi: Floats

    def __post_init__(self) -> None:
        rule = _convention(self.convention)
        if self.mode not in rule.modes:
            raise ValueError(
                f"convention {self.convention!r} has no mode {self.mode!r}; it has: "
                f"{', '.join(rule.modes)}"
            )
        for name in ("lo", "hi"):
            values = np.array(getattr(self, name), dtype=rule.dtype)
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        if self.lo.ndim != 1 or self.lo.shape != self.hi.shape or not self.lo.size:
            raise ValueError(
                f"lo and hi must be flat and equally long, got shapes {self.lo.shape} and "
                f"{self.hi.shape}"
            )
        broken = np.flatnonzero(~(np.isfinite(self.lo) & np.isfinite(self.hi)))
        if len(broken):
            raise ValueError(
                f"the {self.mode} statistics of action dim {broken[0]} are not finite; leave out "
                "chunks with NaN or infinity before taking statistics"
            )

    @classmethod
    def fit(
        cls, chunks: ArrayLike, *, convention: str = "pi052", mode: str = "QUANTILES"
    ) -> Normalization:
        """Take the statistics of action chunks.

        Parameters
        ----------
        chunks : array_like, shape (..., D)
            Actions; all axes but the last are rows.
        convention, mode : str
            As in the class.

        Returns
        -------
        Normalization

        Raises
        ------
        DatasetFormatError
            The range of a dim overflows the convention's dtype.
        """
        if isinstance(chunks, RowBlocks):
            rows: Any = chunks
        else:
            rows = np.asarray(chunks)
            rows = rows.reshape(-1, rows.shape[-1])
        with np.errstate(over="ignore"):
            lo, hi = _convention(convention).statistics(rows, mode)
            too_wide = np.isfinite(lo) & np.isfinite(hi) & ~np.isfinite(hi - lo)
        for dim in np.flatnonzero(too_wide):
            raise DatasetFormatError(
                f"dim {dim} of the actions ranges from {lo[dim]:g} to {hi[dim]:g}, more than "
                f"{lo.dtype} can subtract; look for broken values in that dim"
            )
        return cls(convention, mode, lo, hi)

    @property
    def action_dim(self) -> int:
        """Number of action dims D."""
        return len(self.lo)

    @property
    def constant_dims(self) -> tuple[int, ...]:
        """Dims whose range is too small to divide by, so that the convention's guard applies."""
        rule = _convention(self.convention)
        return tuple(np.flatnonzero(rule.constant(self.lo, self.hi)).tolist())

    def normalize(self, actions: ArrayLike) -> Floats:
        """Normalise actions of shape (..., D) in the convention's dtype; NaN stays NaN."""
        rule = _convention(self.convention)
        return rule.limit(rule.forward(self._rows(actions), self.lo, self.hi))

    def normalize_counting(self, actions: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
        """Normalise as `normalize` does, and count the values of each dim that were clipped."""
        rule = _convention(self.convention)
        free = rule.forward(self._rows(actions), self.lo, self.hi)
        normal = rule.limit(free)
        clipped: NDArray[np.int64] = (normal != free).reshape(-1, self.action_dim).sum(axis=0)
        return normal, clipped

    def unnormalize(self, normalized: ArrayLike) -> Floats:
        """Undo `normalize` up to clipping; shape (..., D), float64 in gives float64 out."""
        rule = _convention(self.convention)
        return rule.inverse(self._rows(normalized), self.lo, self.hi)

    def clipped_fraction(self, actions: ArrayLike) -> NDArray[np.float64]:
        """Share of values of each dim that `normalize` clips, shape (D,), each in [0, 1]."""
        rule = _convention(self.convention)
        free = rule.forward(self._rows(actions), self.lo, self.hi).reshape(-1, self.action_dim)
        fraction: NDArray[np.float64] = (rule.limit(free) != free).mean(axis=0, dtype=np.float64)
        return fraction

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types; `from_dict` gives back an equal object, bit for bit."""
        return {
            "format_version": FORMAT_VERSION,
            "convention": self.convention,
            "rule_version": _convention(self.convention).rule_version,
            "mode": self.mode,
            "lo": [float(value) for value in self.lo],
            "hi": [float(value) for value in self.hi],
        }

    @classmethod
    def from_pretrained(cls, folder: str | PathLike[str]) -> Normalization:
        """Read the normalisation that a tokenizer was fitted with.

        Parameters
        ----------
        folder : path-like
            What `vlaprep.fit_fast_tokenizer` returned.

        Returns
        -------
        Normalization

        Raises
        ------
        TokenizerFormatError
            The folder has no fit report, or one that is torn or from a newer vlaprep.
        """
        report = read_report(Path(folder))
        if not isinstance(report.get("normalization"), dict):
            raise TokenizerFormatError(f"the fit report in {folder} has no normalization")
        return cls.from_dict(report["normalization"])

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Normalization:
        """Read what `to_dict` wrote.

        Raises
        ------
        TokenizerFormatError
            Fields are missing, or a newer vlaprep wrote them.
        """
        try:
            known = FORMAT_VERSION, _convention(data["convention"]).rule_version
            found = data["format_version"], data["rule_version"]
            if found[0] > known[0] or found[1] > known[1]:
                raise TokenizerFormatError(
                    f"normalization has format_version {found[0]} and rule_version {found[1]}, "
                    f"this vlaprep knows up to {known[0]} and {known[1]}; update vlaprep"
                )
            return cls(data["convention"], data["mode"], lo=data["lo"], hi=data["hi"])
        except (KeyError, TypeError) as error:
            raise TokenizerFormatError(f"normalization is malformed: {error!r}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return Normalization.from_dict, (self.to_dict(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Normalization) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.convention, self.mode, self.lo.tobytes(), self.hi.tobytes()))

    def _rows(self, values: ArrayLike) -> Floats:
        rows = np.asarray(values)
        if rows.shape[-1:] != self.lo.shape:
            raise ValueError(
                f"actions have shape {rows.shape}, but the statistics are of {self.action_dim} dims"
            )
        return rows


def _convention(name: str) -> Convention:
    if name not in CONVENTIONS:
        raise ValueError(
            f"unknown normalisation convention {name!r}; known: {', '.join(sorted(CONVENTIONS))}"
        )
    return CONVENTIONS[name]
