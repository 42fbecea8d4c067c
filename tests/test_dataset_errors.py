"""What the reader refuses: an ordinary error that names the file, the place and the way out."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vlaprep
from lerobot_folder import (
    file_name,
    group_ends,
    list_array,
    make_rows,
    take,
    to_table,
    write_meta,
    write_table,
    write_v2,
    write_v3,
)
from vlaprep import errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = make_rows({0: (0, 9), 1: (1, 5), 4: (0, 12)}, dim=3)
N = len(ROWS["index"])
NotFound, Format = errors.DatasetNotFoundError, errors.DatasetFormatError


def refused(call: Any, kind: type[Exception], *mentions: str) -> str:
    """The message of the error of class `kind` that `call` raises, which mentions these texts."""
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    missing = [text for text in mentions if text.casefold() not in message.casefold()]
    assert not missing, f"{missing} not in: {message}"
    return message


def open_and_read(root: Path, *columns: str) -> None:
    vlaprep.open_dataset(root).read(list(columns) or ["action"])


@contextmanager
def suppress_named(name: str) -> Iterator[None]:
    """Let pass an error of ours that names the file, and nothing else."""
    try:
        yield
    except errors.VlaprepError as error:
        if name not in str(error):
            raise


# ----------------------------------------------------------------------- nothing is there


def test_no_folder(tmp_path: Path) -> None:
    refused(lambda: vlaprep.open_dataset(tmp_path / "nowhere"), NotFound, "nowhere")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    refused(lambda: vlaprep.open_dataset(tmp_path / "a.parquet"), errors.VlaprepError, "a.parquet")


def test_no_info(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    refused(lambda: vlaprep.open_dataset(tmp_path), NotFound, "info.json")


@pytest.mark.parametrize("writer", [write_v2, write_v3])
def test_data_without_info_is_read_with_a_warning(
    tmp_path: Path, writer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    root = writer(tmp_path, ROWS)
    (root / "meta/info.json").unlink()
    dataset = vlaprep.open_dataset(root)
    np.testing.assert_array_equal(dataset.read("action")["action"], ROWS["action"])
    assert [f.kind for f in dataset.check() if "info.json" in f.message] == ["metadata"]
    assert "meta/info.json is missing" in caplog.text


def test_no_data_files(tmp_path: Path) -> None:
    refused(lambda: vlaprep.open_dataset(write_meta(tmp_path)), NotFound, "data")


def test_no_rows_at_all(tmp_path: Path) -> None:
    root = write_v3(tmp_path, take(ROWS, slice(0, 0)))
    refused(lambda: vlaprep.open_dataset(root), errors.VlaprepError, "no", "episode")


@pytest.mark.parametrize("chosen", [[7], [0, 99], [-1], []])
def test_a_selection_that_is_not_there(tmp_path: Path, chosen: list[int]) -> None:
    root = write_v3(tmp_path, ROWS)
    names = [str(e) for e in chosen if e not in (0, 1, 4)]
    refused(
        lambda: vlaprep.open_dataset(root, episodes=chosen), errors.EpisodeSelectionError, *names
    )


# ------------------------------------------------------------------------------- metadata


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"fps": 30}', '{"codebase_version": 3}'])
def test_a_malformed_info(tmp_path: Path, text: str) -> None:
    root = write_v3(tmp_path, ROWS)
    (root / "meta/info.json").write_text(text)
    refused(lambda: vlaprep.open_dataset(root), Format, "info.json")


@pytest.mark.parametrize("version", ["v1.6", "v4.0", "three"])
def test_a_version_we_do_not_know(tmp_path: Path, version: str) -> None:
    root = write_meta(write_v3(tmp_path, ROWS), codebase_version=version)
    refused(lambda: vlaprep.open_dataset(root), Format, version)


def test_lance_is_refused(tmp_path: Path) -> None:
    root = write_meta(write_v3(tmp_path, ROWS), storage_format="lance")
    refused(lambda: vlaprep.open_dataset(root), Format, "lance")


@pytest.mark.parametrize(
    "template",
    [
        "../outside/file-{file_index:03d}.parquet",
        "data/../../outside/file-{file_index:03d}.parquet",
        "/etc/{file_index}.parquet",
    ],
)
def test_a_data_path_stays_in_the_root(tmp_path: Path, template: str) -> None:
    root = write_meta(write_v3(tmp_path / "inside", ROWS), data_path=template)
    write_table(to_table(ROWS), tmp_path / "outside/file-000.parquet")
    refused(lambda: vlaprep.open_dataset(root), Format, "data_path")


def test_a_broken_task_line_is_named(tmp_path: Path) -> None:
    root = write_v2(tmp_path, ROWS)
    text = '{"task_index": 0, "task": "a"}\n\n{"task_index": 1, "ta\n'
    (root / "meta/tasks.jsonl").write_text(text)
    refused(lambda: vlaprep.open_dataset(root), Format, "tasks.jsonl", "3")


@pytest.mark.parametrize("line", ['{"task": "a"}', '{"task_index": "x", "task": "a"}', "[1]"])
def test_a_task_line_of_another_shape_is_named(tmp_path: Path, line: str) -> None:
    root = write_v2(tmp_path, ROWS)
    (root / "meta/tasks.jsonl").write_text(line + "\n")
    refused(lambda: vlaprep.open_dataset(root), Format, "tasks.jsonl", "1")


# ---------------------------------------------------------------------------- broken files


def test_every_broken_file_is_listed(tmp_path: Path) -> None:
    root = write_v3(tmp_path, ROWS)
    good = (root / file_name(0)).read_bytes()
    (root / file_name(3)).write_bytes(b"")
    (root / file_name(5)).write_bytes(good[:-50])
    (root / file_name(7)).write_bytes(b"not parquet at all, whatever the name says")
    refused(lambda: vlaprep.open_dataset(root), Format, "file-003", "file-005", "file-007")


def test_a_git_lfs_pointer_is_called_one(tmp_path: Path) -> None:
    root = write_v3(tmp_path, ROWS)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 99\n"
    (root / file_name(0)).write_text(pointer)
    refused(lambda: vlaprep.open_dataset(root), Format, "LFS", "file-000")


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    root = write_v3(tmp_path, ROWS)
    (root / file_name(1)).symlink_to(tmp_path / "gone")
    refused(lambda: open_and_read(root), errors.VlaprepError, "file-001")


@given(st.data())
def test_a_file_cut_or_flipped_anywhere_never_panics(
    tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    root = write_v3(tmp_path_factory.mktemp("cut"), ROWS)
    path = root / file_name(0)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(whole[:at])
    else:
        flipped = bytearray(whole)
        flipped[at] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(flipped)
    with suppress_named("file-000"):
        open_and_read(root)


# --------------------------------------------------------------------------- broken columns


def test_two_rows_that_claim_one_frame(tmp_path: Path) -> None:
    root = write_v3(tmp_path, ROWS, take(ROWS, [3]))
    message = refused(
        lambda: open_and_read(root), Format, "file-000.parquet", "file-001.parquet", "frame"
    )
    assert "0" in message


def test_two_rows_that_claim_one_frame_in_one_file(tmp_path: Path) -> None:
    root = write_v3(tmp_path, take(ROWS, [0, 1, 2, 2, 3]))
    refused(lambda: open_and_read(root), Format, "file-000.parquet")


def test_two_rows_that_claim_one_frame_behind_plausible_statistics(tmp_path: Path) -> None:
    # Frames 0, 1, 1, 3: smallest and largest promise four frames, and there are four rows.
    rows = take(ROWS, [0, 1, 1, 3])
    root = write_v3(tmp_path, rows)
    refused(lambda: open_and_read(root), Format, "file-000.parquet", "frame")
    dataset = vlaprep.open_dataset(root)
    one = np.array([0])
    refused(lambda: dataset.read_chunks(one, one, 2), Format, "file-000.parquet", "frame")


def test_an_index_column_that_is_missing(tmp_path: Path) -> None:
    root = write_v3(tmp_path, to_table(ROWS, episode_index=None))
    refused(
        lambda: vlaprep.open_dataset(root), Format, "episode_index", "file-000", "action", "index"
    )


@pytest.mark.parametrize("column", ["episode_index", "task_index"])
@pytest.mark.parametrize("kind", ["text", "float with a fraction", "list"])
def test_an_index_column_of_a_wrong_type(tmp_path: Path, column: str, kind: str) -> None:
    wrong = {
        "text": pa.array(["0"] * N),
        "float with a fraction": pa.array(np.full(N, 0.5)),
        "list": pa.array([[0, 0]] * N),
    }[kind]
    root = write_v3(tmp_path, to_table(ROWS, **{column: wrong}))
    refused(lambda: open_and_read(root), Format, column, "file-000")


def test_a_null_episode_is_named(tmp_path: Path) -> None:
    ids: list[Any] = ROWS["episode_index"].tolist()
    ids[11] = None
    root = write_v3(tmp_path, to_table(ROWS, episode_index=pa.array(ids, pa.int64())))
    refused(lambda: vlaprep.open_dataset(root), Format, "episode_index", "file-000", "11")


def test_a_column_that_no_file_has_lists_those_there_are(tmp_path: Path) -> None:
    root = write_v3(tmp_path, ROWS)
    dataset = vlaprep.open_dataset(root)
    refused(lambda: dataset.read(["actions"]), Format, "actions", "action", "frame_index")
    one = np.array([0])
    refused(
        lambda: dataset.read_chunks(one, one, 2, column="velocity"), Format, "velocity", "action"
    )


def test_a_column_that_one_file_lacks(tmp_path: Path) -> None:
    halves = take(ROWS, slice(0, 9)), take(ROWS, slice(9, None))
    root = write_v3(tmp_path, halves[0], to_table(halves[1], action=None))
    refused(lambda: open_and_read(root), Format, "action", "file-001")


def test_ragged_rows_name_file_and_row(tmp_path: Path) -> None:
    lists = ROWS["action"].tolist()
    lists[13] = [0.5, 0.5]
    column = pa.array(lists, pa.list_(pa.float32()))
    root = write_v3(tmp_path, to_table(ROWS, action=column))
    refused(lambda: open_and_read(root), Format, "action", "file-000", "13")
    dataset = vlaprep.open_dataset(root)
    refused(
        lambda: dataset.read_chunks(np.array([1]), np.array([2]), 3), Format, "action", "file-000"
    )


def test_ragged_rows_that_balance_each_other(tmp_path: Path) -> None:
    lists = ROWS["action"].tolist()
    lists[2], lists[3] = [1.0, 2.0], [3.0, 4.0, 5.0, 6.0]  # the file's total still fits
    column = pa.array(lists, pa.list_(pa.float32()))
    root = write_v3(tmp_path, to_table(ROWS, action=column))
    refused(lambda: open_and_read(root), Format, "action", "file-000", "2")


@pytest.mark.parametrize("kind", ["fixed", "list"])
def test_a_shard_of_another_width(tmp_path: Path, kind: str) -> None:
    halves = take(ROWS, slice(0, 9)), take(ROWS, slice(9, None))
    wide = list_array(np.zeros((N - 9, 5), np.float32), kind)
    root = write_v3(tmp_path, halves[0], to_table(halves[1], action=wide))
    refused(lambda: open_and_read(root), Format, "action", "file-001", "5", "3")


def test_rows_without_any_element(tmp_path: Path) -> None:
    column = pa.array([[]] * N, pa.list_(pa.float32()))
    root = write_v3(tmp_path, to_table(ROWS, action=column))
    refused(lambda: open_and_read(root), Format, "action")


NO_VECTORS = {
    "text": pa.array(["a"] * N),
    "list of text": pa.array([["a", "b"]] * N),
    "list of lists": pa.array([[[1.0], [2.0]]] * N),
    "struct": pa.array([{"x": 1.0}] * N),
    "binary": pa.array([b"1"] * N),
}


@pytest.mark.parametrize("kind", NO_VECTORS)
def test_rows_that_are_no_vectors(tmp_path: Path, kind: str) -> None:
    root = write_v3(tmp_path, to_table(ROWS, action=NO_VECTORS[kind]))
    dataset = vlaprep.open_dataset(root)
    assert dataset.episodes.length.tolist() == [9, 5, 12]
    refused(lambda: dataset.read(["action"]), Format, "action")
    refused(lambda: dataset.read_chunks(np.array([0]), np.array([0]), 2), Format, "action")


# ----------------------------------------------------------------------------- bad requests


@pytest.mark.parametrize(
    ("episode", "start", "chunk"),
    [
        ([0], [8], 2),
        ([0], [-1], 2),
        ([0], [0], 10),
        ([4], [2**62], 2),
        ([0], [0], 0),
        ([0], [0], -3),
    ],
)
def test_chunks_outside_their_episode(
    tmp_path: Path, episode: list[int], start: list[int], chunk: int
) -> None:
    dataset = vlaprep.open_dataset(write_v3(tmp_path, ROWS))
    with pytest.raises((ValueError, IndexError, OverflowError)):
        dataset.read_chunks(np.array(episode), np.array(start), chunk)


def test_chunks_of_an_absent_episode(tmp_path: Path) -> None:
    dataset = vlaprep.open_dataset(write_v3(tmp_path, ROWS))
    one = np.array([2])
    refused(lambda: dataset.read_chunks(one, one, 2), errors.EpisodeSelectionError, "2")
    refused(lambda: dataset.read(["action"], [2]), errors.EpisodeSelectionError, "2")
    with pytest.raises(ValueError, match=r"."):
        dataset.read_chunks(np.array([0, 1]), np.array([0]), 2)


def test_no_chunks_asked_for(tmp_path: Path) -> None:
    dataset = vlaprep.open_dataset(write_v3(tmp_path, ROWS))
    none = np.array([], np.int64)
    assert dataset.read_chunks(none, none, 4).shape == (0, 4, 3)


def test_data_that_changes_under_an_open_dataset(tmp_path: Path) -> None:
    root = write_v3(tmp_path, ROWS)
    dataset = vlaprep.open_dataset(root)
    os.truncate(root / file_name(0), 100)
    refused(lambda: dataset.read(["action"]), errors.VlaprepError, "file-000")
    (root / file_name(0)).unlink()
    refused(lambda: dataset.read(["action"]), errors.VlaprepError, "file-000")


def test_metadata_of_episodes_that_is_broken_never_stops_a_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Episode metadata is only compared with the rows, so a broken file is a finding."""
    root = write_v3(tmp_path, ROWS)
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    dataset = vlaprep.open_dataset(root)
    assert dataset.episodes.length.tolist() == [9, 5, 12]
    assert any("episodes" in finding.message for finding in dataset.check())


