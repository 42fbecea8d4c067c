"""What sets a normalisation apart from another, from statistics, or from a policy's config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.conventions import CONVENTIONS, STATISTICS
from vlaprep.normalization_stats import given_statistics, read_statistics

if TYPE_CHECKING:
    from vlaprep.normalization import Normalization

__all__ = ["config_differences", "normalization_differences", "stats_differences"]

_MAPPINGS = ("normalization_mapping", "norm_map")  # of a LeRobot policy, of its processor step


def normalization_differences(own: Normalization, other: Normalization) -> list[str]:
    """Sentences on what two normalisations do not share."""
    told = [
        f"{what} is {a!r} here but {b!r} there"
        for what, a, b in (
            ("convention", own.convention, other.convention),
            ("mode", own.mode, other.mode),
        )
        if a != b
    ]
    if None not in (own.action_dim, other.action_dim) and own.action_dim != other.action_dim:
        return [*told, *_dims(own, other.action_dim)]
    if own.dim_names and other.dim_names:
        pairs = enumerate(zip(own.dim_names, other.dim_names, strict=True))
        told += [f"dim {i} is {a!r} here but {b!r} there" for i, (a, b) in pairs if a != b]
    if any(own.relative or ()) or any(other.relative or ()):
        here, there = _relative(own), _relative(other, own)
        if here != there:
            told.append(f"dims relative to the state are {here} here but {there} there")
    if own.mode == other.mode:
        told += _statistics(own, other.lo, other.hi, other.lo.dtype.type)
    return told


def stats_differences(own: Normalization, stats: Any, column: str) -> list[str]:
    """Sentences on where the statistics of the mode are not those given."""
    found, place = read_statistics(stats, column)
    lo, hi = given_statistics(found, own.mode, place)
    return _statistics(own, lo, hi, CONVENTIONS[own.convention].dtype)


def config_differences(own: Normalization, config: Any, column: str) -> list[str] | None:
    """Sentences on what a policy's config, or its normalising step, says else; None: it is none."""
    mapping = next((m for name in _MAPPINGS if (m := _get(config, name)) is not None), None)
    if mapping is None:
        return None
    modes = {str(_plain(key)): str(_plain(mode)) for key, mode in mapping.items()}
    mode = modes.get("ACTION", "IDENTITY")  # LeRobot leaves alone what has no entry
    told = [] if mode == own.mode else [f"mode is {own.mode!r} here but {mode!r} there"]
    features = _get(config, "output_features") or _get(config, "features") or {}
    shape = _get(features.get(column), "shape")
    if shape and own.action_dim not in (None, shape[0]):
        told += _dims(own, shape[0])
    relative = _get(config, "use_relative_actions")
    if relative is not None and bool(relative) != any(own.relative or ()):
        words = (
            "absolute here but relative to the state",
            "relative to the state here but absolute",
        )
        told.append(f"actions are {words[not relative]} there")
    stats = _get(config, "stats")
    if stats and mode == own.mode:
        told += stats_differences(own, stats, column)
    return told


def _statistics(own: Normalization, lo: Any, hi: Any, dtype: Any) -> list[str]:
    """Compare in the coarser of two dtypes: what was stored as float32 has lost the rest."""
    if lo.shape != own.lo.shape or hi.shape != own.hi.shape:
        return _dims(own, len(lo))
    coarse = min(np.dtype(dtype), own.lo.dtype, key=lambda kind: kind.itemsize)
    with np.errstate(over="ignore"):
        pairs = [(a.astype(coarse), b.astype(coarse)) for a, b in ((own.lo, lo), (own.hi, hi))]
    names, told = STATISTICS[own.mode], []
    for dim in range(len(own.lo)):
        apart = [
            f"{name} {here[dim]!s} here but {there[dim]!s} there"  # !s: as short as the dtype
            for name, (here, there) in zip(names, pairs, strict=True)
            if here[dim] != there[dim]
        ]
        if apart:
            told.append(f"{_dim(own, dim)} has {', '.join(apart)}")
    return told


def _dims(own: Normalization, count: Any) -> list[str]:
    return [f"actions have {own.action_dim} dims here but {count} there"]


def _dim(own: Normalization, dim: int) -> str:
    return f"dim {dim} ({own.dim_names[dim]})" if own.dim_names else f"dim {dim}"


def _relative(own: Normalization, named: Normalization | None = None) -> str:
    marked = np.flatnonzero(own.relative or ()).tolist()
    return ", ".join(_dim(named or own, dim) for dim in marked) or "none"


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def _plain(value: Any) -> Any:
    """Give the value of an enum member, and anything else as it is."""
    return getattr(value, "value", value)
