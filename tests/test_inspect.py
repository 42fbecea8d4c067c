"""`vlaprep inspect`: what it tells of a dataset, to people and to programs."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import termios
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vlaprep
from case_table import DATASETS, VARIANTS
from command_line import CLEAN, COMMAND, execute, run, run_json
from hub_server import Repo, folder_files, serve
from lerobot_folder import (
    TASKS,
    file_name,
    list_array,
    make_rows,
    to_table,
    write_meta,
    write_v2,
    write_v3,
)
from vlaprep import cli_tables, inspection

ROWS = make_rows({0: (0, 9), 1: (1, 5), 4: (0, 12)}, dim=3)
FEATURES = {
    "action": {"dtype": "float32", "shape": [3], "names": ["x", "y", "grip"]},
    "observation.images.top": {"dtype": "video", "shape": [48, 64, 3], "names": None},
}
KEYS = {
    *("format_version", "command", "dataset", "revision", "root", "codebase_version", "layout"),
    *("fps", "files", "episodes", "frames", "duration_s", "counters", "columns", "tasks"),
    *("unresolved_episodes", "lengths", "findings", "statistics", "warnings"),
}
TASK_KEYS = {
    *("task_index", "task", "episodes", "frames", "shortest", "median", "longest"),
    "distinct_lengths",
}
NUMBERS = ["min", "q01", "q10", "q50", "q90", "q99", "max", "mean", "std"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Three episodes of two tasks."""
    root = write_v3(tmp_path / "small", ROWS)
    counters = {"total_episodes": 3, "total_frames": 26}
    return write_meta(root, fps=20, features=FEATURES, **counters)


def with_actions(root: Path, column: Any) -> Path:
    """The same episodes with other actions."""
    return write_v3(root, to_table(ROWS, action=column))


def dims_of(root: Path, column: str = "action") -> list[dict[str, Any]]:
    """Statistics of one column."""
    (told,) = run_json("inspect", root, "--column", column)["statistics"]
    assert told["column"] == column
    return told["dims"]


# --------------------------------------------------------------------------------- for programs


def test_all_of_it_in_one_object(small: Path) -> None:
    told = run_json("inspect", small)
    assert set(told) == KEYS
    assert (told["dataset"], told["root"], told["revision"]) == (str(small), str(small), None)
    assert (told["codebase_version"], told["layout"], told["fps"]) == ("v3.0", "v3", 20)
    size = (small / file_name(0)).stat().st_size
    assert told["files"] == {"count": 1, "bytes": size}
    assert (told["episodes"], told["frames"], told["duration_s"]) == (3, 26, 1.3)
    assert told["counters"] == {"total_episodes": 3, "total_frames": 26}
    assert (told["unresolved_episodes"], told["findings"], told["warnings"]) == (0, [], [])
    (stats,) = told["statistics"]  # there is no observation.state
    assert (set(stats), stats["column"], stats["rows"]) == (
        {"column", "rows", "dims"},
        "action",
        26,
    )


def test_columns_are_those_of_the_files_and_of_the_metadata(small: Path) -> None:
    columns = {c.pop("name"): c for c in run_json("inspect", small, "--no-stats")["columns"]}
    assert list(columns) == [*ROWS, "observation.images.top"]
    assert columns["action"] == {**FEATURES["action"], "in_files": True}
    assert columns["observation.images.top"] == {
        **FEATURES["observation.images.top"],
        "in_files": False,
    }
    assert columns["index"] == {"dtype": "", "shape": None, "names": None, "in_files": True}


def test_tasks_are_summed_up_and_those_without_an_episode_are_there(small: Path) -> None:
    tasks = run_json("inspect", small, "--no-stats")["tasks"]
    assert all(set(task) == TASK_KEYS for task in tasks)
    rows = [[task[key] for key in sorted(TASK_KEYS - {"task"})] for task in tasks]
    # distinct lengths, episodes, frames, longest, median, shortest, task_index
    assert rows == [
        [2, 2, 21, 12, 10.5, 9, 0],
        [1, 1, 5, 5, 5.0, 5, 1],
        [0, 0, 0, None, None, None, 5],
    ]
    assert [task["task"] for task in tasks] == list(TASKS.values())