def test_episodes_that_metadata_lists_and_no_file_holds(tmp_path: Path) -> None:
    root = write_v3(tmp_path, ROWS)
    rows = [
        {"episode_index": e, "length": 5, "data/chunk_index": 0, "data/file_index": 9}
        for e in (0, 1, 4, 77)
    ]
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    refused(lambda: vlaprep.open_dataset(root), errors.VlaprepError, "77", "file-009")
    # Whoever selects what is there gets it, and the metadata's other claims are findings.
    dataset = vlaprep.open_dataset(root, episodes=[0, 4])
    assert dataset.episodes.length.tolist() == [9, 12]
    assert dataset.check() != []


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    table = to_table(ROWS)
    twice = table.append_column("episode_index", table.column("frame_index"))
    root = write_v3(tmp_path, twice)
    refused(lambda: vlaprep.open_dataset(root), Format, "episode_index", "file-000", "two")


@pytest.mark.parametrize("template", ["", "file-{file_index:03d}.parquet"])
def test_metadata_is_no_data_where_both_lie_together(tmp_path: Path, template: str) -> None:
    root = write_meta(write_v3(tmp_path, ROWS), data_path=template)
    if template:
        (root / file_name(0)).rename(root / "file-000.parquet")
    np.testing.assert_array_equal(
        vlaprep.open_dataset(root).read("action")["action"], ROWS["action"]
    )


