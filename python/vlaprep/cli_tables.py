"""What `vlaprep.jobs` and `vlaprep.demo` tell, as tables that a person wants to read.

Nothing here prints. Texts of a dataset are shown without control characters: they may come from
anywhere, and a terminal obeys them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from vlaprep.dataset import Finding

__all__ = ["demo_tables", "finding_lines", "fit_tables", "printable", "speed_tables"]

MAX_TASKS = 40
"""Tasks shown; of more, those with most episodes."""

_BARS = "▁▂▃▄▅▆▇█"
_STATES = {
    "written": ("written", "would be written"),
    "extended": ("tasks added", "tasks would be added"),
    "kept": ("kept as it was", "would be kept as it is"),
    "replaced": ("replaced", "would be replaced"),
    "unwritable": ("could not be written", ""),
    "absent": ("not written: no episode has a task",) * 2,
}


def printable(text: str) -> str:
    r"""Replace what a terminal might obey by "�"; lines and tabs stay.

    Examples
    --------
    >>> printable("wipe\x1b[2Jthe table")
    'wipe�[2Jthe table'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)


def speed_tables(result: Mapping[str, Any]) -> RenderableType:
    """Show what `vlaprep.jobs.run_speed` told."""
    tasks = result["tasks"]
    shown = sorted(tasks, key=lambda task: -task["episodes"])[:MAX_TASKS]
    table = _table(
        ("task", "right", str(len(tasks)) if len(tasks) > 1 else ""),
        ("text", "shrink", "tasks" if len(tasks) > 1 else ""),
        ("episodes", "right", _count(result["episodes"])),
        ("frames", "right", _count(result["frames"])),
        ("min", "right", ""),
        ("median", "right", ""),
        ("max", "right", ""),
        ("p5 … p95", "right", ""),
        ("labels", "left", _bars(result["labels"])),
    )
    for task in sorted(shown, key=lambda task: task["task_index"]):
        table.add_row(
            str(task["task_index"]),
            Text(_line(task["task"]), no_wrap=True, overflow="ellipsis"),
            _count(task["episodes"]),
            _count(task["frames"]),
            _count(task["shortest"]),
            f"{task['median']:,.4g}" if task["median"] < 1000 else f"{task['median']:,.0f}",
            _count(task["longest"]),
            _boundaries(task["percentiles"]),
            _bars(task["labels"]),
        )
    return Group(
        _heading(f"Speed labels of {_count(result['episodes'])} episodes"),
        table,
        *map(_note, _speed_notes(result, len(tasks) - len(shown))),
        Text(""),
        _facts([("boundaries", f"{result['file']['path']} ({_file_state(result['file'])})")]),
    )


def _speed_notes(result: Mapping[str, Any], hidden: int) -> Iterable[str]:
    if hidden:
        yield f"and {hidden:,} tasks of fewer episodes, which --json lists"
    if result["unresolved_episodes"]:
        yield f"{result['unresolved_episodes']:,} episodes have no known task: label 50"
    unit = "lengths in frames" + (f" ({result['fps']:g} a second)" if result["fps"] else "")
    yield f"{unit}; labels: how many got 0 (fast), … 100 (slow)"
    if any(task["percentiles"] is None for task in result["tasks"]):
        yield "sparse: fewer than 10 distinct lengths, so every episode gets label 50"


def _boundaries(percentiles: Sequence[float] | None) -> str:
    return "sparse" if percentiles is None else f"{percentiles[0]:.0f} … {percentiles[-1]:.0f}"


def _file_state(file: Mapping[str, Any]) -> str:
    words = _STATES[file["state"]][file["dry_run"]]
    before = file["episodes_before"]
    if file["state"] == "replaced":
        return f"{words}; it was " + ("unreadable" if before is None else f"made from {before:,}")
    return f"{words}, though stale: made from {before:,} episodes" if file["stale"] else words


def finding_lines(findings: Sequence[Finding]) -> Iterable[RenderableType]:
    """Show what `vlaprep.Dataset.check` found."""
    if findings:
        yield Text("")
        yield _heading("Findings")
        yield _facts([(finding.kind, finding.message) for finding in findings])


