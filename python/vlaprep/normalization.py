"""The trainers' ways to normalise actions, by the name of the convention.

A tokenizer serves a policy only when both see actions normalised alike, down to the last bit, so
every convention here is one trainer's own formula in that trainer's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vlaprep.conventions import CONVENTIONS, Convention, find_convention
from vlaprep.errors import NoChunksError, TokenizerFormatError
from vlaprep.fit_report import read_report
from vlaprep.normalization_diff import (
    config_differences,
    normalization_differences,
    stats_differences,
)
from vlaprep.normalization_stats import (
    check_dim_labels,
    check_statistics,
    dataset_statistics,
    given_statistics,
    read_statistics,
    sample_statistics,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from vlaprep.dataset import Dataset

    Floats: TypeAlias = NDArray[np.floating[Any]]

__all__ = ["CONVENTIONS", "Convention", "Normalization"]

FORMAT_VERSION = 1

_BLOCK = 512
"""Chunks that are normalised at a time, so that what lies between two operations stays near."""


@dataclass(frozen=True, eq=False)
class Normalization:
    """A convention with the statistics it was fitted to.

    Parameters
    ----------
    convention : str
        Name of one of `vlaprep.conventions.CONVENTIONS`.
    mode : str
        Which statistics, one of the convention's modes.
    lo, hi : array_like, shape (D,)
        The two statistics of the mode: minimum and maximum, mean and standard deviation, or the
        two quantiles. Kept in the convention's dtype. ``"IDENTITY"`` has none.
    dim_names : sequence of str, length D, optional
        Names of the dims, for messages.
    relative : sequence of bool, length D, optional
        Which dims were made relative to the state before they were normalised; None: none of
        them. It is kept and compared here, and carried out by the caller.

    Raises
    ------
    ValueError
        A name or mode that does not exist, or statistics that are no two finite (D,) arrays in
        order.

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
    >>> norm.differences(Normalization("pi052", "QUANTILES", lo=[0.0, 5.0], hi=[3.0, 5.0]))
    ['dim 0 has q99 2.0 here but 3.0 there']
    """

    convention: str
    mode: str
    lo: Floats = field(default_factory=lambda: np.zeros(0))
    hi: Floats = field(default_factory=lambda: np.zeros(0))
    dim_names: tuple[str, ...] | None = None
    relative: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        rule = find_convention(self.convention, self.mode)
        for name in ("lo", "hi"):
            with np.errstate(over="ignore"):  # it is refused below
                values = np.array(getattr(self, name), dtype=rule.dtype)
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        if self.mode == "IDENTITY":
            if self.lo.size or self.hi.size:
                raise ValueError("mode IDENTITY has no statistics: leave lo and hi out")
        else:
            check_statistics(rule, self.mode, self.lo, self.hi)
        for name, kind in (("dim_names", str), ("relative", bool)):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, check_dim_labels(name, given, kind, self.action_dim))

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
        NoChunksError
            There is no row.

        Notes
        -----
        Where a convention computes in float32 the actions are float32 before anything is taken of
        them, as in its trainer. Quantiles follow NumPy 2.4's rule in the dtype of the actions;
        mean and standard deviation (the population's) are taken in float64.
        """
        rule = find_convention(convention, mode)
        rows = np.asarray(chunks)
        rows = rows.reshape(-1, rows.shape[-1])
        if not len(rows):
            raise NoChunksError("no actions to take statistics of: chunks is empty")
        if rule.dtype is np.float32:
            rows = rows.astype(np.float32, copy=False)
        return cls.fit_blocks([rows], convention=convention, mode=mode)

    @classmethod
    def fit_blocks(
        cls, blocks: Iterable[Floats], *, convention: str = "pi052", mode: str = "QUANTILES"
    ) -> Normalization:
        """Take the statistics of actions that are not all at hand at the same time.

        Parameters
        ----------
        blocks : iterable of array, shape (n, D)
            Rows; each iteration gives them anew. How they are cut changes no bit.
        convention, mode : str
            As in the class.
        """
        find_convention(convention, mode)
        return cls(convention, mode, *sample_statistics(blocks, mode))

    @classmethod
    def from_dataset(
        cls,
        dataset: Dataset,
        column: str = "action",
        *,
        convention: str,
        mode: str,
        episodes: ArrayLike | None = None,
    ) -> Normalization:
        """Take the exact statistics of all frames of a dataset.

        Parameters
        ----------
        dataset : Dataset
            Of `vlaprep.open_dataset`.
        column : str
            A numeric column. Its statistics are of the numbers as they stand there: they are no
            statistics of relative actions.
        convention, mode : str
            As in the class.
        episodes : array_like of int64, shape (N,), optional
            Ids; all by default.

        Returns
        -------
        Normalization
            With the names of the dims, where the dataset has them.

        Raises
        ------
        DatasetFormatError, EpisodeSelectionError
            As `Dataset.stats` raises them.

        Examples
        --------
        >>> from vlaprep import Normalization, open_dataset
        >>> dataset = open_dataset("tests/golden/lerobot_v30")
        >>> norm = Normalization.from_dataset(dataset, convention="lerobot", mode="MIN_MAX")
        >>> norm.action_dim, norm.lo.dtype
        (6, dtype('float32'))
        """
        find_convention(convention, mode)
        norm = cls(convention, mode, *dataset_statistics(dataset, column, mode, episodes))
        names = dataset.feature_names(column) or ()
        return replace(norm, dim_names=tuple(names)) if len(names) == len(norm.lo) > 0 else norm

    @classmethod
    def from_stats(
        cls,
        stats: Mapping[str, Any] | str | PathLike[str],
        column: str = "action",
        *,
        convention: str,
        mode: str,
    ) -> Normalization:
        """Take the statistics that LeRobot keeps in ``meta/stats.json``.

        Parameters
        ----------
        stats : mapping or path
            ``{"action": {"mean": ..., "std": ..., "min": ..., "max": ..., "q01": ..., ...}}``, the
            inner mapping alone, a ``stats.json``, or the folder of a dataset. Values have shape
            (D,): lists, arrays or tensors.
        column : str
            Which of the columns.
        convention, mode : str
            As in the class.

        Returns
        -------
        Normalization

        Raises
        ------
        DatasetFormatError
            There is no such column or statistic (the message lists those there are), or it holds
            no numbers.
        DatasetNotFoundError
            There is no such file.

        Examples
        --------
        >>> from vlaprep import Normalization
        >>> stats = {"action": {"min": [-1.0, 0.0], "max": [1.0, 4.0]}}
        >>> norm = Normalization.from_stats(stats, convention="openpi", mode="MIN_MAX")
        >>> norm.normalize([[1.0, 1.0]]).round(5)
        array([[ 1. , -0.5]])
        """
        find_convention(convention, mode)
        found, place = read_statistics(stats, column)
        return cls(convention, mode, *given_statistics(found, mode, place))

    @property
    def action_dim(self) -> int | None:
        """Number of action dims D; None where neither statistics nor names tell."""
        for known in (self.lo, self.dim_names, self.relative):
            if known is not None and len(known):
                return len(known)
        return None

    @property
    def constant_dims(self) -> tuple[int, ...]:
        """Dims whose range is too small to divide by, so that the convention's guard applies.

        What `normalize` gives for a value that deviates there differs from one convention to the
        other: `extent` tells it.
        """
        if self.mode == "IDENTITY":
            return ()
        rule = CONVENTIONS[self.convention]
        return tuple(np.flatnonzero(rule.constant(self.lo, self.hi, self.mode)).tolist())

    def normalize(self, actions: ArrayLike) -> Floats:
        """Normalise actions of shape (..., D) by the trainer's formula, in its dtype, bit for bit.

        NaN stays NaN, save where the convention has another use for it; IDENTITY gives back what
        it gets.
        """
        _, _, _, values = self._steps(self._rows(actions))
        return values

    def normalizes_to(self, dtype: DTypeLike) -> np.dtype[Any]:
        """Tell the dtype of what `normalize` gives for actions of `dtype`."""
        own = CONVENTIONS[self.convention].result_dtype
        return np.dtype(dtype if self.mode == "IDENTITY" else own)

    def normalize_counting(
        self, actions: ArrayLike, out: Floats | None = None
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Normalise as `normalize` does, and count the values of each dim that were clipped.

        The values go to `out`, an array of their shape and dtype, where one is given.
        """
        rows = self._rows(actions)
        counts = np.zeros(rows.shape[-1], dtype=np.int64)
        normal = np.empty(rows.shape, self.normalizes_to(rows.dtype)) if out is None else out
        for block, into in zip(_blocks(rows), _blocks(normal), strict=True):
            x, inside, free, values = self._steps(block)
            into[...] = values
            for before, after in ((x, inside), (free, values)):
                if before is not after:
                    counts += (before != after).reshape(-1, len(counts)).sum(axis=0)
        return normal, counts

    def unnormalize(self, normalized: ArrayLike) -> Floats:
        """Undo `normalize` up to clipping; shape (..., D), float64 in gives float64 out."""
        rule = CONVENTIONS[self.convention]
        return rule.inverse(self._rows(normalized), self.lo, self.hi, self.mode)

    def clipped_fraction(self, actions: ArrayLike) -> NDArray[np.float64]:
        """Share of values of each dim that `normalize` clips, shape (D,), each in [0, 1]."""
        rows = self._rows(actions)
        _, counts = self.normalize_counting(rows)
        fraction: NDArray[np.float64] = counts / np.float64(rows.size // len(counts))
        return fraction

    def extent(self, actions: ArrayLike) -> Floats:
        """Largest magnitude of normalised values of each dim, shape (D,); NaN where there is one.

        Where a dim never moved in what the statistics are of, a convention that does not clip makes
        up to 1e8 of a small deviation, and a tokenizer cannot represent that.

        Examples
        --------
        >>> from vlaprep import Normalization
        >>> norm = Normalization("lerobot", "MIN_MAX", lo=[0, 5], hi=[2, 5])
        >>> norm.extent([[2, 5], [1, 6]])
        array([1.e+00, 2.e+08], dtype=float32)
        """
        rows = self._rows(actions)
        largest = [
            np.abs(self._steps(block)[3]).max(axis=tuple(range(block.ndim - 1)), initial=0)
            for block in _blocks(rows)
        ]
        return np.max(largest, axis=0) if largest else np.zeros(rows.shape[-1])

    def differences(self, other: Any, column: str = "action") -> list[str]:
        """Say in sentences where another normalisation, statistics or a policy's config differ.

        Parameters
        ----------
        other : Normalization, mapping, path or object
            A normalisation, or its `to_dict`; statistics as in `from_stats`, of which those of the
            mode are compared; or a policy's config, or its normalising step, of LeRobot or OpenTau
            (``normalization_mapping`` or ``norm_map``, in which a missing ``"ACTION"`` means
            IDENTITY), of which the mode is compared, and also the number of dims, whether actions
            are relative, and the statistics, as far as they are there.
        column : str
            Which column statistics are of.

        Returns
        -------
        list of str
            Empty where nothing differs. Statistics count as equal when the coarser of the two
            dtypes cannot tell them apart.

        Raises
        ------
        DatasetFormatError, DatasetNotFoundError, TokenizerFormatError, TypeError
            `other` cannot be read, or is none of these.

        Examples
        --------
        >>> from vlaprep import Normalization
        >>> norm = Normalization("lerobot", "MIN_MAX", [0], [2], dim_names=["gripper"])
        >>> norm.differences({"action": {"min": [0.0], "max": [1.5]}})
        ['dim 0 (gripper) has max 2.0 here but 1.5 there']
        >>> norm.differences({"normalization_mapping": {"ACTION": "QUANTILES"}})
        ["mode is 'MIN_MAX' here but 'QUANTILES' there"]
        """
        if isinstance(other, Mapping) and {"convention", "mode"} <= other.keys():
            other = Normalization.from_dict(other)
        if isinstance(other, Normalization):
            return normalization_differences(self, other)
        told = config_differences(self, other, column)
        return stats_differences(self, other, column) if told is None else told

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types; `from_dict` gives back an equal object, bit for bit."""
        labels = {"dim_names": self.dim_names, "relative": self.relative}
        return {
            "format_version": FORMAT_VERSION,
            "convention": self.convention,
            "rule_version": CONVENTIONS[self.convention].rule_version,
            "mode": self.mode,
            "lo": [float(value) for value in self.lo],
            "hi": [float(value) for value in self.hi],
            **{name: list(given) for name, given in labels.items() if given is not None},
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
        return cls.from_report(read_report(Path(folder)))

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> Normalization:
        """Read the normalisation in a report of `vlaprep.fit_report.read_report`.

        Raises
        ------
        TokenizerFormatError
            The report has none, or one from a newer vlaprep.
        """
        if not isinstance(report.get("normalization"), Mapping):
            raise TokenizerFormatError("the fit report has no normalization")
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
            _check_versions(data)
            labels = {name: data.get(name) for name in ("dim_names", "relative")}
            return cls(data["convention"], data["mode"], data["lo"], data["hi"], **labels)
        except TokenizerFormatError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise TokenizerFormatError(f"normalization is malformed: {error!r}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return Normalization.from_dict, (self.to_dict(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Normalization) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:  # of numbers, not bytes: -0.0 equals 0.0
        numbers = tuple(self.lo.tolist()), tuple(self.hi.tolist())
        return hash((self.convention, self.mode, *numbers, self.dim_names, self.relative))

    def _steps(self, x: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Actions, the same clipped, what they map to, the same clipped: what `normalize` gives."""
        rule, of = CONVENTIONS[self.convention], (self.lo, self.hi, self.mode)
        inside = rule.clip_actions(x, *of)
        free = rule.forward(inside, *of)
        return x, inside, free, rule.clip_values(free, self.mode)

    def _rows(self, values: ArrayLike) -> Floats:
        rows = np.asarray(values)
        if not rows.ndim or self.action_dim not in (None, rows.shape[-1]):
            raise ValueError(
                f"actions have shape {rows.shape}, but the statistics are of {self.action_dim} dims"
            )
        return rows


def _blocks(rows: Floats) -> Iterator[Floats]:
    """Give views of an array (..., D), as a batch of which not too much is at hand at a time."""
    batch = rows if rows.ndim > 1 else rows[None]
    for first in range(0, len(batch), _BLOCK):
        yield batch[first : first + _BLOCK]


def _check_versions(data: Mapping[str, Any]) -> None:
    """Refuse what a newer vlaprep wrote."""
    name, found = data["convention"], (data["format_version"], data["rule_version"])
    if name not in CONVENTIONS:
        raise TokenizerFormatError(
            f"normalization has convention {name!r}, this vlaprep knows {', '.join(CONVENTIONS)}; "
            "update vlaprep"
        )
    known = FORMAT_VERSION, CONVENTIONS[name].rule_version
    if found[0] > known[0] or found[1] > known[1]:
        raise TokenizerFormatError(
            f"normalization has format_version {found[0]} and rule_version {found[1]}, "
            f"this vlaprep knows up to {known[0]} and {known[1]}; update vlaprep"
        )
