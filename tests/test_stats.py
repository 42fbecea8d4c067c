"""Statistics of whole columns against NumPy on the same columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vlaprep
from lerobot_folder import (
    file_name,
    list_array,
    make_rows,
    to_table,
    write_meta,
    write_table,
    write_v3,
)
from vlaprep._native import Reader
from vlaprep.errors import DatasetFormatError, EpisodeSelectionError

if TYPE_CHECKING:
    from pathlib import Path

    from vlaprep.dataset import ColumnStats

Q = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)
NUMPY_24 = np.lib.NumpyVersion(np.__version__) >= "2.4.0"


def hold_numpy(got: ColumnStats, x: np.ndarray) -> None:
    """Every bit of what is a value of the column, and close sums."""
    x = x if x.ndim == 2 else x[:, None]
    assert got.count == len(x)
    np.testing.assert_array_equal(got.min, x.min(axis=0).astype(np.float64), strict=True)
    np.testing.assert_array_equal(got.max, x.max(axis=0).astype(np.float64), strict=True)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(got.mean, wide.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got.std, wide.std(axis=0), rtol=1e-9, atol=1e-9)
    assert got.quantiles.shape == (len(got.q), x.shape[1])
    for q, quantiles in zip(got.q, got.quantiles, strict=True):
        want = np.quantile(x, q, axis=0).astype(np.float64)
        if NUMPY_24 or x.dtype != np.float32:
            np.testing.assert_array_equal(quantiles, want, strict=True)
        else:
            np.testing.assert_allclose(quantiles, want, rtol=1e-5, atol=1e-6)


@st.composite
def columns(draw: Any) -> np.ndarray:
    """Rows of which many are equal, sorted, far apart or not finite."""
    count, dims = draw(st.integers(1, 3000)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.normal(size=(count, dims))
    kind = draw(st.sampled_from(["noise", "few", "sorted", "steps", "constant", "nan", "huge"]))
    if kind == "few":
        x = np.round(x)
    elif kind == "sorted":
        x = np.sort(x, axis=0)
    elif kind == "steps":
        x = np.repeat(x[:: max(1, count // 5)], count // 5 + 2, axis=0)[:count]
    elif kind == "constant":
        x[:] = 0.25
    elif kind == "nan":
        x[draw(st.integers(0, count - 1)), 0] = np.nan
    elif kind == "huge":
        x *= 10.0 ** draw(st.integers(10, 30))
    return x.astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(columns(), st.sampled_from([50, 10**6]), st.booleans())
def test_stats_are_those_of_numpy(
    tmp_path_factory: pytest.TempPathFactory, x: np.ndarray, every: int, fallback: bool
) -> None:
    rows = make_rows({3: (0, len(x))}) | {"action": x}
    root = write_meta(tmp_path_factory.mktemp("stats"))
    codec = "gzip" if fallback else "snappy"  # what is not read from pages gives the same
    ends = list(range(every, len(x), every))
    write_table(to_table(rows), root / file_name(0), groups=ends, compression=codec)
    taken = [
        vlaprep.open_dataset(root, num_threads=threads).stats("action", q=Q) for threads in (1, 3)
    ]
    with np.errstate(all="ignore"):
        hold_numpy(taken[0]["action"], vlaprep.open_dataset(root).read("action")["action"])
    np.testing.assert_equal(vars(taken[0]["action"]), vars(taken[1]["action"]))


def test_columns_of_every_kind(tmp_path: Path) -> None:
    rows = make_rows({0: (0, 200), 4: (1, 300)}, dim=3)
    scalar = np.linspace(-1, 1, 500, dtype=np.float32)
    table = to_table(
        rows,
        scalar=pa.array(scalar),
        double=list_array(rows["action"], "list", pa.float64()),
        half=list_array(rows["action"], "fixed", pa.float16()),
    )
    dataset = vlaprep.open_dataset(write_v3(tmp_path, table))
    names = ["action", "scalar", "double", "half", "frame_index", "index"]
    read, stats = dataset.read(names), dataset.stats(names, q=Q)
    assert list(stats) == names
    for name in names:
        hold_numpy(stats[name], read[name])
    some = dataset.stats("action", q=Q, episodes=[4])["action"]
    hold_numpy(some, dataset.read("action", episodes=[4])["action"])
    assert dataset.stats().keys() == {"action"}
    assert dataset.stats("action", q=())["action"].quantiles.shape == (0, 3)


def test_both_engines_take_the_same(tmp_path: Path) -> None:
    root = write_v3(tmp_path, make_rows({0: (0, 200), 4: (1, 300)}, dim=3))
    positions = np.arange(2)
    pages, arrow = (
        Reader(root, engine=engine).stats(["action", "frame_index"], positions, list(Q))
        for engine in ("pages", "arrow")
    )
    np.testing.assert_equal(pages, arrow)


def test_what_cannot_be_taken_is_named(tmp_path: Path) -> None:
    rows = make_rows({0: (0, 20)})
    ragged = pa.array([[1.0, 2.0]] * 19 + [[1.0]], pa.list_(pa.float32()))
    nulls = pa.array([1, None] * 10, pa.int64())
    table = to_table(rows, ragged=ragged, nulls=nulls, text=pa.array(["a"] * 20))
    dataset = vlaprep.open_dataset(write_v3(tmp_path, table))
    for column, words in {
        "ragged": r"row 19: it has 1 values where the rows of this column have 2",
        "nulls": "null",
        "text": "not vectors of numbers",
        "absent": "no column",
    }.items():
        with pytest.raises(DatasetFormatError, match=words):
            dataset.stats(column)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        dataset.stats("action", q=[1.5])
    with pytest.raises(EpisodeSelectionError, match="7"):
        dataset.stats("action", episodes=[7])