def test_statistics_are_those_of_the_library(root: Path) -> None:
    q = tuple(inspection.QUANTILES.values())
    opened = vlaprep.open_dataset(root)
    told = run_json("inspect", root)["statistics"]
    assert [stats["column"] for stats in told] == ["action", "observation.state"]
    for stats in told:
        known = opened.stats(stats["column"], q=q)[stats["column"]]
        expected = [known.min, *known.quantiles, known.max, known.mean, known.std]
        for number, values in zip(NUMBERS, expected, strict=True):
            assert [dim[number] for dim in stats["dims"]] == values.tolist()
        assert stats["rows"] == known.count == int(opened.episodes.length.sum())
        assert [dim["name"] for dim in stats["dims"]] == opened.feature_names(stats["column"])
        assert [list(dim) for dim in stats["dims"]] == [
            ["dim", "name", *NUMBERS, "marks"] for _ in stats["dims"]
        ]


def test_statistics_are_near_those_of_numpy(small: Path) -> None:
    for dim, values in zip(dims_of(small), ROWS["action"].T.astype(np.float64), strict=True):
        quantiles = [np.quantile(values, q) for q in inspection.QUANTILES.values()]
        expected = [values.min(), *quantiles, values.max(), values.mean(), values.std()]
        np.testing.assert_allclose([dim[key] for key in NUMBERS], expected, rtol=1e-5, atol=1e-6)
        assert dim["marks"] == []


def test_constants_nan_and_infinity_are_marked_and_stay_json(tmp_path: Path) -> None:
    actions = np.column_stack([ROWS["action"], ROWS["action"][:, :1]])
    actions[:, 0] = 0.5
    actions[3, 1] = np.nan
    actions[4, 2] = -np.inf
    dims = dims_of(with_actions(tmp_path, list_array(actions)))
    assert [dim["marks"] for dim in dims] == [["constant"], ["nan"], ["infinite"], []]
    assert [dims[0][key] for key in NUMBERS] == [0.5] * 8 + [0.0]
    assert [dims[1][key] for key in NUMBERS] == [None] * 9
    assert (dims[2]["min"], dims[2]["max"]) == (None, float(actions[:, 2].max()))
    text = run("inspect", tmp_path, COLUMNS="120").stderr
    names = [line[:12].strip() for line in text[text.index(" dim ") :].splitlines()[2:6]]
    assert names == ["0 constant", "1 NaN", "2 infinite", "3"]


def test_a_null_vector_is_nan(tmp_path: Path) -> None:
    values = [None if row == 2 else vector for row, vector in enumerate(ROWS["action"].tolist())]
    dims = dims_of(with_actions(tmp_path, pa.array(values, pa.list_(pa.float32()))))
    assert [dim["marks"] for dim in dims] == [["nan"]] * 3


def test_scalars_and_integers_have_statistics_of_one_dim(small: Path) -> None:
    (dim,) = dims_of(small, "frame_index")
    assert (dim["dim"], dim["name"], dim["min"], dim["max"]) == (0, None, 0.0, 11.0)
    (dim,) = dims_of(small, "index")
    assert (dim["mean"], dim["q50"]) == (12.5, 12.5)
    (dim,) = dims_of(small, "task_index")
    assert (dim["max"], dim["marks"]) == (1.0, [])


def test_names_that_do_not_fit_the_dims_are_left_out(small: Path) -> None:
    write_meta(small, features={"action": {**FEATURES["action"], "names": ["x", "y"]}})
    assert [dim["name"] for dim in dims_of(small)] == [None] * 3


def test_columns_are_chosen_and_told_once(small: Path) -> None:
    chosen = ["--column", "index", "--column", "action", "--column", "index"]
    told = run_json("inspect", small, *chosen)["statistics"]
    assert [stats["column"] for stats in told] == ["index", "action"]


