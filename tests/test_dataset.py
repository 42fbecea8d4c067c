"""The reader: whatever way the rows lie on disk, the answer is that of the rows."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
import vlaprep
from lerobot_folder import (
    TASKS,
    Rows,
    file_name,
    group_ends,
    list_array,
    make_rows,
    read_in_child,
    take,
    to_table,
    write_meta,
    write_table,
    write_v2,
    write_v3,
)
from vlaprep import errors

SMALL = {0: (0, 9), 1: (1, 5), 4: (0, 12), 1000: (5, 7)}


def hold_rows(dataset: Any, rows: Rows) -> None:
    """The data set is these rows, by ascending (episode, frame)."""
    order = np.lexsort((rows["frame_index"], rows["episode_index"]))
    want = take(rows, order)
    got = dataset.read(["action", "episode_index", "frame_index", "task_index"])
    for name, column in got.items():
        np.testing.assert_array_equal(column, want[name], err_msg=name)
    table = dataset.episodes
    found = reference.episodes_of_rows(
        rows["episode_index"], rows["frame_index"], rows["task_index"]
    )
    assert table.episode_index.tolist() == list(found)
    assert table.length.tolist() == [entry["length"] for entry in found.values()]
    tasks = [entry["task_index"] for entry in found.values()]
    assert table.task_index.tolist() == [task if task in TASKS else -1 for task in tasks]


def hold_chunks(dataset: Any, rows: Rows, chunk: int, seed: int = 0) -> None:
    """Drawn chunks are slices of the ordered rows of their episode."""
    found = reference.episodes_of_rows(
        rows["episode_index"], rows["frame_index"], rows["task_index"]
    )
    long = {e: entry["rows"] for e, entry in found.items() if entry["length"] >= chunk}
    if not long:
        return
    rng = np.random.default_rng(seed)
    episodes = rng.choice(np.array(list(long)), size=25)
    starts = np.array([rng.integers(0, len(long[e]) - chunk + 1) for e in episodes])
    got = dataset.read_chunks(episodes, starts, chunk)
    want = [rows["action"][long[e][s : s + chunk]] for e, s in zip(episodes, starts, strict=True)]
    np.testing.assert_array_equal(got, np.stack(want), strict=True)


# --------------------------------------------------------------- how the rows may be spread


@st.composite
def spreads(draw: Any) -> tuple[Rows, list[Rows], list[list[int]]]:
    """(rows, files, ends of row groups a file): ids with gaps, any order, cut anywhere."""
    ids = draw(st.lists(st.integers(0, 2**40), min_size=1, max_size=7, unique=True))
    task = st.sampled_from([0, 1, 5, 9])  # 9 is a task that the task file does not define
    rows = make_rows({e: (draw(task), draw(st.integers(1, 20))) for e in ids})
    n = len(rows["index"])
    if draw(st.booleans()):
        rows = take(rows, np.random.default_rng(draw(st.integers(0, 99))).permutation(n))
    cuts = sorted(draw(st.sets(st.integers(0, n), max_size=4)))
    files = [take(rows, slice(a, b)) for a, b in zip([0, *cuts], [*cuts, n], strict=True)]
    by_episode = draw(st.booleans())
    every = draw(st.integers(1, 30))
    groups = [
        group_ends(part) if by_episode else list(range(every, len(part["index"]), every))
        for part in files
    ]
    return rows, files, groups


@settings(max_examples=40)
@given(spreads(), st.integers(1, 6))
def test_any_spread_over_files_and_row_groups(
    tmp_path_factory: pytest.TempPathFactory, spread: Any, chunk: int
) -> None:
    rows, files, groups = spread
    root = write_meta(tmp_path_factory.mktemp("spread"))
    for index, (part, ends) in enumerate(zip(files, groups, strict=True)):
        write_table(to_table(part), root / file_name(index), groups=ends)
    dataset = vlaprep.open_dataset(root)
    hold_rows(dataset, rows)
    hold_chunks(dataset, rows, chunk)


@pytest.mark.parametrize("version", ["v2.0", "v2.1"])
def test_one_file_an_episode(tmp_path: Path, version: str) -> None:
    rows = make_rows(SMALL)
    dataset = vlaprep.open_dataset(write_v2(tmp_path, rows, version=version))
    hold_rows(dataset, rows)
    hold_chunks(dataset, rows, 4)
    assert dataset.info.codebase_version == version
    assert dataset.tasks == TASKS
    assert len(dataset.files) == len(SMALL)


WRITERS: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False, "compression": "none"},
    "snappy, dictionary": {"compression": "snappy"},
    "zstd": {"compression": "zstd"},
    "gzip": {"compression": "gzip"},
    "brotli": {"compression": "brotli"},
    "lz4": {"compression": "lz4"},
    "data page v2": {"data_page_version": "2.0"},
    "page index": {"write_page_index": True, "data_page_size": 64},
    "tiny pages v2": {"data_page_version": "2.0", "data_page_size": 64, "use_dictionary": False},
    "no statistics": {"write_statistics": False},
    "statistics of ids only": {"write_statistics": ["episode_index"]},
    "delta": {
        "use_dictionary": False,
        "column_encoding": {"episode_index": "DELTA_BINARY_PACKED"},
    },
}


@pytest.mark.parametrize("grouping", ["a group an episode", "a group a file", "64 rows"])
@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer(tmp_path: Path, writer: str, grouping: str) -> None:
    rows = make_rows({e: (e % 2, 30 + 7 * e) for e in range(6)}, dim=3)
    groups = {
        "a group an episode": group_ends(rows),
        "a group a file": [],
        "64 rows": list(range(64, len(rows["index"]), 64)),
    }[grouping]
    write_table(to_table(rows), tmp_path / file_name(0), groups=groups, **WRITERS[writer])
    dataset = vlaprep.open_dataset(write_meta(tmp_path))
    hold_rows(dataset, rows)
    hold_chunks(dataset, rows, 10)
    hold_chunks(dataset, rows, 1)


def test_files_come_by_their_numbers_where_there_is_no_frame_index(tmp_path: Path) -> None:
    rows = make_rows({3: (0, 12), 8: (1, 4)})
    halves = take(rows, slice(0, 6)), take(rows, slice(6, None))
    for name, part in zip(("file-2", "file-10"), halves, strict=True):
        table = to_table(part, frame_index=None)
        write_table(table, tmp_path / f"data/chunk-0/{name}.parquet")
    dataset = vlaprep.open_dataset(write_meta(tmp_path))
    assert [Path(name).stem for name in dataset.files] == ["file-2", "file-10"]
    np.testing.assert_array_equal(dataset.read(["action"])["action"], rows["action"])
    hold_chunks(dataset, rows, 8)


@pytest.mark.parametrize("chunk_folders", [("chunk-2", "chunk-10"), ("chunk-009", "chunk-1000")])
def test_chunk_folders_come_by_their_numbers(tmp_path: Path, chunk_folders: Any) -> None:
    rows = make_rows({3: (0, 12)})
    halves = take(rows, slice(0, 6)), take(rows, slice(6, None))
    for folder, part in zip(chunk_folders, halves, strict=True):
        write_table(to_table(part, frame_index=None), tmp_path / f"data/{folder}/file-0.parquet")
    dataset = vlaprep.open_dataset(write_meta(tmp_path))
    np.testing.assert_array_equal(dataset.read(["action"])["action"], rows["action"])


def test_rows_beat_metadata_and_the_difference_is_a_finding(tmp_path: Path) -> None:
    rows = make_rows(SMALL)
    root = write_meta(write_v2(tmp_path, rows), "v2.1", total_episodes=3, total_frames=7)
    lines = [{"episode_index": e, "tasks": ["?"], "length": 9} for e in SMALL]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (root / "meta/episodes.jsonl").write_text(text)
    dataset = vlaprep.open_dataset(root)
    hold_rows(dataset, rows)
    findings = dataset.check()
    assert all(finding.kind and finding.message for finding in findings)
    said = " ".join(finding.message for finding in findings)
    assert "1000" in said, "episode 1000 has 7 rows, the metadata says 9"
    assert len(findings) >= 2


def test_a_second_task_inside_an_episode_is_a_finding(tmp_path: Path) -> None:
    rows = make_rows(SMALL)
    last_of_4 = np.flatnonzero(rows["episode_index"] == 4)[-1]
    rows["task_index"][last_of_4] = 1
    dataset = vlaprep.open_dataset(write_v3(tmp_path, rows))
    hold_rows(dataset, rows)
    assert any("4" in finding.message for finding in dataset.check())


def test_frames_out_of_file_order_are_a_finding(tmp_path: Path) -> None:
    rows = make_rows(SMALL)
    rows = take(rows, np.arange(len(rows["index"]))[::-1])
    dataset = vlaprep.open_dataset(write_v3(tmp_path, rows))
    hold_rows(dataset, rows)
    assert any("frame_index" in finding.message for finding in dataset.check())


def test_equal_ends_hide_nothing_where_rows_are_null(tmp_path: Path) -> None:
    # min == max == 0 for task_index, and yet the first row of episode 1 is null.
    rows = make_rows({0: (0, 4), 1: (0, 4)})
    tasks = pa.array([0, 0, 0, 0, None, 0, 0, 0], pa.int64())
    path = tmp_path / file_name(0)
    write_table(to_table(rows, task_index=tasks), path, groups=group_ends(rows))
    assert pq.ParquetFile(path).metadata.row_group(1).column(4).statistics.has_min_max
    dataset = vlaprep.open_dataset(write_meta(tmp_path))
    assert dataset.episodes.task_index.tolist() == [0, -1]
    assert dataset.episodes.length.tolist() == [4, 4]


# ------------------------------------------------------------------- types of the columns

NUMBERS = [
    pa.float16(), pa.float32(), pa.float64(),
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
]  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("kind", ["list", "large_list", "fixed", "scalar"])
def test_action_columns_of_every_type(tmp_path: Path, kind: str, dtype: pa.DataType) -> None:
    dim = 1 if kind == "scalar" else 3
    rows = make_rows(SMALL, dim=dim)
    values = np.abs(rows["action"] * 40).astype(np.float64)
    column = list_array(values, kind, dtype)
    flat = column if kind == "scalar" else column.flatten()
    want = flat.to_numpy(zero_copy_only=False).astype(np.float32).reshape(-1, dim)
    table = to_table(rows, action=column)
    dataset = vlaprep.open_dataset(write_v3(tmp_path, table))
    got = dataset.read(["action"])["action"]
    np.testing.assert_array_equal(got.reshape(-1, dim), want)
    hold_chunks(dataset, rows | {"action": want}, 3)


@pytest.mark.parametrize("dtype", NUMBERS[3:], ids=str)
def test_index_columns_of_every_integer_width(tmp_path: Path, dtype: pa.DataType) -> None:
    rows = make_rows({0: (0, 9), 7: (1, 5)})
    names = ("episode_index", "frame_index", "task_index")
    narrow = {name: pa.array(rows[name]).cast(dtype) for name in names}
    dataset = vlaprep.open_dataset(write_v3(tmp_path, to_table(rows, **narrow)))
    hold_rows(dataset, rows)


def test_scalar_columns_and_other_columns(tmp_path: Path) -> None:
    rows = make_rows(SMALL)
    n = len(rows["index"])
    reward = np.arange(n, dtype=np.float64) / 3
    table = to_table(rows, **{
        "next.reward": pa.array(reward),
        "next.done": pa.array(np.arange(n) % 2 == 0),
        "note": pa.array(["x"] * n),
        "image": pa.array([{"bytes": b"..", "path": "a"}] * n),
    })  # fmt: skip
    dataset = vlaprep.open_dataset(write_v3(tmp_path, table))
    assert {"action", "next.reward", "note", "image"} <= set(dataset.columns)
    got = dataset.read(["next.reward", "index"])
    np.testing.assert_array_equal(got["next.reward"], reward.astype(np.float32))
    assert got["next.reward"].dtype == np.float32
    assert got["index"].dtype == np.int64


@pytest.mark.parametrize("kind", ["list", "large_list", "fixed"])
def test_null_rows_and_null_elements_are_nan(tmp_path: Path, kind: str) -> None:
    rows = make_rows(SMALL, dim=3)
    lists: list[Any] = rows["action"].tolist()
    lists[2], lists[10][1], lists[-1] = None, None, [None, None, None]
    kinds = {"list": pa.list_(pa.float32()), "large_list": pa.large_list(pa.float32())}
    column = pa.array(lists, kinds.get(kind, pa.list_(pa.float32(), 3)))
    rows["action"][2], rows["action"][10, 1], rows["action"][-1] = np.nan, np.nan, np.nan
    dataset = vlaprep.open_dataset(write_v3(tmp_path, to_table(rows, action=column)))
    hold_rows(dataset, rows)
    hold_chunks(dataset, rows, 4)


def test_a_null_scalar_is_nan(tmp_path: Path) -> None:
    rows = make_rows({0: (0, 4)}, dim=1)
    column = pa.array([0.5, None, 2.0, 3.0], pa.float64())
    dataset = vlaprep.open_dataset(write_v3(tmp_path, to_table(rows, action=column)))
    want = np.array([0.5, np.nan, 2.0, 3.0], np.float32)
    np.testing.assert_array_equal(dataset.read(["action"])["action"].ravel(), want)
    chunk = dataset.read_chunks(np.array([0]), np.array([0]), 4)
    np.testing.assert_array_equal(chunk, want.reshape(1, 4, 1), strict=True)


# ------------------------------------------------------------------ tasks and feature names

INDEX_NAMES = ["task", "__index_level_0__", "index"]


@pytest.mark.parametrize("name", INDEX_NAMES)
def test_task_texts_of_v3(tmp_path: Path, name: str) -> None:
    root = write_v3(tmp_path, make_rows(SMALL))
    table = pa.table({"task_index": list(TASKS), name: list(TASKS.values())})
    pq.write_table(table, root / "meta/tasks.parquet")
    assert vlaprep.open_dataset(root).tasks == TASKS


def test_task_texts_that_cannot_be_told_are_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = write_v3(tmp_path, make_rows(SMALL))
    pq.write_table(pa.table({"task_index": list(TASKS)}), root / "meta/tasks.parquet")
    dataset = vlaprep.open_dataset(root)
    assert dataset.tasks == dict.fromkeys(TASKS, "")
    assert dataset.episodes.task_index.tolist() == [0, 1, 0, 5]
    assert "tasks.parquet" in caplog.text


def test_feature_names(tmp_path: Path) -> None:
    rows = make_rows(SMALL)
    features = {
        "action": {"dtype": "float32", "shape": [2], "names": ["left", "right"]},
        "observation.state": {"dtype": "float32", "shape": [2], "names": {"motors": ["a", "b"]}},
    }
    dataset = vlaprep.open_dataset(write_meta(write_v3(tmp_path, rows), features=features))
    assert dataset.feature_names("action") == ["left", "right"]
    assert dataset.feature_names("observation.state") == ["a", "b"]
    assert dataset.feature_names("index") is None


@pytest.mark.parametrize("more", ["", ', "features": null, "fps": "fast", "total_frames": -1'])
def test_an_info_with_little_in_it(tmp_path: Path, more: str) -> None:
    root = write_v3(tmp_path, make_rows(SMALL))
    (root / "meta/info.json").write_text(f'{{"codebase_version": "v3.0"{more}}}')
    hold_rows(vlaprep.open_dataset(root), make_rows(SMALL))


# --------------------------------------------------------------------- places and processes


def test_unicode_paths_and_relative_paths(tmp_path: Path, monkeypatch: Any) -> None:
    rows = make_rows(SMALL)
    write_v3(tmp_path / "dépôt 机器人 🤖", rows)
    hold_rows(vlaprep.open_dataset(str(tmp_path / "dépôt 机器人 🤖")), rows)
    monkeypatch.chdir(tmp_path)
    hold_rows(vlaprep.open_dataset("./dépôt 机器人 🤖"), rows)


def test_linked_files_as_in_the_cache_of_the_hub(tmp_path: Path) -> None:
    rows = make_rows(SMALL)
    real = write_v3(tmp_path / "blobs", rows)
    linked = tmp_path / "snapshot"
    for path in sorted(real.rglob("*")):
        target = linked / path.relative_to(real)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
    hold_rows(vlaprep.open_dataset(linked), rows)


def test_everything_pickles_small_and_behaves_the_same(tmp_path: Path) -> None:
    rows = make_rows(dict.fromkeys(range(40), (0, 50)))
    root = write_meta(write_v3(tmp_path, rows), total_frames=1)
    dataset = vlaprep.open_dataset(root, episodes=range(3, 30))
    for again in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset)):
        assert again.root == dataset.root
        np.testing.assert_array_equal(again.episodes.length, dataset.episodes.length)
        np.testing.assert_array_equal(again.read(["action"])["action"], rows["action"][150:1500])
        assert again.check() == dataset.check() != []
    assert len(pickle.dumps(dataset)) < 2000, "path and arguments, not data"
    table, findings = pickle.loads(pickle.dumps((dataset.episodes, dataset.check())))
    np.testing.assert_array_equal(table.episode_index, np.arange(3, 30))
    assert findings == dataset.check()


def test_the_episode_table_is_frozen_and_speaks_arrow(tmp_path: Path) -> None:
    table = vlaprep.open_dataset(write_v3(tmp_path, make_rows(SMALL))).episodes
    assert len(table) == len(SMALL)
    with pytest.raises(AttributeError):
        table.length = np.zeros(4)  # type: ignore[misc]
    names = ("episode_index", "length", "task_index")
    for frame in (pa.table(table), pl.DataFrame(table)):
        for name in names:
            np.testing.assert_array_equal(np.asarray(frame[name]), getattr(table, name))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_read_after_the_parent_did(tmp_path: Path, method: str) -> None:
    rows = make_rows(SMALL)
    root = write_v3(tmp_path, rows)
    dataset = vlaprep.open_dataset(root)
    want = dataset.read_chunks(np.array([4, 0]), np.array([1, 2]), 3).tolist()
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=read_in_child, args=(str(root), [4, 0], [1, 2], queue))
    child.start()
    assert queue.get(timeout=60) == (dataset.episodes.length.tolist(), want)
    child.join(60)
    assert child.exitcode == 0


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = write_meta(write_v3(tmp_path, make_rows(SMALL)), total_frames=1)
    dataset = vlaprep.open_dataset(root)
    dataset.read(["action"])
    dataset.check()
    shutil.rmtree(root / "data")
    with pytest.raises(errors.VlaprepError):
        vlaprep.open_dataset(root)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("kind", [set, frozenset, dict.fromkeys, iter, tuple, np.array])
def test_any_iterable_of_ids_is_a_selection(tmp_path: Path, kind: Any) -> None:
    root = write_v3(tmp_path, make_rows({0: (0, 5), 1: (0, 6), 4: (0, 7)}))
    dataset = vlaprep.open_dataset(root, episodes=kind([1, 4]))
    assert dataset.episodes.episode_index.tolist() == [1, 4]
    assert dataset.read("index", kind([4]))["index"].shape == (7,)


def test_a_dataset_stays_where_it_was_opened_and_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make_rows(SMALL)
    write_v3(tmp_path / "here", rows)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    dataset = vlaprep.open_dataset("here")
    monkeypatch.chdir("elsewhere")
    again = pickle.loads(pickle.dumps(dataset))
    for one in (dataset, again):
        np.testing.assert_array_equal(one.read("action")["action"], rows["action"])
    with pytest.raises(AttributeError, match="root"):
        dataset.root = tmp_path  # type: ignore[misc]
    table = pickle.loads(pickle.dumps(dataset.episodes))
    with pytest.raises(ValueError, match="read-only"):
        table.length[0] = 1


def test_links_that_lead_in_circles(tmp_path: Path) -> None:
    rows = make_rows(SMALL)
    root = write_v3(tmp_path, rows)
    for name in "abcdef":
        (root / "data" / name).symlink_to(".")
    hold_rows(vlaprep.open_dataset(root), rows)


def test_ids_that_an_editor_turned_into_floats(tmp_path: Path) -> None:
    rows = make_rows(SMALL)
    ids = {c: pa.array(rows[c].astype(np.float64)) for c in ("episode_index", "task_index")}
    dataset = vlaprep.open_dataset(write_v3(tmp_path, to_table(rows, **ids)))
    want = vlaprep.open_dataset(write_v3(tmp_path / "whole", rows))
    assert dataset.episodes == want.episodes


def test_an_action_column_of_type_null_is_nan(tmp_path: Path) -> None:
    rows = make_rows(SMALL)
    nothing = to_table(take(rows, rows["episode_index"] == 0), action=pa.nulls(SMALL[0][1]))
    rest = take(rows, rows["episode_index"] != 0)
    dataset = vlaprep.open_dataset(write_v3(tmp_path, nothing, rest))
    got = dataset.read("action")["action"]
    assert np.isnan(got[: SMALL[0][1]]).all()
    np.testing.assert_array_equal(got[SMALL[0][1] :], rest["action"])