@pytest.mark.parametrize(
    "info", [{"total_episodes": 4}, {"total_frames": N + 1}, {"total_episodes": 9}]
)
def test_fewer_rows_than_counted_are_said(
    tmp_path: Path, info: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    root = write_meta(write_v3(tmp_path, ROWS), **info)
    kinds = {finding.kind for finding in vlaprep.open_dataset(root).check()}
    assert kinds == {"fewer-rows"}
    assert "missing" in caplog.text


def test_an_episode_whose_beginning_is_lost_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late = dict(ROWS, frame_index=ROWS["frame_index"] + 3)
    vlaprep.open_dataset(write_v3(tmp_path, late))
    assert "frame_index does not count up from 0" in caplog.text


def test_the_width_that_metadata_gives_tells_who_is_wrong(tmp_path: Path) -> None:
    dim = ROWS["action"].shape[1]
    narrow = to_table(ROWS, action=list_array(np.zeros((N, dim - 1)), "list"))
    other = dict(ROWS, episode_index=ROWS["episode_index"] + 100)
    root = write_meta(write_v3(tmp_path, narrow, other), features={"action": {"shape": [dim]}})
    refused(lambda: vlaprep.open_dataset(root).read("action"), Format, "action", "file-000")


@pytest.mark.parametrize(
    ("kind", "via"),
    [
        (pa.decimal128(12, 2), np.int32),
        (pa.timestamp("us"), np.int64),
        (pa.date32(), np.int32),
    ],
)
def test_statistics_speak_for_integers_alone(tmp_path: Path, kind: pa.DataType, via: type) -> None:
    ids = pa.array(ROWS["episode_index"].astype(via)).cast(kind)
    options = {"groups": group_ends(ROWS), "store_decimal_as_integer": True}
    root = write_v3(tmp_path, to_table(ROWS, episode_index=ids), **options)
    refused(lambda: vlaprep.open_dataset(root), Format, "episode_index", "file-000")