def test_without_statistics_no_page_is_read(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stats(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(vlaprep.Dataset, "stats", stats)
    assert run_json("inspect", small, "--no-stats")["statistics"] is None
    assert "Statistics" not in run("inspect", small, "--no-stats").stderr


def test_nothing_to_give_statistics_of_is_said(tmp_path: Path) -> None:
    root = write_v3(tmp_path, to_table(ROWS, action=None, actions=list_array(ROWS["action"])))
    assert run_json("inspect", root)["statistics"] == []
    assert "--column chooses" in run("inspect", root).stderr
    assert len(dims_of(root, "actions")) == 3


def test_a_selection_is_all_that_is_looked_at(small: Path) -> None:
    told = run_json("inspect", small, "--episodes", "1:2,4")
    assert (told["episodes"], told["frames"]) == (2, 17)
    assert told["statistics"][0]["rows"] == 17
    low = ROWS["action"][ROWS["episode_index"] > 0].min(axis=0)
    assert [dim["min"] for dim in told["statistics"][0]["dims"]] == low.tolist()
    assert "2 (meta/info.json: 3)" in run("inspect", small, "--episodes", "1:2,4").stderr


def test_without_a_task_file_tasks_have_no_text(small: Path) -> None:
    (small / "meta/tasks.parquet").unlink()
    told = run_json("inspect", small, "--no-stats")
    assert [(task["task_index"], task["task"]) for task in told["tasks"]] == [(0, ""), (1, "")]
    assert [(f["kind"], f["warning"]) for f in told["findings"]] == [("task-text", True)]


def test_without_info_what_is_unknown_is_null(tmp_path: Path) -> None:
    for layout, writer in {"v2": write_v2, "v3": write_v3}.items():
        root = writer(tmp_path / layout, ROWS)
        (root / "meta/info.json").unlink()
        told = run_json("inspect", root, "--no-stats")
        assert (told["codebase_version"], told["layout"]) == ("", layout)
        assert (told["fps"], told["duration_s"]) == (None, None)
        assert told["counters"] == {"total_episodes": None, "total_frames": None}
        text = run("inspect", root, "--no-stats").stderr
        assert "version unknown: " in text
        assert "seconds" not in text


def test_episodes_of_no_task_are_counted(small: Path) -> None:
    write_meta(small, tasks={1: "open the drawer"})
    told = run_json("inspect", small, "--no-stats")
    assert told["unresolved_episodes"] == 2
    assert [task["task_index"] for task in told["tasks"]] == [1]
    assert "2 episodes have no known task" in run("inspect", small, "--no-stats").stderr


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=80))
def test_a_histogram_counts_every_length_once(lengths: list[int]) -> None:
    told = inspection._lengths(np.array(lengths, np.int64))
    edges, counts = told["histogram"]["edges"], told["histogram"]["counts"]
    assert len(edges) == len(counts) + 1 <= 18
    assert edges[0] <= told["min"] == min(lengths)
    assert told["max"] == max(lengths) < edges[-1]
    assert len(set(np.diff(edges).tolist())) == 1
    assert counts == np.histogram(lengths, np.array(edges) - 0.5)[0].tolist()
    assert told["p95"] == np.percentile(lengths, 95)


def test_counts_and_sizes_of_many_files(tmp_path: Path) -> None:
    root = write_v2(tmp_path, ROWS)
    told = run_json("inspect", root, "--no-stats")
    data = list((root / "data").rglob("*.parquet"))
    assert told["files"] == {"count": 3, "bytes": sum(path.stat().st_size for path in data)}
    assert told["layout"] == "v2"


# ---------------------------------------------------------------------------------- exit codes


@pytest.fixture
def warned(small: Path) -> Path:
    """A dataset with one warning."""
    return write_meta(small, total_episodes=3, total_frames=99)


def test_strict_is_exit_code_3_where_a_finding_is_a_warning(warned: Path) -> None:
    assert run("inspect", warned).exit_code == 0
    for extra in ([], ["--no-stats"], ["--json"]):
        ran = run("inspect", warned, "--strict", *extra)
        assert ran.exit_code == 3
    (finding,) = json.loads(ran.stdout)["findings"]
    assert (finding["kind"], finding["warning"]) == ("fewer-rows", True)


def test_strict_lets_notes_pass(small: Path) -> None:
    write_meta(small, total_frames=20)  # there are more rows
    assert run("inspect", small, "--strict").exit_code == 0
    (finding,) = run_json("inspect", small, "--strict")["findings"]
    assert (finding["kind"], finding["warning"]) == ("counter", False)
    text = run("inspect", small).stderr
    assert "counter  note: " in text
    assert "a note: metadata is wrong" in text
    assert "a warning:" not in text


def test_a_warning_is_read_once_and_json_has_it_twice(warned: Path) -> None:
    text = run("inspect", warned).stderr
    message = run_json("inspect", warned)["findings"][0]["message"]
    assert text.count(message) == 1
    assert f"fewer-rows  warning: {message}" in text
    parsed = run("inspect", warned, "--json")
    assert message in parsed.stderr
    assert json.loads(parsed.stdout)["warnings"] == [f"{warned}: {message}"]


