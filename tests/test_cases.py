"""Small data sets after public bug reports (tests/cases/cases.md): each case holds its outcome.

``make_cases.py`` builds the folders and says in ``cases.json`` what a trustworthy tool answers. The
first two tests run every data set through both jobs and compare exactly; the others are the cases
that ask for more than that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vlaprep
from case_table import DATASETS, ints, only
from outcome import Seen, mode_bits_bind, observe, tree
from vlaprep import errors, speed

# ------------------------------------------------------------------ job (a): speed labels


def label(root: Path, select: list[int] | None = None) -> tuple[Any, Any, dict[int, Any]]:
    """Both ways to the percentiles: (data set, `speed_labels`, what the persisting one returns)."""
    dataset = vlaprep.open_dataset(root, episodes=select)
    labels = speed.speed_labels(dataset)
    table = dataset.episodes
    known = table.task_index >= 0
    stored = speed.load_or_compute_speed_percentiles(
        root,
        dict(zip(table.episode_index.tolist(), table.length.tolist(), strict=True)),
        dict(
            zip(table.episode_index[known].tolist(), table.task_index[known].tolist(), strict=True)
        ),
        {text: index for index, text in dataset.tasks.items()},
    )
    return dataset, labels, stored


def rows_of_file(root: Path) -> list[dict[str, Any]]:
    text = (root / "meta/speed_percentiles.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def hold_labels(seen: Seen, expected: dict[str, Any]) -> None:
    dataset, labels, stored = seen.answer
    ids = labels.episode_index.tolist()
    length, task = labels.length.tolist(), labels.task_index.tolist()
    assert dict(zip(ids, length, strict=True)) == ints(expected["episode_lengths"])
    known = {e: t for e, t in zip(ids, task, strict=True) if t >= 0}
    assert known == ints(expected["episode_task"])
    assert [e for e in ids if e not in known] == expected["unresolved_episodes"]
    assert dict(zip(ids, labels.label.tolist(), strict=True)) == ints(expected["buckets"])
    assert dict(labels.percentiles_by_task) == ints(expected["percentiles"])
    assert stored == ints(expected["percentiles"])
    assert ids == dataset.episodes.episode_index.tolist()


@only(*(case for case in DATASETS if case != "C13"))
def test_percentiles(case: tuple[Path, Any], caplog: pytest.LogCaptureFixture) -> None:
    root, expected = case[0], case[1]["percentiles"]
    before = tree(root)
    seen = observe(lambda: label(root, expected.get("select")), caplog)
    if not seen.hold(expected):
        assert tree(root) == before
        return
    hold_labels(seen, expected)
    after = tree(root)
    assert set(after) - set(before) == {"meta/speed_percentiles.jsonl"}
    assert all(after[name] == data for name, data in before.items())
    rows = rows_of_file(root)
    assert {r["task_index"]: r["percentiles"] for r in rows} == ints(expected["percentiles"])
    assert {r["task_index"]: r["n_episodes"] for r in rows} == ints(expected["n_episodes_per_task"])
    texts = ints(expected.get("task_text", {}))
    assert {r["task_index"]: r["task"] for r in rows if r["task_index"] in texts} == texts
    if "total_frames" in expected:
        assert int(seen.answer[0].episodes.length.sum()) == expected["total_frames"]


@only("C13")
def test_percentiles_where_meta_cannot_be_written(
    case: tuple[Path, Any], caplog: pytest.LogCaptureFixture
) -> None:
    root, expected = case[0], case[1]["percentiles"]
    before = tree(root)
    with mode_bits_bind():
        seen = observe(lambda: [label(root) for _ in range(3)][-1], caplog)
    assert seen.hold(expected)
    hold_labels(seen, expected)
    assert tree(root) == before


@only(*DATASETS)
def test_actions(case: tuple[Path, Any], cases_root: Path) -> None:
    """All rows equal the truth in memory, in (episode, frame) order."""
    root, expected = case
    stored = cases_root / "_expected" / f"{root.name}.npz"
    if not stored.exists() or "error" in expected["percentiles"]["outcome"]:
        return  # no truth is given: a broken file, no vectors, or nulls (held by the other tests)
    with np.load(stored) as arrays:
        want = {name: arrays[name] for name in arrays.files}
    column = "actions" if root.name == "L23" else "action"
    rows = vlaprep.open_dataset(root).read([column, "episode_index", "frame_index"])
    np.testing.assert_array_equal(rows["episode_index"], want["episode_index"], strict=True)
    np.testing.assert_array_equal(rows["frame_index"], want["frame_index"], strict=True)
    actions = want["actions"].astype(np.float32)
    # A plain float column (L26) is read flat.
    np.testing.assert_array_equal(rows[column].reshape(actions.shape), actions, strict=True)


@pytest.mark.parametrize(
    ("variant", "stale"), [("a_stale", True), ("b_larger", False), ("c_missing_task", True)]
)
@only("C23")
def test_a_percentile_file_that_is_there(
    case: tuple[Path, Any], variant: str, stale: bool, caplog: pytest.LogCaptureFixture
) -> None:
    root, expected = case[0] / variant, case[1]["percentiles"][variant]
    before = tree(root)["meta/speed_percentiles.jsonl"]
    seen = observe(lambda: label(root), caplog)
    assert seen.hold(expected)
    assert seen.answer[2] == ints(expected["percentiles"])
    after = tree(root)["meta/speed_percentiles.jsonl"]
    assert after.startswith(before)
    assert (after == before) is expected["file_bytes_unchanged"]
    assert bool(seen.warnings) is stale
    added = [json.loads(line) for line in after[len(before) :].decode().splitlines()]
    assert added == expected["appended_rows"]


@pytest.mark.parametrize("variant", ["a_cut", "b_empty", "c_nine"])
@only("C24")
def test_a_percentile_file_that_is_broken(
    case: tuple[Path, Any], variant: str, caplog: pytest.LogCaptureFixture
) -> None:
    root, expected = case[0] / variant, case[1]["percentiles"][variant]
    before = tree(root)
    seen = observe(lambda: label(root), caplog)
    if seen.hold(expected):
        hold_labels(seen, expected)
    else:
        assert tree(root) == before
        assert isinstance(seen.error, errors.PercentileFileError)
        assert "line" in str(seen.error)


@only("L06")
def test_a_selection_that_names_an_absent_episode(
    case: tuple[Path, Any], caplog: pytest.LogCaptureFixture
) -> None:
    root, expected = case[0], case[1]["also"]
    seen = observe(lambda: vlaprep.open_dataset(root, episodes=expected["select"]), caplog)
    assert not seen.hold(expected)
    assert isinstance(seen.error, errors.EpisodeSelectionError)


@only("P17")
def test_a_selection_without_statistics_or_by_page_index(
    case: tuple[Path, Any], caplog: pytest.LogCaptureFixture
) -> None:
    root, expected = case[0], case[1]["percentiles"]["select_check"]
    seen = observe(lambda: label(root, expected["select"]), caplog)
    assert seen.hold(expected)
    hold_labels(seen, expected)


@only("P11")
def test_nothing_but_an_empty_shard(
    case: tuple[Path, Any], caplog: pytest.LogCaptureFixture
) -> None:
    root = case[0]
    for name in ("file-000", "file-002"):
        (root / f"data/chunk-000/{name}.parquet").unlink()
    assert not observe(lambda: label(root), caplog).hold(case[1]["also"])


@only("L02")
def test_images_in_the_same_file_are_not_read(case: tuple[Path, Any]) -> None:
    root, expected = case[0], case[1]["percentiles"]

    def bytes_read() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["rchar"])

    vlaprep.open_dataset(root)  # so that no module is loaded while we count
    before = bytes_read()
    dataset = vlaprep.open_dataset(root)
    dataset.read(["action", "frame_index"])
    read = bytes_read() - before
    # Footers, metadata and page headers come on top of the columns; the images never do.
    assert read < 5 * expected["bytes_of_needed_columns"] < expected["bytes_on_disk"] / 10


BLOB_CHILD = """
import resource, sys
import numpy as np
import vlaprep
from vlaprep import speed
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
dataset = vlaprep.open_dataset(sys.argv[1])
speed.speed_labels(dataset)
dataset.read_chunks(np.array([0, 11]), np.array([5000, 7]), 10)
print(peak() - before)
"""


@only("P24")
def test_a_huge_row_group_takes_little_memory(case: tuple[Path, Any]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", BLOB_CHILD, str(case[0])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(ran.stdout) < case[1]["percentiles"]["peak_rss_growth_mb_at_most"]


LOCALE_CHILD = """
import json, sys
import vlaprep
from vlaprep import speed
dataset = vlaprep.open_dataset(sys.argv[1])
table = dataset.episodes
speed.load_or_compute_speed_percentiles(
    dataset.root,
    dict(zip(table.episode_index.tolist(), table.length.tolist())),
    dict(zip(table.episode_index.tolist(), table.task_index.tolist())),
    {text: index for index, text in dataset.tasks.items()},
)
"""


@only("L39")
def test_task_texts_are_utf8_in_any_locale(case: tuple[Path, Any]) -> None:
    root, expected = case[0], case[1]["percentiles"]
    env = os.environ | expected["environment"]
    subprocess.run([sys.executable, "-c", LOCALE_CHILD, str(root)], check=True, env=env)
    texts = {row["task_index"]: row["task"] for row in rows_of_file(root)}
    assert texts == ints(expected["task_text"])
    assert len(rows_of_file(root)) == 2  # the newline inside a text starts no line of its own
