"""What `vlaprep.advice` tells, as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from vlaprep.cli_tables import MAX_DIMS, _facts, _heading, _line, _note, _number, _table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["advice_tables"]


def advice_tables(advice: Mapping[str, Any]) -> RenderableType:
    """Show what `vlaprep.advice.Advice.to_dict` tells."""
    hidden = len(advice["dims"]) - MAX_DIMS
    chosen = (
        [("scale", f"{advice['scale']:g}"), ("vocabulary", f"{advice['vocab_size']:,}")]
        if advice["scale"] is not None
        else [("scale", "none to recommend")]
    )
    return Group(
        _heading(
            f"Scales and vocabularies for {advice['chunks']:,} chunks of {advice['chunk_size']} "
            f"frames, {len(advice['dims'])} dims each"
        ),
        _scale_table(advice),
        _note("start: entries before any merge; dead: those that no text of these chunks can use"),
        _note("RMSE in normalised units, of rounding alone"),
        Text(""),
        _heading("Tokens a chunk, about, by vocabulary"),
        _token_table(advice),
        _note("nine in ten fits lie between 0.74 and 1.18 times the estimate; in brackets: dead"),
        _note("—: cannot hold the range; !: no room for a merge, and larger than asked"),
        Text(""),
        _heading("RMSE by dim, in units of the dataset"),
        _dim_table(advice),
        *([_note(f"the first {MAX_DIMS} dims; --json lists {hidden:,} more")] * (hidden > 0)),
        _note("clipping: what no scale gives back, on top of rounding"),
        Text(""),
        _heading("Recommendation"),
        Text(""),
        _facts(chosen),
        Text(advice["reason"]),
    )


def _scale_table(advice: Mapping[str, Any]) -> Table:
    names = ("scale", "coefficients", "alphabet", "start", "dead", "RMSE", "words", "bytes")
    table = _table(*((name, "right", "") for name in names))
    for row in advice["scales"]:
        table.add_row(
            f"{row['scale']:g}",
            f"{row['min_token']} … {row['max_token']}",
            *(f"{row[name]:,}" for name in ("alphabet_size", "start_size", "dead_entries")),
            _number(row["rmse"], 3),
            _number(row["words"], 3),
            _number(row["bytes"], 3),
        )
    return table


def _token_table(advice: Mapping[str, Any]) -> Table:
    sizes = advice["vocab_sizes"]
    table = _table(("scale", "right", ""), *((f"{size:,}", "right", "") for size in sizes))
    for row in advice["scales"]:
        cells = []
        for held, merges, tokens, share in zip(
            row["holds"], row["merges"], row["tokens"], row["dead_share"], strict=True
        ):
            told = f"{_number(tokens, 3)} ({share:.0%})" if held else "—"
            cells.append(told + (" !" if held and not merges else ""))
        table.add_row(f"{row['scale']:g}", *cells)
    return table


def _dim_table(advice: Mapping[str, Any]) -> Table:
    scales = advice["scales"]
    headers = ("clipping", *(f"scale {row['scale']:g}" for row in scales))
    table = _table(("dim", "shrink", ""), *((name, "right", "") for name in headers))
    columns = (advice["clipping_rmse_units"], *(row["dim_rmse_units"] for row in scales))
    for name, *numbers in list(zip(advice["dims"], *columns, strict=True))[:MAX_DIMS]:
        table.add_row(_line(name), *(_number(number, 3) for number in numbers))
    return table