def fit_tables(result: Mapping[str, Any], dims: Sequence[str] | None = None) -> RenderableType:
    """Show what `vlaprep.jobs.run_fit` told; `dims` are names, where they are at hand."""
    draws, tokens = result["draws"], result["tokens"]
    horizon, dim = draws["time_horizon"], draws["action_dim"]
    per_chunk = tokens["per_chunk"]
    facts = {
        "fitted on": f"{draws['chunks']:,} chunks of {horizon} frames, {dim} dims each, drawn from "
        f"{draws['episodes']:,} episodes",
        "left out": ", ".join(_left_out(draws)),
        "vocabulary": f"{_count(tokens['vocabulary'])} tokens; coefficients from "
        f"{tokens['min_token']} to {tokens['max_token']}",
        "a chunk": f"{horizon * dim:,} numbers become {per_chunk['mean']:.1f} tokens on average: "
        f"{tokens['symbols_per_token']:.1f} numbers a token",
        "tokens": f"median {per_chunk['p50']:.0f}, p99 {per_chunk['p99']:.0f}, "
        f"at most {per_chunk['max']} a chunk",
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


def _dim_table(result: Mapping[str, Any], dims: Sequence[str] | None) -> Table:
    norm, errors = result["normalization"], result["reconstruction"]["dataset_units"]
    numbers = ("q01", "q99", "clipped", "rms error", "p99 error", "max error")
    table = _table(("dim", "shrink", ""), *((name, "right", "") for name in numbers))
    columns = (norm["lo"], norm["hi"], norm["clipped_fraction"], *errors.values())
    for dim, (low, high, clipped, *error) in enumerate(zip(*columns, strict=True)):
        name = _line(dims[dim]) if dims else str(dim)
        if dim in norm["constant_dims"]:
            name += " (constant)"
        table.add_row(
            name, *(f"{x:.4g}" for x in (low, high)), f"{clipped:.1%}", *(f"{x:.4g}" for x in error)
        )
    return table


def demo_tables(result: Mapping[str, Any]) -> RenderableType:
    """Show what `vlaprep.demo.run_demo` told."""
    speed, fit, trip = result["speed"], result["fit"], result["round_trip"]
    sparse = sum(task["percentiles"] is None for task in speed["tasks"])
    worst = max(range(len(trip["range"])), key=lambda i: trip["rms_error"][i] / trip["range"][i])
    share = trip["rms_error"][worst] / trip["range"][worst]
    steps = {
        "dataset": f"{speed['episodes']:,} episodes, {speed['frames']:,} frames, "
        f"{len(speed['tasks'])} tasks",
        "speed": f"{len(speed['tasks']) - sparse} tasks ranked, {sparse} too sparse to rank",
        "fit": f"{fit['draws']['chunks']:,} chunks, "
        + ("found in the cache" if fit["cached"] else f"{fit['tokens']['vocabulary']:,} tokens"),
        "encode": f"{trip['chunks']:,} chunks not drawn for the fit, "
        f"{trip['values'] / trip['tokens']:.1f} numbers a token",
        "decode": f"rms error at most {share:.2%} of a dim's range ({trip['dims'][worst]})",
    }
    table = _table(("step", "left", ""), ("outcome", "shrink", ""), ("seconds", "right", ""))
    for name, outcome in steps.items():
        table.add_row(name, outcome, f"{result['seconds'][name]:.2f}")
    wrote = {
        "dataset": result["dataset"],
        "boundaries": speed["file"]["path"],
        "tokenizer": fit["folder"],
    }
    return Group(_heading("Both jobs, end to end"), table, Text(""), _facts(wrote.items()))


# ------------------------------------------------------------------------------------ pieces


def _table(*columns: tuple[str, Literal["left", "right", "shrink"], str]) -> Table:
    """Make an empty table of (header, kind, footer). Where it is too wide, "shrink" gives way."""
    table = Table(
        box=box.SIMPLE_HEAD,
        show_footer=any(footer for _, _, footer in columns),
        pad_edge=False,
        collapse_padding=True,
        header_style="bold",
        footer_style="bold",
    )
    for header, kind, footer in columns:
        shrinks = kind == "shrink"
        justify = "left" if kind == "shrink" else kind
        table.add_column(header, footer, justify=justify, no_wrap=not shrinks)
    return table


def _facts(facts: Iterable[tuple[str, str]]) -> Text:
    """Show names and values, a line each; never broken or cut, so that paths can be copied."""
    facts = list(facts)
    width = max(len(name) for name, _ in facts)
    lines = (
        Text.assemble((f"{name:<{width}}  ", "bold"), printable(value)) for name, value in facts
    )
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _note(text: str) -> Text:
    return Text(text, style="dim")


def _line(text: str) -> str:
    return printable(" ".join(text.split()))


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _bars(labels: Mapping[str, int]) -> str:
    """Draw a histogram, a character a label; an empty label is a space."""
    most = max(1, *labels.values())
    return "".join(_BARS[-(-8 * n // most) - 1] if n else " " for n in labels.values())