@pytest.mark.parametrize("column", ["nothing_of_the_kind", "text"])
def test_a_column_of_no_use_is_a_message_below_the_rest(column: str, tmp_path: Path) -> None:
    words = pa.array(["a"] * len(ROWS["index"]))
    root = write_v3(tmp_path, to_table(ROWS, text=words))
    ran = run("inspect", root, "--column", column)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.index("Lengths of episodes") < ran.stderr.index("\nerror: ")
    assert column in ran.stderr.split("\nerror: ")[1]
    parsed = run("inspect", root, "--column", column, "--json")
    assert (parsed.exit_code, parsed.stdout) == (1, "")


def test_broken_data_is_a_message_that_names_the_file(small: Path) -> None:
    path = small / file_name(1)
    shutil.copy(small / file_name(0), path)
    path.write_bytes(path.read_bytes()[:-40])
    ran = run("inspect", small, "--no-stats")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "error: " in ran.stderr
    assert "file-001.parquet" in ran.stderr


def test_rows_that_are_no_vectors_break_statistics_alone(tmp_path: Path) -> None:
    ragged = pa.array([[0.0] * (3 + (row == 7)) for row in range(26)], pa.list_(pa.float32()))
    root = with_actions(tmp_path, ragged)
    assert run("inspect", root).exit_code == 1
    assert run("inspect", root, "--no-stats").exit_code == 0


# ------------------------------------------------------------------------------------ for people


