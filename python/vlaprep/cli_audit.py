"""What `vlaprep.audit` tells, as tables for people. Nothing here prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from vlaprep.cli_tables import _count, _facts, _heading, _note, _table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

__all__ = ["audit_tables"]

MAX_EPISODES = 20
"""Episodes shown; of more, those with most windows that are lost."""
MAX_MISSING = 12
"""Coefficients shown that are lacking; of more, the first."""

_ORIGINS = {
    "stored": "as stored beside the tokenizer",
    "sample": "by the 1 % and 99 % quantiles of a sample",
    "none": "none: the actions as they are",
    "given": "as given",
}


def audit_tables(audit: Mapping[str, Any]) -> RenderableType:
    """Show what `vlaprep.audit.Audit.to_dict` gives."""
    facts = {
        "tokenizer": f"{audit['tokenizer']}; coefficients from {audit['min_token']} to "
        f"{audit['max_token']}, {audit['scale']:g} steps a unit",
        "normalised": _ORIGINS[audit["normalization"]],
        "windows": f"{_count(audit['windows'])} of {audit['chunk_size']} frames, "
        f"{audit['action_dim']} dims each, in {_count(audit['episodes'])} episodes",
        "left out": ", ".join(_left_out(audit)),
        "exact": f"{_count(audit['windows'] - audit['unencodable'])} of "
        f"{_count(audit['windows'])} windows",
        "not exact": _lost(audit),
        "lacking": _missing(audit["missing"]),
    }
    return Group(
        _heading(f"Audit of {audit['dataset']}"),
        Text(""),
        _facts((key, value) for key, value in facts.items() if value),
        *_episodes(audit["by_episode"]),
    )


def _left_out(audit: Mapping[str, Any]) -> Iterable[str]:
    if audit["windows_skipped"]:
        yield f"{_count(audit['windows_skipped'])} windows with NaN, infinity or null"
    if audit["episodes_too_short"]:
        yield f"{_count(audit['episodes_too_short'])} episodes that are too short"


def _lost(audit: Mapping[str, Any]) -> str:
    if not audit["unencodable"]:
        return ""
    return (
        f"{_count(audit['unencodable'])} of {_count(audit['windows'])} windows "
        f"({100 * audit['share']:.3g} %), in {_count(len(audit['by_episode']))} episodes"
    )


def _missing(missing: Sequence[Mapping[str, Any]]) -> str:
    shown = ", ".join(str(one["coefficient"]) for one in missing[:MAX_MISSING])
    return shown + (f", … ({len(missing)} in all)" if len(missing) > MAX_MISSING else "")


def _episodes(episodes: Sequence[Mapping[str, Any]]) -> Iterable[RenderableType]:
    if not episodes:
        return
    table = _table(
        ("episode", "right", ""),
        ("not exact", "right", ""),
        ("windows", "right", ""),
        ("share", "right", ""),
        ("first at frame", "right", ""),
    )
    worst = sorted(episodes, key=lambda episode: -episode["unencodable"])[:MAX_EPISODES]
    for episode in worst:
        lost, windows = episode["unencodable"], episode["windows"]
        table.add_row(
            str(episode["episode_index"]),
            _count(lost),
            _count(windows),
            f"{100 * lost / windows:.3g} %",
            _count(episode["first_start"]),
        )
    yield table
    if len(episodes) > len(worst):
        yield _note(f"{len(episodes) - len(worst)} more episodes: --json lists all")
    yield _note(
        "not exact: encoding moves or loses a coefficient; fit anew with --coverage all to keep all"
    )
