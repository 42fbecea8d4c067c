"""Two ways to an answer, and one answer: pages read straight against the Arrow reader.

Files are random in all that a writer may choose: types, nulls, lengths of lists, codecs, encodings,
versions and sizes of pages, row groups, files.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lerobot_folder import file_name, make_rows, take, to_table, write_meta, write_table
from vlaprep._native import Reader
from vlaprep.errors import VlaprepError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ENGINES = ("pages", "arrow")
NUMBERS = (pa.float32(), pa.float64(), pa.int32(), pa.int64(), pa.float16(), pa.uint8(), pa.int16())


def answer_or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (VlaprepError, MemoryError, TypeError) as error:
        return repr(error)


def answers(root: Path, columns: list[str], engine: str, num_threads: int = 2) -> Any:
    """All that a reader says of a data set, or its error."""
    try:
        reader = Reader(root, num_threads=num_threads, engine=engine)
        table = reader.episodes()
        positions = np.arange(len(table[0]))
        said: dict[str, Any] = {"episodes": table, "findings": reader.findings}
    except (VlaprepError, MemoryError) as error:
        return {"error": repr(error)}
    chunk = int(min(3, table[1].min()))
    start = np.maximum(table[1] - chunk, 0) // 2
    again = np.repeat(table[0], 2), np.repeat(start, 2)
    for column in columns:
        said[column] = answer_or_error(lambda name=column: reader.read([name], positions))
        said[f"chunks of {column}"] = answer_or_error(
            lambda name=column: reader.read_chunks(name, *again, chunk)
        )
    together = answer_or_error(lambda: reader.read(columns, positions))
    said["together"] = type(together) if isinstance(together, str) else together
    return said


def hold_same(root: Path, columns: list[str]) -> Any:
    pages, arrow = (answers(root, columns, engine) for engine in ENGINES)
    np.testing.assert_equal(pages, arrow)
    np.testing.assert_equal(answers(root, columns, "pages", num_threads=1), arrow)
    return pages


@st.composite
def vectors(draw: Any, rows: int) -> pa.Array:
    """A column of numbers or of lists of them, regular or not."""
    width = draw(st.integers(1, 70) | st.just(14))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    few = draw(st.booleans())  # few values repeat, and dictionaries stay small
    values = rng.integers(0, 3, rows * width) if few else rng.integers(-99, 99, rows * width)
    if draw(st.booleans()):  # runs of the same value
        values = np.sort(values)
    mask = rng.random(rows * width) < draw(st.sampled_from([0, 0, 0.01]))
    dtype = draw(st.sampled_from(NUMBERS))
    low = 0 if pa.types.is_unsigned_integer(dtype) else -99
    flat = pa.array(np.maximum(values, low), mask=mask).cast(dtype, safe=False)
    kind = draw(st.sampled_from(["list", "fixed", "large", "scalar", "ragged", "null rows"]))
    if kind == "scalar":
        return flat[:rows]
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, width)
    offsets = np.arange(rows + 1) * width
    if kind == "ragged" and rows > 1:
        offsets[draw(st.integers(1, rows - 1))] += draw(st.sampled_from([-1, 1]))
    if kind == "null rows":
        gone = rng.random(rows) < 0.2
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, mask=pa.array(gone))
    if kind == "large":
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


@st.composite
def writers(draw: Any) -> dict[str, Any]:
    """What a writer of parquet files chooses."""
    options: dict[str, Any] = {
        "compression": draw(st.sampled_from(["snappy", "zstd", "none", "gzip", "lz4", "brotli"])),
        "use_dictionary": draw(st.sampled_from([True, True, False, ["episode_index"]])),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "data_page_size": draw(st.sampled_from([1, 64, 500, 1 << 20])),
        "dictionary_pagesize_limit": draw(st.sampled_from([16, 256, 1 << 20])),
        "write_statistics": draw(st.sampled_from([True, True, False, ["episode_index"]])),
        "write_page_index": draw(st.booleans()),
        "write_batch_size": draw(st.sampled_from([1, 7, 1024])),
    }
    if options["use_dictionary"] is False and draw(st.booleans()):
        options["use_byte_stream_split"] = ["plain"]
    return options


@st.composite
def folders(draw: Any) -> tuple[list[pa.Table], list[Any], dict[str, Any]]:
    ids = draw(st.lists(st.integers(0, 2**40), min_size=1, max_size=6, unique=True))
    episodes = {e: (draw(st.sampled_from([0, 1, 5])), draw(st.integers(1, 40))) for e in ids}
    rows = make_rows(episodes)
    count = len(rows["index"])
    if draw(st.integers(0, 4)) == 0:
        rows = take(rows, np.random.default_rng(0).permutation(count))
    nothing = rows["frame_index"] < 0
    if draw(st.integers(0, 9)) == 0:
        nothing[draw(st.integers(0, count - 1))] = True
    ids_of = {
        name: pa.array(rows[name], draw(st.sampled_from([pa.int64(), pa.int64(), pa.int32()])))
        for name in ("frame_index", "task_index", "index")
    }
    table = to_table(
        rows,
        action=draw(vectors(count)),
        plain=pa.array(np.linspace(0, 1, count), pa.float32()),
        episode_index=pa.array(rows["episode_index"], mask=nothing),
        **ids_of,
    )
    cuts = sorted(draw(st.sets(st.integers(0, count), max_size=2)))
    tables = [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
    groups: list[Any] = []
    for part in tables:
        every = draw(st.sampled_from([3, 40, 10**6]))
        borders = np.flatnonzero(np.diff(part["episode_index"].fill_null(-1).to_numpy())) + 1
        groups.append(
            draw(st.sampled_from([borders.tolist(), list(range(every, len(part), every))]))
        )
    return tables, groups, draw(writers())


@settings(max_examples=300, deadline=None)
@given(folders())
def test_both_engines_give_one_answer(
    tmp_path_factory: pytest.TempPathFactory, folder: tuple[Any, Any, Any]
) -> None:
    tables, groups, options = folder
    root = write_meta(tmp_path_factory.mktemp("engines"))
    for index, (table, ends) in enumerate(zip(tables, groups, strict=True)):
        write_table(table, root / file_name(index), groups=ends, **options)
    hold_same(root, ["action", "plain", "frame_index", "task_index", "index", "episode_index"])
    shutil.rmtree(root)


def test_pages_are_read_straight_where_they_can_be(tmp_path: Path) -> None:
    # Not only the same answers: a page that the other engine cannot read shows which one did.
    rows = make_rows({0: (0, 50), 1: (1, 30)}, dim=14)
    root = write_meta(tmp_path)
    path = root / file_name(0)
    write_table(to_table(rows), path, compression="none")
    chunk = pq.read_metadata(path).row_group(0).column(0)
    assert chunk.path_in_schema.startswith("action")
    said = hold_same(root, ["action"])
    np.testing.assert_array_equal(said["action"][0], rows["action"])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cut_or_changed_file_is_an_error_or_the_same_answer(tmp_path: Path, engine: str) -> None:
    rows = make_rows({0: (0, 20), 1: (1, 30)}, dim=3)
    root = write_meta(tmp_path)
    path = root / file_name(0)
    write_table(to_table(rows), path, compression="snappy")
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little")
    for end in range(len(whole) - footer - 8, len(whole)):
        path.write_bytes(whole[:end])
        assert "error" in answers(root, ["action"], engine), end
    path.write_bytes(whole)
    assert "error" not in answers(root, ["action"], engine)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_flipped_bits_never_take_the_process_down(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows = make_rows({0: (0, 20), 1: (1, 30)}, dim=3)
    root = write_meta(tmp_path_factory.mktemp("flipped"))
    path = root / file_name(0)
    options = data.draw(writers())
    write_table(to_table(rows), path, groups=[20], **options)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(4, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    for engine in ENGINES:
        answers(root, ["action", "frame_index"], engine)
    shutil.rmtree(root)