def test_people_read_stderr(small: Path) -> None:
    ran = execute("inspect", small, COLUMNS="100")
    assert (ran.returncode, ran.stdout) == (0, "")
    for text in ("v3.0: many episodes a file", "20 a second", "48 x 64 x 3", "x, y, grip"):
        assert text in ran.stderr
    for text in ("not in the data files: observation.images.top", "1.3 s", "none: metadata and"):
        assert text in ran.stderr
    assert "1 more are defined and have no episode here" in ran.stderr
    assert "Statistics of action: 26 frames, 3 dims" in ran.stderr


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Many tasks, many dims, long names, and a text that a terminal would obey."""
    rows = make_rows({e: (e % 300, 10 + e % 7) for e in range(400)}, dim=100)
    rows["action"] *= np.logspace(-9, 9, 100, dtype=np.float32)
    names = [f"left_shoulder_of_the_second_robot.{i}.pos" for i in range(100)]
    tasks = dict.fromkeys(range(300), "turn the left knob of the stove all the way to the right")
    features = {"action": {"dtype": "float32", "shape": [100], "names": names}}
    tasks[0], features["\x1b[2Jclear"] = "\x1b[2Jclear", {"dtype": "\x1b", "shape": [1]}
    return write_meta(write_v3(tmp_path / "wide", rows), tasks=tasks, features=features)


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_tables_fit_the_terminal(columns: int, wide: Path, root: Path) -> None:
    from rich.cells import cell_len

    for folder in (wide, root):
        text = run("inspect", folder, COLUMNS=str(columns)).stderr
        assert "\x1b" not in text
        tables = text[text.index("\nColumns\n") : text.index("\nFindings\n")]
        tables += text[text.index("\nStatistics of ") :]
        assert [line for line in tables.splitlines() if cell_len(line) > columns] == []
        assert "…" not in text[text.index("\nStatistics of ") :]
    assert "100" in text


def test_quantiles_give_way_on_a_narrow_terminal_and_names_do_not(small: Path) -> None:
    gone: dict[str, tuple[str, ...]] = {
        "120": (),
        "68": ("q10", "q90"),
        "55": ("q01", "q10", "q90", "q99"),
    }
    for columns, without in gone.items():
        text = run("inspect", small, COLUMNS=columns).stderr
        (header,) = re.findall(r"^ dim .*", text, re.MULTILINE)
        assert header.split()[1:] == [key for key in NUMBERS if key not in without]
        assert ("a wider terminal shows " + ", ".join(without) in text) is bool(without)
        assert re.search(r"^ grip +-?\d", text, re.MULTILINE)


def test_long_names_are_folded_and_never_lost(wide: Path) -> None:
    text = run("inspect", wide, COLUMNS="80").stderr
    table = text[text.index(" dim ") :]
    names = "".join(line[:21].strip() for line in table.splitlines()[2:])
    assert names.count("left_shoulder_of_the_second_robot.") == cli_tables.MAX_DIMS


def test_much_is_shown_in_part_and_all_of_it_on_demand(wide: Path) -> None:
    part, whole = run("inspect", wide).stderr, run("inspect", wide, "--all").stderr
    assert f"and {300 - cli_tables.MAX_TASKS} tasks of fewer episodes, which --all lists" in part
    assert f"the first {cli_tables.MAX_DIMS} dims; --all lists 36 more" in part
    assert "--all lists" not in whole
    assert whole.count("turn the ") == 299
    assert part.count("turn the ") == cli_tables.MAX_TASKS - 1
    told = run_json("inspect", wide)
    assert (len(told["tasks"]), len(told["statistics"][0]["dims"])) == (300, 100)


def test_a_narrow_terminal_does_no_harm(wide: Path) -> None:
    assert run("inspect", wide, COLUMNS="20").exit_code == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (-0.0, "0"), (0.00012345, "0.0001234"), (12345.6, "12,346"), (3.0, "3")],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert cli_tables._number(value, 4) == text


def test_progress_is_shown_to_people_at_a_terminal(small: Path) -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
    command = [*COMMAND, "inspect", str(small)]
    with subprocess.Popen(command, env=CLEAN | {"TERM": "xterm"}, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            seen += piece
    os.close(ours)
    assert process.returncode == 0
    assert b"0/1" in seen
    assert seen.index(b"Lengths of episodes") < seen.index(b"0/1") < seen.index(b"Statistics of")


def test_pages_show_what_the_command_shows(
    project_root: Path, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(golden / "lerobot_v30", tmp_path / "my_dataset")
    monkeypatch.chdir(tmp_path)
    shown = re.compile(r"^<!-- shown: ([^\n]*) -->\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for page in ("README.md", "docs/cli.md"):
        blocks = shown.findall((project_root / page).read_text(encoding="utf-8"))
        assert blocks, page
        for command, text in blocks:
            ran = run(*command.split(), COLUMNS="100")
            said = "\n".join(line.rstrip() for line in ran.stderr.splitlines())
            said = re.sub(r"\b[0-9a-f]{16}\b", "0123456789abcdef", said)  # a fit's, by version
            assert text.count("\n") > 10
            assert text.strip("\n") in said, f"{page} should show:\n{said}"


# ------------------------------------------------------------------------ real and awkward folders


@pytest.mark.parametrize("name", ["lerobot_v21", "lerobot_v30"])
def test_recorded_datasets(name: str, golden: Path) -> None:
    told = run_json("inspect", golden / name)
    expected = json.loads((golden / f"{name}_expected.json").read_text(encoding="utf-8"))
    assert told["episodes"] == told["counters"]["total_episodes"]
    assert told["frames"] == told["counters"]["total_frames"]
    assert told["duration_s"] == told["frames"] / 30
    assert sum(task["episodes"] for task in told["tasks"]) == told["episodes"]
    assert {len(stats["dims"]) for stats in told["statistics"]} == {6}
    assert expected
    assert told["findings"] == told["warnings"] == []


@pytest.mark.parametrize("case", sorted({*DATASETS} - VARIANTS))
def test_no_case_ends_in_a_traceback(case: str, cases_root: Path) -> None:
    ran = run("inspect", cases_root / case, "--json")
    assert ran.exit_code in (0, 1)
    if ran.exit_code == 1:
        assert ran.stdout == ""
        assert "error: " in ran.stderr
        return
    told = json.loads(ran.stdout)
    assert set(told) == KEYS
    opened = vlaprep.open_dataset(cases_root / case)
    assert [(f["kind"], f["message"]) for f in told["findings"]] == opened.check()
    assert told["episodes"] == len(opened.episodes)
    assert run("inspect", cases_root / case, "--all").exit_code == 0


def test_a_dataset_on_the_hub(golden: Path, tmp_path: Path) -> None:
    repo = Repo(folder_files(golden / "lerobot_v30"))
    code = (
        "import json, sys; from command_line import run_json; "
        "print(json.dumps(run_json('inspect', 'org/name', '--revision', 'main', '--root', "
        "sys.argv[1])))"
    )
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); {code}"
    with serve({"org/name": repo}) as hub:
        ran = hub.run(code, tmp_path / "home", args=(tmp_path / "here",))
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["dataset"], told["revision"]) == ("org/name", repo.main)
    assert told["root"] == str(tmp_path / "here")
    assert (tmp_path / "here/meta/info.json").is_file()
