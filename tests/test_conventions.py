"""The trainers' normalisers by name: formulas to the last bit, and where statistics come from."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import reference
from action_chunks import smooth
from vlaprep import open_dataset
from vlaprep.conventions import CONVENTIONS, STATISTICS
from vlaprep.errors import (
    DatasetFormatError,
    DatasetNotFoundError,
    NoChunksError,
    TokenizerFormatError,
)
from vlaprep.normalization import Normalization
from vlaprep.normalization_stats import sample_statistics

if TYPE_CHECKING:
    from pathlib import Path

RULES = [(name, mode) for name, rule in CONVENTIONS.items() for mode in rule.modes]
WITH_STATISTICS = [(name, mode) for name, mode in RULES if mode != "IDENTITY"]
DIMS = 4
SPECIAL = [0.0, -0.0, 1e-45, -1e-40, 3e38, -3e38, np.nan, np.inf, -np.inf, 1.0]


def test_what_there_is() -> None:
    every = {"IDENTITY", "MEAN_STD", "MIN_MAX", "QUANTILES", "QUANTILE10"}
    assert set(STATISTICS) == every
    assert {name: set(rule.modes) for name, rule in CONVENTIONS.items()} == {
        "pi052": {"IDENTITY", "QUANTILES"},
        "lerobot": every,
        "lerobot-train-tokenizer": every,
        "openpi": every,
        "opentau": {"IDENTITY", "MIN_MAX", "QUANTILES"},
    }
    kinds = {n: (r.dtype, r.result_dtype) for n, r in CONVENTIONS.items()}
    single, double = np.float32, np.float64
    assert kinds == {
        "pi052": (single, single),
        "lerobot": (single, single),
        "lerobot-train-tokenizer": (double, double),
        "openpi": (double, double),
        "opentau": (double, single),
    }


# ---------------------------------------------------------------------------------- formulas


def bits(array: np.ndarray) -> tuple[Any, ...]:
    """Shape, dtype and bytes; every NaN is the same."""
    array = np.array(array)
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    return array.shape, array.dtype, array.tobytes()


FLOATS = st.floats(
    width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100
)
NARROW = st.sampled_from([0.0, 1e-45, 1e-12, 9.9e-9, 1e-8, 1e-7, 9.9e-7, 1e-6, 1.1e-6, 1e-3])


@st.composite
def statistics(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """float64 lo and hi, some dims constant or barely not."""
    low = draw(npst.arrays(np.float32, DIMS, elements=FLOATS)).astype(np.float64)
    width = np.abs(draw(npst.arrays(np.float32, DIMS, elements=FLOATS))).astype(np.float64)
    width[: draw(st.integers(0, DIMS))] = draw(NARROW)
    if draw(st.booleans()):
        low[:2] = 0.0  # else a narrow width is lost beside it
    return low, low + width


@pytest.mark.parametrize(("name", "mode"), WITH_STATISTICS)
@given(
    pair=statistics(),
    x=npst.arrays(
        np.float32, (3, 2, DIMS), elements=st.floats(width=32) | st.sampled_from(SPECIAL)
    ),
    wide=st.booleans(),
)
def test_equal_to_the_formula_to_the_last_bit(
    name: str, mode: str, pair: Any, x: np.ndarray, wide: bool
) -> None:
    lo, hi = pair if mode != "MEAN_STD" else (pair[0], pair[1] - pair[0])
    rule = CONVENTIONS[name]
    norm = Normalization(name, mode, lo, hi)
    lo, hi = lo.astype(rule.dtype), hi.astype(rule.dtype)
    assert (bits(norm.lo), bits(norm.hi)) == (bits(lo), bits(hi))
    x[0, 0], x[0, 1] = lo, hi
    if rule.dtype is np.float64 and wide:  # NumPy's promotion is then no other
        x = x.astype(np.float64) * (1 + 2**-40)
    with np.errstate(all="ignore"):
        got, want = norm.normalize(x), reference.normalize(name, mode, x, lo, hi)
        assert norm.extent(x).shape == (DIMS,)
        assert np.array_equal(norm.extent(x), np.abs(want).max(axis=(0, 1)), equal_nan=True)
        clipped = norm.clipped_fraction(x)
    assert bits(got) == bits(want)
    assert got.dtype == norm.normalizes_to(x.dtype) == rule.result_dtype
    if name in ("lerobot", "openpi") or mode == "MIN_MAX" or name == "opentau":
        assert not clipped[~np.isnan(x).any(axis=(0, 1))].any()


@pytest.mark.parametrize("name", CONVENTIONS)
def test_identity_gives_back_what_it_gets(name: str) -> None:
    norm = Normalization(name, "IDENTITY")
    for dtype in (np.float32, np.float64, np.int64):
        x = np.arange(24).reshape(2, 4, 3).astype(dtype)
        if x.dtype.kind == "f":
            x[0, 0] = np.nan, np.inf, -0.0
        assert bits(norm.normalize(x)) == bits(norm.unnormalize(x)) == bits(x)
        assert norm.normalizes_to(dtype) == dtype
        assert bits(norm.clipped_fraction(x)) == bits(np.zeros(3))
    assert norm.extent(np.float32([[1, -3], [2, 0]])).tolist() == [2, 3]
    assert (norm.action_dim, norm.constant_dims, norm.lo.shape) == (None, (), (0,))
    assert Normalization(name, "IDENTITY", relative=[True, False]).action_dim == 2
    with pytest.raises(ValueError, match="IDENTITY has no statistics"):
        Normalization(name, "IDENTITY", [0.0], [1.0])
    assert Normalization.fit(smooth(3), convention=name, mode="IDENTITY") == norm


@pytest.mark.parametrize(("name", "mode"), WITH_STATISTICS)
@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-3, 5))
def test_there_and_back(name: str, mode: str, seed: int, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    size = 10.0**exponent
    lo = rng.uniform(-1, 1, DIMS) * size
    hi = rng.uniform(0.1, 1, DIMS) * size + (0 if mode == "MEAN_STD" else lo)
    norm = Normalization(name, mode, lo, hi)
    x = np.clip((lo + rng.uniform(0, 1, (50, DIMS)) * (hi - lo)), norm.lo, norm.hi)
    if mode == "MEAN_STD":
        x = lo + rng.uniform(-3, 3, (50, DIMS)) * hi
    x = x.astype(norm.lo.dtype)
    values = norm.normalize(x)
    back = norm.unnormalize(values.astype(np.float64))
    assert back.dtype == np.float64
    bound = 1e-13 if values.dtype == np.float64 else 1e-6
    assert np.abs(back - x).max() <= 8 * bound * size
    assert norm.unnormalize(values).dtype == norm.lo.dtype
    if mode != "MEAN_STD":
        assert np.abs(values).max() <= 1 + 4 * bound


@pytest.mark.parametrize(
    ("name", "mode", "hi", "at_lo", "one_above", "constant"),
    [
        ("pi052", "QUANTILES", 5.0, -1, 1, True),
        ("lerobot", "MIN_MAX", 5.0, -1, 2e8, True),
        ("lerobot", "MEAN_STD", 0.0, 0, 1e8, True),
        ("lerobot-train-tokenizer", "MIN_MAX", 5.0, -1, 2e8, True),
        ("lerobot-train-tokenizer", "QUANTILES", 5.0, -1, -1, True),
        ("openpi", "QUANTILES", 5.0, -1, 2e6, True),
        ("opentau", "MIN_MAX", 5.0, 0, 2, True),
        ("lerobot", "MEAN_STD", 1.0, 0, 1, False),
        ("opentau", "MIN_MAX", 7.0, -1, 0, False),
    ],
)
def test_what_a_constant_dim_becomes(
    name: str, mode: str, hi: float, at_lo: float, one_above: float, constant: bool
) -> None:
    norm = Normalization(name, mode, [5.0], [hi])
    np.testing.assert_allclose(
        norm.normalize([[5.0], [6.0]]).ravel(), [at_lo, one_above], 3e-6, 3e-6
    )
    assert norm.constant_dims == ((0,) if constant else ())
    # What a constant dim was is what comes back, whatever the convention made of it.
    assert norm.unnormalize(norm.normalize([[5.0]])).item() == pytest.approx(5, abs=1e-6)
    assert norm.extent([[5.0], [6.0]]).item() == pytest.approx(
        max(abs(at_lo), abs(one_above)), 1e-5
    )


def test_counting_changes_nothing() -> None:
    chunks = smooth(20)
    for name, mode in RULES:
        norm = Normalization.fit(chunks, convention=name, mode=mode)
        values, counts = norm.normalize_counting(chunks)
        assert bits(values) == bits(norm.normalize(chunks))
        assert (counts / (chunks.size // 3)).tolist() == norm.clipped_fraction(chunks).tolist()


# -------------------------------------------------------------------------------- statistics


@given(
    rows=npst.arrays(
        st.sampled_from([np.float32, np.float64]),
        st.tuples(st.integers(1, 40), st.integers(1, 4)),
        elements=st.floats(-1e6, 1e6, width=32),
    )
)
def test_statistics_of_rows_are_numpys(rows: np.ndarray) -> None:
    lo, hi = sample_statistics([rows], "MIN_MAX")
    assert (lo.tolist(), hi.tolist()) == (rows.min(axis=0).tolist(), rows.max(axis=0).tolist())
    mean, std = sample_statistics([rows], "MEAN_STD")  # sums in another order than NumPy's
    largest = np.abs(rows).max(initial=1e-300)
    np.testing.assert_allclose(mean, np.mean(rows, axis=0, dtype=np.float64), atol=1e-13 * largest)
    np.testing.assert_allclose(std, np.std(rows, axis=0, dtype=np.float64), atol=1e-13 * largest)
    for mode, q in (("QUANTILES", (0.01, 0.99)), ("QUANTILE10", (0.1, 0.9))):
        got = sample_statistics([rows], mode)
        want = [reference.quantile24(rows, value) for value in q]
        assert [bits(a + 0) for a in got] == [bits(a + 0) for a in want]  # -0.0 sorts anywhere
    for mode, (name, rule) in itertools.product(STATISTICS, CONVENTIONS.items()):
        if mode in rule.modes and mode != "IDENTITY":
            norm = Normalization.fit(rows[None], convention=name, mode=mode)
            own = rows.astype(np.float32) if rule.dtype is np.float32 else rows
            want = [value.astype(rule.dtype) for value in sample_statistics([own], mode)]
            assert [bits(norm.lo), bits(norm.hi)] == [bits(value) for value in want]


@pytest.mark.parametrize(("name", "mode"), WITH_STATISTICS)
@pytest.mark.parametrize("recorded", ["lerobot_v21", "lerobot_v30"])
def test_of_a_dataset_they_are_those_of_its_rows(
    golden: Path, recorded: str, name: str, mode: str
) -> None:
    dataset = open_dataset(golden / recorded)
    norm = Normalization.from_dataset(dataset, convention=name, mode=mode)
    rows = dataset.read("action")["action"]
    want = Normalization.fit(rows, convention=name, mode=mode)
    assert list(norm.dim_names or ()) == dataset.feature_names("action")
    close = 1e-12 if mode == "MEAN_STD" else 0  # the order of a sum
    close = max(close, 2e-7) if close and norm.lo.dtype == np.float32 else close
    np.testing.assert_allclose(norm.lo, want.lo, rtol=close)
    np.testing.assert_allclose(norm.hi, want.hi, rtol=close)
    some = Normalization.from_dataset(dataset, convention=name, mode=mode, episodes=[0, 1])
    assert some != norm


def test_of_a_dataset_identity_reads_nothing(golden: Path) -> None:
    norm = Normalization.from_dataset(
        open_dataset(golden / "lerobot_v30"), convention="openpi", mode="IDENTITY"
    )
    assert norm == Normalization("openpi", "IDENTITY")


STATS = {
    "action": {
        "min": [-1.0, 0.0],
        "max": [1.0, 4.1],
        "mean": [0.1, 2.0],
        "std": [0.5, 1.0],
        "q01": [-0.9, 0.1],
        "q99": [0.9, 3.9],
        "q10": [-0.8, 0.3],
        "q90": [0.8, 3.7],
        "count": [100],
    },
    "observation.state": {"min": [0.0]},
}


@pytest.mark.parametrize(("name", "mode"), WITH_STATISTICS)
def test_of_stats_json_in_every_form(tmp_path: Path, name: str, mode: str) -> None:
    (tmp_path / "meta").mkdir()
    path = tmp_path / "meta" / "stats.json"
    path.write_text(json.dumps(STATS))
    rule = CONVENTIONS[name]
    low, high = (np.array(STATS["action"][key], rule.dtype) for key in STATISTICS[mode])
    arrays = {key: np.array(value) for key, value in STATS["action"].items()}
    for stats in (STATS, STATS["action"], arrays, {"action": arrays}, path, str(tmp_path)):
        norm = Normalization.from_stats(stats, convention=name, mode=mode)
        assert (bits(norm.lo), bits(norm.hi)) == (bits(low), bits(high))
        assert norm.differences(stats) == []


def test_of_a_recorded_stats_json(golden: Path) -> None:
    root = golden / "lerobot_v30"
    norm = Normalization.from_stats(root, convention="lerobot", mode="QUANTILES")
    want = json.loads((root / "meta/stats.json").read_text())["action"]
    assert norm.lo.tolist() == np.float32(want["q01"]).tolist()
    exact = Normalization.from_dataset(open_dataset(root), convention="lerobot", mode="QUANTILES")
    assert len(exact.differences(root)) == 6  # what LeRobot keeps there are no quantiles of rows


@pytest.mark.parametrize(
    ("stats", "kind", "words"),
    [
        ({"actions": {"min": [0]}, "x": {}}, DatasetFormatError, "no column 'action'.*actions, x"),
        ({}, DatasetFormatError, "no column 'action'"),
        (
            {"action": {"min": [0], "mean": [1]}},
            DatasetFormatError,
            "'action'.*no 'max'.*min, mean",
        ),
        ({"min": [0], "std": [0]}, DatasetFormatError, "no 'max', which MIN_MAX needs.*min, std"),
        ({"min": ["a"], "max": [1]}, DatasetFormatError, "'min' holds no numbers"),
        ({"min": [[0]], "max": [[1]]}, ValueError, "flat and equally long"),
        ({"min": [0, 1], "max": [1]}, ValueError, "flat and equally long"),
        ({"min": [0, np.nan], "max": [1, 2]}, ValueError, "dim 1 are not finite"),
        ({"min": [0, None], "max": [1, 2]}, ValueError, "dim 1 are not finite"),
        ({"min": [0], "max": [1e300]}, ValueError, "dim 0 are not finite"),
        ({"min": [0, 2], "max": [1, 1]}, ValueError, "min 2 and max 1 of action dim 1"),
        ({"min": [-3e38], "max": [3e38]}, DatasetFormatError, "more than float32 can subtract"),
        ([1, 2], TypeError, "mapping or a path, not list"),
    ],
)
def test_statistics_that_are_refused(stats: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        Normalization.from_stats(stats, convention="lerobot", mode="MIN_MAX")


def test_files_that_are_refused(tmp_path: Path) -> None:
    options = {"convention": "openpi", "mode": "MIN_MAX"}
    with pytest.raises(DatasetNotFoundError, match=r"meta/stats\.json.*from_dataset"):
        Normalization.from_stats(tmp_path, **options)
    (tmp_path / "stats.json").write_text("{")
    with pytest.raises(DatasetFormatError, match="is no JSON"):
        Normalization.from_stats(tmp_path / "stats.json", **options)
    with pytest.raises(ValueError, match=r"std -1 of action dim 0"):
        Normalization("openpi", "MEAN_STD", [0], [-1])
    with pytest.raises(NoChunksError):
        Normalization.fit(np.zeros((0, 5, 3)), convention="openpi", mode="MIN_MAX")


# ----------------------------------------------------------------------- labels, and on disk


def labelled(**changes: Any) -> Normalization:
    fields: dict[str, Any] = {
        "convention": "lerobot",
        "mode": "MIN_MAX",
        "lo": [0.1, -1.0],
        "hi": [2.0, 1.0],
        "dim_names": ("x", "gripper"),
        "relative": (True, False),
    }
    return Normalization(**{**fields, **changes})


@pytest.mark.parametrize(("name", "mode"), RULES)
def test_survives_json_and_pickle(name: str, mode: str) -> None:
    bare = Normalization.fit(smooth(5) + np.float32(0.1), convention=name, mode=mode)
    names, mask = ("a", "b", "c"), np.array([True, False, True])
    full = Normalization(name, mode, bare.lo, bare.hi, names, mask)
    assert full.relative == (True, False, True)
    for norm in (bare, full):
        data = norm.to_dict()
        assert data["format_version"] == 1
        assert ("dim_names" in data) == ("relative" in data) == (norm is full)
        loaded = Normalization.from_dict(json.loads(json.dumps(data, allow_nan=False)))
        for again in (loaded, pickle.loads(pickle.dumps(norm))):
            assert again == norm
            assert hash(again) == hash(norm)
            assert bits(again.lo) == bits(norm.lo)
            assert (again.dim_names, again.relative) == (norm.dim_names, norm.relative)
    assert bare != full


def test_equal_ones_have_one_hash() -> None:
    zero, minus = (Normalization("pi052", "QUANTILES", [value], [1]) for value in (0.0, -0.0))
    assert zero == minus
    assert hash(zero) == hash(minus)


def test_labels_have_one_entry_a_dim() -> None:
    with pytest.raises(ValueError, match="dim_names has 3 entries, but there are 2 dims"):
        labelled(dim_names=["a", "b", "c"])
    with pytest.raises(ValueError, match="relative must be bool values"):
        labelled(relative=[1, 0])
    with pytest.raises(ValueError, match="dim_names must be str values"):
        labelled(dim_names=[])
    with pytest.raises(ValueError, match="relative has 3 entries, but there are 2 dims"):
        Normalization("lerobot", "IDENTITY", dim_names=["a", "b"], relative=[True] * 3)


def test_what_a_newer_vlaprep_wrote_is_refused() -> None:
    with pytest.raises(TokenizerFormatError, match=r"convention 'pi060'.*update vlaprep"):
        Normalization.from_dict({**labelled().to_dict(), "convention": "pi060"})
    with pytest.raises(TokenizerFormatError, match=r"malformed.*no mode 'MEDIAN'"):
        Normalization.from_dict({**labelled().to_dict(), "mode": "MEDIAN"})
