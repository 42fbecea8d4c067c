"""What a fit is to be, apart from the data and the base: checked, in normal form, for the key."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.action_space import ActionRequest
from vlaprep.conventions import CONVENTIONS, find_convention
from vlaprep.errors import DatasetNotFoundError
from vlaprep.fit_base import FIT_DEFAULTS
from vlaprep.normalization import FORMAT_VERSION, Normalization
from vlaprep.sampling import MOST_DRAWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from vlaprep.action_space import ActionSpace, Dims
    from vlaprep.sampling import Per, Tail

__all__ = ["Draws", "FitPlan", "Held", "Scaling"]

STATISTICS_FROM = ("sample", "dataset", "meta")


def _one_of(name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


@dataclass(frozen=True)
class Draws:
    """Which windows of the selected episodes are drawn."""

    n_samples: int
    chunk_size: int
    seed: int
    per: Per
    replace: bool
    nan: str

    def __post_init__(self) -> None:
        for name in ("n_samples", "chunk_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.n_samples > MOST_DRAWS:
            raise ValueError(f"n_samples must be at most {MOST_DRAWS}, got {self.n_samples}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        _one_of("per", self.per, ("episode", "frame", "task"))
        _one_of("nan", self.nan, ("skip", "error"))


@dataclass(frozen=True)
class Scaling:
    """How actions are normalised.

    Parameters
    ----------
    convention, mode : str
        See `Normalization`.
    source : {"sample", "dataset", "meta", "given"}
        Where the statistics come from.
    given : Normalization, optional
        The statistics, where they are given.
    labelled : bool
        Whether they are a `Normalization`, which says what its dims are.
    """

    convention: str
    mode: str
    source: str
    given: Normalization | None = None
    labelled: bool = False

    @classmethod
    def of(
        cls,
        convention: str | None,
        mode: str | None,
        statistics: Mapping[str, Any] | Normalization | str | PathLike[str],
        column: str,
    ) -> Scaling:
        """Bring what a caller asks for to normal form."""
        if isinstance(statistics, Normalization):
            for name, asked in (("convention", convention), ("mode", mode)):
                if asked not in (None, getattr(statistics, name)):
                    raise ValueError(
                        f"{name}={asked!r} is not that of the given statistics, "
                        f"{getattr(statistics, name)!r}: leave {name} out"
                    )
            return cls(statistics.convention, statistics.mode, "given", statistics, labelled=True)
        convention = "pi052" if convention is None else convention
        if mode is None and convention in CONVENTIONS:
            mode = CONVENTIONS[convention].default_mode
        find_convention(convention, str(mode))
        mode = str(mode)
        if isinstance(statistics, str) and statistics in STATISTICS_FROM:
            return cls(convention, mode, statistics if mode != "IDENTITY" else "sample")
        if isinstance(statistics, str) and not Path(statistics).expanduser().exists():
            raise DatasetNotFoundError(
                f"statistics={statistics!r} is none of {', '.join(STATISTICS_FROM)}, and neither a "
                "file nor a folder"
            )
        given = Normalization.from_stats(statistics, column, convention=convention, mode=mode)
        if mode == "IDENTITY":  # which has none
            return cls(convention, mode, "sample")
        return cls(convention, mode, "given", given)

    def identity(self, *, at_hand: bool) -> dict[str, Any]:
        """Tell this normalisation from any other, as JSON types.

        Where the data are at hand, so are the statistics of the encoded dims, which count.
        """
        given = "given" if at_hand or self.given is None else self.given.to_dict()
        return {
            "convention": self.convention,
            "mode": self.mode,
            "rule_version": CONVENTIONS[self.convention].rule_version,
            "format_version": FORMAT_VERSION,
            "statistics": self.source if self.given is None else given,
        }


@dataclass(frozen=True)
class Held:
    """Which chunks a fitted tokenizer is tried on.

    Parameters
    ----------
    samples : int
        How many; 0 for no trial.
    episodes : float or tuple of int, optional
        Share of the episodes, or the episodes, that the fit does without. None: those that gave no
        chunk to the fit, if there are any.
    """

    samples: int
    episodes: float | tuple[int, ...] | None

    @classmethod
    def of(cls, samples: int, episodes: float | Iterable[int] | None) -> Held:
        """Check and bring to normal form."""
        samples = index(samples)
        if samples < 0:
            raise ValueError(f"validation_samples must not be negative, got {samples}")
        if samples > MOST_DRAWS:
            raise ValueError(f"validation_samples must be at most {MOST_DRAWS}, got {samples}")
        if episodes is None:
            return cls(samples, None)
        if isinstance(episodes, float | np.floating):
            episodes = float(episodes)
            if not 0 < episodes < 1:
                raise ValueError(
                    f"validation_episodes={episodes} is no share between 0 and 1; or list episodes"
                )
            return cls(samples, episodes)
        from vlaprep.dataset_types import episode_ids

        if not hasattr(episodes, "__iter__"):
            raise ValueError(
                f"validation_episodes={episodes!r} is neither a share between 0 and 1 nor a list "
                "of episodes"
            )
        return cls(samples, tuple(np.unique(episode_ids(episodes)).tolist()))


@dataclass(frozen=True)
class FitPlan:
    """All options of a fit."""

    draws: Draws
    actions: ActionRequest
    scaling: Scaling
    held: Held
    scale: float
    vocab_size: int
    max_token_length: int
    alphabet: str
    compatible: bool
    coverage: str

    def __post_init__(self) -> None:
        for name in ("vocab_size", "max_token_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale must be a positive number, got {self.scale}")
        _one_of("coverage", self.coverage, ("sample", "all"))
        _one_of("alphabet", self.alphabet, ("bytes", "symbols"))
        if self.actions.is_relative and self.scaling.source in ("dataset", "meta"):
            raise ValueError(
                f"statistics={self.scaling.source!r} are of absolute actions and do not fit "
                "relative ones: take those of the sample, or pass statistics of relative actions"
            )

    @classmethod
    def of(
        cls,
        *,
        n_samples: int,
        chunk_size: int,
        seed: int,
        action_key: str,
        per: Per,
        replace: bool,
        tail: Tail,
        dims: Dims | None,
        relative: Dims | None,
        absolute: Dims | None,
        state_key: str,
        max_action_dim: int | None,
        convention: str | None,
        normalization_mode: str | None,
        statistics: Mapping[str, Any] | Normalization | str | PathLike[str],
        nan: str,
        scale: float = 10.0,
        vocab_size: int = 1024,
        max_token_length: int = 10_000,
        alphabet: str = "bytes",
        compatible: bool = False,
        coverage: str = "sample",
        validation_samples: int = 0,
        validation_episodes: float | Iterable[int] | None = None,
    ) -> FitPlan:
        """Check arguments of `vlaprep.fit_fast_tokenizer`, and bring them to normal form."""
        return cls(
            draws=Draws(index(n_samples), index(chunk_size), index(seed), per, bool(replace), nan),
            actions=ActionRequest.of(
                action_key,
                state_key=state_key,
                dims=dims,
                relative=relative,
                absolute=absolute,
                tail=tail,
                max_action_dim=max_action_dim,
            ),
            scaling=Scaling.of(convention, normalization_mode, statistics, action_key),
            held=Held.of(validation_samples, validation_episodes),
            scale=float(scale),
            vocab_size=index(vocab_size),
            max_token_length=index(max_token_length),
            alphabet=alphabet,
            compatible=bool(compatible),
            coverage=coverage,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """What the base's ``.fit`` is to use."""
        return {name: getattr(self, name) for name in FIT_DEFAULTS}

    def identity(self, space: ActionSpace | None) -> dict[str, Any]:
        """All of it that can change a byte of the result, as JSON types; dims as found."""
        return {
            **asdict(self.draws),
            "actions": self.actions.identity() if space is None else space.to_dict(),
            "normalization": self.scaling.identity(at_hand=space is not None),
            "validation": asdict(self.held),
            **self.settings,
            "coverage": self.coverage,
        }
