"""What `vlaprep.jobs`, `vlaprep.inspection` and `vlaprep.demo` tell, as tables for people.

Nothing here prints. Texts of a dataset are shown without control characters: they may come from
anywhere, and a terminal obeys them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from vlaprep.dataset import Finding

__all__ = [
    "demo_tables",
    "description_tables",
    "finding_lines",
    "printable",
    "speed_tables",
    "statistics_tables",
]

MAX_TASKS = 40
"""Tasks shown; of more, those with most episodes."""

MAX_DIMS = 64
"""Dims shown of a column; of more, the first."""

_BARS = "▁▂▃▄▅▆▇█"
_PARTS = "▏▎▍▌▋▊▉█"  # eighths of a bar that lies
_BAR_WIDTH = 32
_LAYOUTS = {"v2": "one file an episode", "v3": "many episodes a file"}
_MARKS = {"nan": "NaN"}
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
            _length(task["median"]),
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


def description_tables(about: Mapping[str, Any], *, show_all: bool = False) -> RenderableType:
    """Show what `vlaprep.inspection.describe` told."""
    version = about["codebase_version"] or "version unknown"
    facts = {
        "revision": about["revision"],
        "root": about["root"],
        "layout": f"{version}: {_LAYOUTS.get(about['layout'], about['layout'])}",
        "frame rate": "unknown" if about["fps"] is None else f"{about['fps']:g} a second",
        "data files": f"{_count(about['files']['count'])}, {_size(about['files']['bytes'])}",
        "episodes": _counted(about, "episodes"),
        "frames": _counted(about, "frames"),
        "duration": None if about["duration_s"] is None else _duration(about["duration_s"]),
    }
    return Group(
        _heading(f"Dataset {printable(about['dataset'])}"),
        Text(""),
        _facts((name, value) for name, value in facts.items() if value is not None),
        Text(""),
        _heading("Columns"),
        *_column_tables(about["columns"]),
        Text(""),
        _heading("Tasks"),
        *_task_tables(about, show_all=show_all),
        Text(""),
        _heading("Lengths of episodes"),
        *_length_tables(about["lengths"], about["fps"]),
        Text(""),
        _heading("Findings"),
        *_finding_tables(about["findings"]),
    )


def _counted(about: Mapping[str, Any], what: str) -> str:
    written = about["counters"][f"total_{what}"]
    differs = written not in (None, about[what])
    return _count(about[what]) + (f" (meta/info.json: {written:,})" if differs else "")


def _column_tables(columns: Sequence[Mapping[str, Any]]) -> Iterable[RenderableType]:
    kinds: tuple[Literal["left", "right", "shrink"], ...] = ("left", "left", "right", "shrink")
    headers = ("column", "dtype", "shape", "dims")
    table = _table(*((header, kind, "") for header, kind in zip(headers, kinds, strict=True)))
    for column in columns:
        shape = column["shape"]
        table.add_row(
            _line(column["name"]),
            _line(column["dtype"]) or "?",
            "?" if shape is None else " x ".join(map(str, shape)) or "1",
            Text(_line(", ".join(column["names"] or [])), no_wrap=True, overflow="ellipsis"),
        )
    yield table
    if elsewhere := [_line(c["name"]) for c in columns if not c["in_files"]]:
        yield _note(f"not in the data files: {', '.join(elsewhere)}")
    if unknown := [_line(c["name"]) for c in columns if c["shape"] is None]:
        yield _note(f"not described in meta/info.json: {', '.join(unknown)}")


def _task_tables(about: Mapping[str, Any], *, show_all: bool) -> Iterable[RenderableType]:
    used = [task for task in about["tasks"] if task["episodes"]]
    shown = sorted(used, key=lambda task: -task["episodes"])[: None if show_all else MAX_TASKS]
    if used:
        table = _table(
            ("task", "right", str(len(used)) if len(used) > 1 else ""),
            ("text", "shrink", "tasks" if len(used) > 1 else ""),
            ("episodes", "right", _count(sum(task["episodes"] for task in used))),
            ("frames", "right", _count(sum(task["frames"] for task in used))),
            *((name, "right", "") for name in ("shortest", "median", "longest")),
        )
        for task in sorted(shown, key=lambda task: task["task_index"]):
            table.add_row(
                str(task["task_index"]),
                Text(_line(task["task"]), no_wrap=True, overflow="ellipsis"),
                *(_count(task[name]) for name in ("episodes", "frames", "shortest")),
                _length(task["median"]),
                _count(task["longest"]),
            )
        yield table
    if hidden := len(used) - len(shown):
        yield _note(f"and {hidden:,} tasks of fewer episodes, which --all lists")
    if unused := len(about["tasks"]) - len(used):
        yield _note(f"{unused:,} more are defined and have no episode here")
    if about["unresolved_episodes"]:
        yield _note(f"{about['unresolved_episodes']:,} episodes have no known task")


def _length_tables(lengths: Mapping[str, Any], fps: float | None) -> Iterable[RenderableType]:
    names = ("min", "p5", "median", "p95", "max", "mean")
    table = _table(("", "left", ""), *((name, "right", "") for name in names))
    table.add_row("frames", *(_length(lengths[name]) for name in names))
    if fps:
        table.add_row("seconds", *(f"{lengths[name] / fps:,.1f}" for name in names))
    yield table
    edges, counts = lengths["histogram"]["edges"], lengths["histogram"]["counts"]
    bars = _table(("frames", "right", ""), ("episodes", "right", ""), ("", "left", ""))
    for low, end, count in zip(edges, edges[1:], counts, strict=False):
        span = f"{low:,}" if end - low == 1 else f"{low:,} to {end - 1:,}"
        bars.add_row(span, _count(count), _lying_bar(count / max(counts)))
    yield bars


def _finding_tables(findings: Sequence[Mapping[str, Any]]) -> Iterable[RenderableType]:
    if not findings:
        yield _note("none: metadata and rows agree")
        return
    lines = (
        (finding["kind"], ("warning: " if finding["warning"] else "note: ") + finding["message"])
        for finding in findings
    )
    yield Text("")
    yield _facts(lines)
    if any(finding["warning"] for finding in findings):
        yield _note("a warning: labels, draws or statistics may not be what you expect")
    if not all(finding["warning"] for finding in findings):
        yield _note("a note: metadata is wrong where the rows decide, so results are right")


def statistics_tables(stats: Mapping[str, Any], *, show_all: bool = False) -> RenderableType:
    """Show what `vlaprep.inspection.statistics` told of one column."""
    dims = stats["dims"][: None if show_all else MAX_DIMS]
    hidden = len(stats["dims"]) - len(dims)
    size = f"{len(stats['dims']):,} dim" + ("s" if len(stats["dims"]) != 1 else "")
    note = f"the first {MAX_DIMS} dims; --all lists {hidden:,} more" if hidden else ""
    return Group(
        _heading(f"Statistics of {_line(stats['column'])}: {stats['rows']:,} frames, {size}"),
        _FirstThatFits(
            _spread_table(dims, note, digits=4),
            _spread_table(dims, note, digits=3),
            *(
                _spread_table(dims, note, digits=3, names=20, without=without)
                for without in ((), ("q10", "q90"), ("q01", "q10", "q90", "q99"))
            ),
        ),
    )


def _spread_table(
    dims: Sequence[Mapping[str, Any]],
    note: str,
    *,
    digits: int,
    names: int | None = None,
    without: Sequence[str] = (),
) -> RenderableType:
    """Show the numbers of each dim, its name folded to a width, some of them left out."""
    keys: Iterable[str] = dims[0] if dims else ()
    numbers = [key for key in keys if key not in ("dim", "name", "marks", *without)]
    table = _table(("dim", "shrink", ""), *((name, "right", "") for name in numbers))
    table.columns[0].max_width, table.columns[0].min_width = names, 8
    for dim in dims:
        name = str(dim["dim"]) if dim["name"] is None else _line(dim["name"])
        marks = ", ".join(_MARKS.get(mark, mark) for mark in dim["marks"])
        text = Text.assemble(name, (f" {marks}" if marks else "", "yellow"), overflow="fold")
        table.add_row(text, *(_number(dim[key], digits) for key in numbers))
    notes = [note, f"a wider terminal shows {', '.join(without)}" if without else ""]
    return Group(table, *(_note(text) for text in notes if text))


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


class _FirstThatFits:
    """The first of several forms that is no wider than the terminal; else the last."""

    def __init__(self, *forms: RenderableType) -> None:
        self._forms = forms

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded = options.update(width=100_000)
        for form in self._forms[:-1]:
            if Measurement.get(console, unbounded, form).maximum <= options.max_width:
                yield form
                return
        yield self._forms[-1]


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _note(text: str) -> Text:
    return Text(text, style="dim")


def _line(text: str) -> str:
    return printable(" ".join(text.split()))


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _length(frames: float) -> str:
    return f"{frames:,.4g}" if frames < 1000 else f"{frames:,.0f}"


def _number(value: float | None, digits: int) -> str:
    """Write a value with so many digits; one that is not finite is a dash."""
    if value is None:
        return "—"
    large = 10**digits <= abs(value) < 1e7
    return f"{value:,.0f}" if large else f"{value + 0.0:.{digits}g}"  # -0.0 + 0.0 is 0.0


def _size(count: int) -> str:
    """Write a number of bytes as disks are sold: a kB is 1,000.

    Examples
    --------
    >>> _size(999), _size(323_620), _size(41_000_000_000)
    ('999 bytes', '324 kB', '41 GB')
    """
    if count < 1000:
        return f"{count} bytes"
    size = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1000
        if size < 999.5 or unit == "TB":
            break
    return f"{size:.3g} {unit}" if size < 999.5 else f"{size:,.0f} {unit}"


def _duration(seconds: float) -> str:
    """Write a time in its two largest units.

    Examples
    --------
    >>> _duration(6.82), _duration(121.3), _duration(93_784)
    ('6.8 s', '2 min 1 s', '26 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s"
    hours, rest = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {rest} min"


def _lying_bar(share: float) -> str:
    """Draw a share of the full width; what is not nothing is seen."""
    eighths = round(share * _BAR_WIDTH * 8) or (share > 0)
    whole, rest = divmod(int(eighths), 8)
    return "█" * whole + (_PARTS[rest - 1] if rest else "")


def _bars(labels: Mapping[str, int]) -> str:
    """Draw a histogram, a character a label; an empty label is a space."""
    most = max(1, *labels.values())
    return "".join(_BARS[-(-8 * n // most) - 1] if n else " " for n in labels.values())
