"""Bounds that a fitted tokenizer has to hold, and what its report says of them."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vlaprep.errors import FitGateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Gates"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gates:
    """Bounds on what a tokenizer does to chunks; None: no bound.

    They hold for chunks of held-out episodes. Where every episode gave chunks to the fit, they hold
    for the fitted ones; of other windows of the same episodes the log tells: which of them a small
    sample covers is chance.

    Parameters
    ----------
    max_reconstruction_rmse, max_dim_rmse : float, optional
        RMSE of normalised actions, over all values, and of each dim that moves.
    max_tokens : int, optional
        Tokens of a chunk.
    """

    max_reconstruction_rmse: float | None
    max_dim_rmse: float | None
    max_tokens: int | None

    def __post_init__(self) -> None:
        for name, bound in asdict(self).items():
            if bound is not None and not (math.isfinite(bound) and bound > 0):
                raise ValueError(f"{name} must be a positive number, got {bound}")

    def check(self, report: Mapping[str, Any], where: str) -> None:
        """Refuse a tokenizer whose numbers are beyond a bound.

        Parameters
        ----------
        report : mapping
            What ``fit_report.json`` says.
        where : str
            For the message: what becomes of the tokenizer.

        Raises
        ------
        FitGateError
            With all numbers that are.
        """
        trial, fitted = report["validation"], _of_the_fit(report)
        if trial is None or not trial["held_out"]:
            if trial is not None and (found := [*self._beyond(trial)]):
                logger.info(
                    "windows of the fitted episodes that were not drawn come back worse than the "
                    "bounds (%s): fit on more of them with n_samples=, or on all coefficients with "
                    "coverage='all'; validation_episodes=0.1 makes this a proof on held-out "
                    "episodes",
                    "; ".join(found),
                )
            trial = fitted
        if found := [*self._beyond(trial)]:
            chunks = f"{trial['chunks']} {'held-out' if trial['held_out'] else 'fitted'} chunks"
            raise FitGateError(
                f"the fitted tokenizer is not good enough on {chunks}, {where}: "
                f"{'; '.join(found)}. Raise scale, n_samples or vocab_size, look at the "
                "normalisation, raise the bound, or pass gate=False"
            )

    def _beyond(self, trial: Mapping[str, Any]) -> Iterator[str]:
        errors = trial["normalized"]
        bound = self.max_reconstruction_rmse
        if bound is not None and not errors["rmse"] <= bound:
            yield f"RMSE {errors['rmse']:.4g} is over max_reconstruction_rmse={bound:g}"
        bound = self.max_dim_rmse
        for dim, rmse in enumerate(errors["rmse_by_dim"]):
            # A dim that never moves has no error that matters.
            if bound is not None and dim not in trial["constant_dims"] and not rmse <= bound:
                name = trial["names"][dim] if trial["names"] else dim
                yield f"RMSE {rmse:.4g} of dim {name} is over max_dim_rmse={bound:g}"
        lengths = {int(n): count for n, count in trial["tokens"]["chunks_by_length"].items()}
        budget = self.max_tokens
        if budget is not None and max(lengths) > budget:
            over = sum(count for length, count in lengths.items() if length > budget)
            share = over / trial["chunks"]
            yield f"{share:.1%} of chunks take over max_tokens={budget}, up to {max(lengths)}"


def _of_the_fit(report: Mapping[str, Any]) -> dict[str, Any]:
    """Give what the report says of the fitted chunks, as it says it of others."""
    reconstruction, norm = report["reconstruction"], report["normalization"]
    by_dim = reconstruction["normalized"]["rms"]
    return {
        "held_out": False,
        "chunks": reconstruction["chunks"],
        "names": norm.get("dim_names"),
        "constant_dims": norm["constant_dims"],
        "normalized": {
            "rmse": math.sqrt(sum(rms**2 for rms in by_dim) / len(by_dim)),
            "rmse_by_dim": by_dim,
        },
        "tokens": report["tokens"],
    }
