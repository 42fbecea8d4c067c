"""What `vlaprep.jobs.run_fit` told, as tables for people. Nothing here prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from vlaprep.cli_tables import _count, _facts, _heading, _line, _note, _table
from vlaprep.conventions import STATISTICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["fit_tables"]


def fit_tables(result: Mapping[str, Any], dims: Sequence[str] | None = None) -> RenderableType:
    """Show what `vlaprep.jobs.run_fit` told; `dims` are names, where they are at hand."""
    draws, tokens = result["draws"], result["tokens"]
    horizon, dim = draws["time_horizon"], draws["action_dim"]
    per_chunk = tokens["per_chunk"]
    facts = {
        "fitted on": f"{draws['chunks']:,} chunks of {horizon} frames, {dim} dims each, drawn from "
        f"{draws['episodes']:,} episodes",
        "left out": ", ".join(_left_out(draws)),
        "coverage": _coverage(result.get("coverage")),
        "vocabulary": f"{_count(tokens['vocabulary'])} tokens; coefficients from "
        f"{tokens['min_token']} to {tokens['max_token']}",
        "a chunk": f"{horizon * dim:,} numbers become {per_chunk['mean']:.1f} tokens on average: "
        f"{tokens['symbols_per_token']:.1f} numbers a token",
        "tokens": f"median {per_chunk['p50']:.0f}, p99 {per_chunk['p99']:.0f}, "
        f"at most {per_chunk['max']} a chunk",
        "normalised": _normalised(result["normalization"]),
        "tried on": _trial(result["validation"]),
        "error": _error(result["validation"]),
        "exact": _exact(result["validation"]),
        "over budget": _over_budget(result["over_budget"]),
        "folder": result["folder"],
    }
    found = "found in the cache" if result["cached"] else "fitted now"
    return Group(
        _heading(f"Action tokenizer {result['signature']} ({found})"),
        Text(""),
        _facts((key, value) for key, value in facts.items() if value),
        _dim_table(result, dims),
        _note(
            f"in dataset units; errors of {result['reconstruction']['chunks']:,} chunks "
            "encoded and decoded, clipping included"
        ),
    )


def _left_out(draws: Mapping[str, Any]) -> Iterable[str]:
    if draws["episodes_too_short"]:
        yield f"{draws['episodes_too_short']:,} episodes that are too short"
    if draws["windows_skipped"]:
        yield f"{draws['windows_skipped']:,} windows that are not finite"


def _coverage(told: Mapping[str, Any] | None) -> str:
    if told is None:
        return ""
    return f"all {told['windows']:,} windows, by {len(told['chunks_added']):,} beside the draws"


def _dim_table(result: Mapping[str, Any], dims: Sequence[str] | None) -> Table:
    norm, errors = result["normalization"], result["reconstruction"]["dataset_units"]
    statistics = [norm[end] for end in ("lo", "hi") if norm[end]]
    numbers = (*STATISTICS[norm["mode"]], "clipped", "rms error", "p99 error", "max error")
    table = _table(("dim", "shrink", ""), *((name, "right", "") for name in numbers))
    columns = (norm["clipped_fraction"], *errors.values())
    dims = dims or norm.get("dim_names")
    for dim, (clipped, *error) in enumerate(zip(*columns, strict=True)):
        name = _line(dims[dim]) if dims else str(dim)
        if dim in norm["constant_dims"]:
            name += " (constant)"
        table.add_row(
            name,
            *(f"{values[dim]:.4g}" for values in statistics),
            f"{clipped:.1%}",
            *(f"{x:.4g}" for x in error),
        )
    return table


def _normalised(norm: Mapping[str, Any]) -> str:
    relative = sum(norm.get("relative") or [])
    return f"{norm['mode']} as {norm['convention']} does" + (
        f", {relative} dims relative to the state" if relative else ""
    )


def _trial(trial: Mapping[str, Any] | None) -> str:
    if trial is None:
        return "nothing"
    chunks, episodes = f"{trial['chunks']:,}", f"{trial['episodes']:,}"
    if trial["held_out"]:
        return f"{chunks} chunks of {episodes} held-out episodes"
    return f"{chunks} further chunks of the same {episodes} episodes: none was held out"


def _over_budget(share: float | None) -> str:
    return "" if share is None else f"{share:.1%} of those chunks"


def _error(trial: Mapping[str, Any] | None) -> str:
    if trial is None:
        return ""
    worst = max(trial["normalized"]["rmse_by_dim"])
    return f"RMSE {trial['normalized']['rmse']:.4f} normalised, {worst:.4f} in the worst dim"


def _exact(trial: Mapping[str, Any] | None) -> str:
    if trial is None:
        return ""
    longest = trial["tokens"]["max"]
    return f"{trial['exact_symbols']:.2%} of coefficients; at most {longest} tokens a chunk"
