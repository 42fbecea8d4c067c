"""The kernels against the oracle, and against the NumPy and SciPy that are installed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from vlaprep import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

NUMPY_24 = tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 4)
QS = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)


def i64(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.int64)


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal dtype, shape and bits.

    Any NaN equals any NaN, and zeros may differ in sign: which of several zeros stands at a rank is
    up to NumPy's partition, and so to the CPU.
    """
    np.testing.assert_array_equal(got, want, strict=True)


def answers_or_refuses(call: Callable[[], Any], want: np.ndarray) -> None:
    """An input of another form gives the same answer or an ordinary error, never another answer."""
    try:
        got = call()
    except (TypeError, ValueError, OverflowError):
        return
    np.testing.assert_array_equal(got, want)


# ------------------------------------------------------------------ percentiles and buckets

# Few distinct values, so that ties, and tasks just below and just above ten lengths, are common.
lengths_and_tasks = st.lists(
    st.tuples(st.one_of(st.integers(1, 30), st.integers(1, 10**6)), st.integers(-3, 4)),
    max_size=120,
)


@given(lengths_and_tasks)
def test_percentiles_by_task_is_numpy(pairs: list[tuple[int, int]]) -> None:
    lengths, tasks = i64([p[0] for p in pairs]), i64([p[1] for p in pairs])
    got_tasks, boundaries = kernels.percentiles_by_task(lengths, tasks)
    want = reference.percentiles_of_tasks(lengths, tasks)
    assert got_tasks.dtype == np.int64
    assert boundaries.dtype == np.float64
    assert boundaries.shape == (len(want), 10)
    assert got_tasks.tolist() == sorted(want)
    for task, row in zip(got_tasks.tolist(), boundaries, strict=True):
        if want[task] is None:
            assert np.isnan(row).all()
        else:
            assert row.tolist() == want[task]


@given(st.integers(0, 2**32), st.integers(10, 2000))
def test_percentiles_of_many_lengths(seed: int, n: int) -> None:
    lengths = np.random.default_rng(seed).lognormal(5, 1, n).astype(np.int64) + 1
    _, boundaries = kernels.percentiles_by_task(lengths, np.zeros(n, np.int64))
    want = reference.percentiles(lengths.tolist())
    assert boundaries[0].tolist() == want if want else np.isnan(boundaries[0]).all()


def test_percentile_off_by_an_ulp_at_a_whole_rank() -> None:
    # n = 101: p55 is rank 55 exactly, yet the two-sided lerp gives a hair more than 587.
    lengths = i64(37 + 10 * np.arange(101))
    tasks, boundaries = kernels.percentiles_by_task(lengths, np.zeros(101, np.int64))
    assert boundaries[0, 5] == 587.0000000000001
    label = kernels.bucketize(i64([587]), i64([0]), tasks, boundaries)
    assert label.tolist() == [50]


@given(lengths_and_tasks, st.lists(st.integers(-5, 6), max_size=20))
def test_bucketize_is_searchsorted(pairs: list[tuple[int, int]], asked: list[int]) -> None:
    lengths, tasks = i64([p[0] for p in pairs]), i64([p[1] for p in pairs])
    table_tasks, boundaries = kernels.percentiles_by_task(lengths, tasks)
    want_rows = reference.percentiles_of_tasks(lengths, tasks)
    # Ask about every length there is and every rounded boundary (ties).
    ties = np.nan_to_num(boundaries).ravel()
    probe = i64(np.concatenate([lengths, np.floor(ties), np.ceil(ties), [0, 2**62]]))
    probe_tasks = i64(np.resize(asked or [0], len(probe)))
    labels = kernels.bucketize(probe, probe_tasks, table_tasks, boundaries)
    assert labels.dtype == np.int64
    for length, task, label in zip(probe.tolist(), probe_tasks.tolist(), labels, strict=True):
        assert label == reference.bucket(length, want_rows.get(task))


@given(st.lists(st.integers(0, 40), min_size=10, max_size=10), st.lists(st.integers(0, 41)))
def test_bucketize_with_equal_boundaries(values: list[int], lengths: list[int]) -> None:
    row = np.sort(np.asarray(values, np.float64))
    labels = kernels.bucketize(
        i64(lengths), np.zeros(len(lengths), np.int64), i64([0]), row.reshape(1, 10)
    )
    assert labels.tolist() == [reference.bucket(length, row.tolist()) for length in lengths]


def test_bucketize_of_nothing_and_of_nobody_known() -> None:
    none = i64([])
    table = np.empty((0, 10))
    assert kernels.bucketize(none, none, none, table).shape == (0,)
    assert kernels.bucketize(i64([3, 9]), i64([0, 7]), none, table).tolist() == [50, 50]
    tasks, boundaries = kernels.percentiles_by_task(none, none)
    assert tasks.shape == (0,)
    assert boundaries.shape == (0, 10)


def test_ids_and_lengths_that_are_far_apart() -> None:
    # No table can be as large as these, and none is made.
    rng = np.random.default_rng(0)
    for spread in (1, 10**6, 10**15):
        lengths = rng.integers(1, 90, 3000) * spread
        tasks = rng.integers(-2, 3, 3000) * spread
        known, boundaries = kernels.percentiles_by_task(lengths, tasks)
        want = reference.percentiles_of_tasks(lengths, tasks)
        assert dict(zip(known.tolist(), boundaries.tolist(), strict=True)) == want
        labels = kernels.bucketize(lengths, tasks, known, boundaries)
        assert labels.tolist() == [
            reference.bucket(length, want[task])
            for length, task in zip(lengths.tolist(), tasks.tolist(), strict=True)
        ]


def test_labels_whatever_the_threads() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.lognormal(5.6, 0.4, 600_000).astype(np.int64)
    tasks = rng.integers(0, 90, 600_000)
    for first in (0, -7):
        ranked = kernels.percentiles_by_task(lengths, tasks + first, num_threads=1)
        labels = kernels.bucketize(lengths, tasks + first, *ranked, num_threads=1)
        of_one = lengths[tasks == 3]
        assert ranked[1][3].tolist() == reference.percentiles(of_one.tolist())
        want = 10 * np.searchsorted(ranked[1][3], of_one, side="right")
        np.testing.assert_array_equal(labels[tasks == 3], want)
        for threads in (2, 5, None):
            again = kernels.percentiles_by_task(lengths, tasks + first, num_threads=threads)
            assert [a.tobytes() for a in again] == [a.tobytes() for a in ranked]
            got = kernels.bucketize(lengths, tasks + first, *ranked, num_threads=threads)
            np.testing.assert_array_equal(got, labels)


# -------------------------------------------------------------------------------- quantile

ordinary = {
    np.float32: st.floats(-1e6, 1e6, width=32),
    np.float64: st.floats(-1e6, 1e6),
}
anything = {np.float32: st.floats(width=32), np.float64: st.floats()}


@st.composite
def matrices(draw: Any, elements: dict[type, Any]) -> np.ndarray:
    kind = draw(st.sampled_from([np.float32, np.float64]))
    shape = draw(st.tuples(st.integers(1, 25), st.integers(1, 4)))
    fill = st.sampled_from([0.0, 1.0, -3.5])  # ties
    return draw(hnp.arrays(kind, shape, elements=elements[kind], fill=fill)) + kind(0.0)


@given(matrices(ordinary), st.one_of(st.sampled_from(QS), st.floats(0, 1)))
def test_quantile_has_the_bits_of_numpy_24(x: np.ndarray, q: float) -> None:
    got = kernels.quantile(x, q)
    same_bits(got, reference.quantile24(x, q))
    if NUMPY_24:
        same_bits(got, np.quantile(x, q, axis=0))


@given(matrices(anything), st.sampled_from(QS))
def test_quantile_of_nan_and_infinity(x: np.ndarray, q: float) -> None:
    got = kernels.quantile(x, q)
    np.testing.assert_array_equal(got, reference.quantile24(x, q), strict=True)
    if NUMPY_24:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, np.quantile(x, q, axis=0), strict=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 99, 100, 101, 5000])
def test_quantile_of_larger_columns(n: int, dtype: type) -> None:
    x = np.random.default_rng(n).normal(0, 2, (n, 3)).astype(dtype)
    x[:, 2] = np.around(x[:, 2])  # many ties
    for q in QS:
        same_bits(kernels.quantile(x, q), reference.quantile24(x, q))


def test_quantile_of_extreme_values_does_not_raise() -> None:
    for kind in (np.float32, np.float64):
        top = np.finfo(kind).max
        tiny = np.finfo(kind).smallest_subnormal
        x = np.array([[top, tiny, np.inf], [-top, -tiny, 1.0], [top, 0.0, -np.inf]], kind)
        for q in QS:
            got = kernels.quantile(x, q)
            np.testing.assert_array_equal(got, reference.quantile24(x, q), strict=True)


SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "noise": lambda rng, n: rng.normal(0, 2, n),
    "sorted": lambda rng, n: np.sort(rng.normal(0, 2, n)),
    "reversed": lambda rng, n: np.sort(rng.normal(0, 2, n))[::-1],
    "blocks": lambda rng, n: np.repeat(rng.normal(0, 2, n // 500 + 1), 500)[:n],
    "one value": lambda rng, n: np.full(n, rng.normal()),
    "gripper": lambda rng, n: np.where(rng.random(n) < 0.3, 1.0, -1.0),
    "ticks": lambda rng, n: np.around(rng.normal(0, 2, n)),
    "rare spikes": lambda rng, n: np.where(rng.random(n) < 2e-4, 1e9, 0.0),
    "zeros of both signs": lambda rng, n: np.copysign(0.0, rng.normal(0, 1, n)),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n) ** 3,
    "infinities": lambda rng, n: rng.choice([-np.inf, -1.0, 0.5, np.inf], n),
    "extremes": lambda rng, n: rng.choice([-3e38, -1e-45, -0.0, 1e-45, 3e38], n),
    "late": lambda rng, n: np.where(np.arange(n) < n - n // 90, 0.0, rng.normal(0, 1, n)),
    "a NaN": lambda rng, n: np.where(np.arange(n) == rng.integers(n), np.nan, rng.random(n)),
}


@given(
    st.integers(0, 2**32),
    st.integers(8000, 30_000),
    st.lists(st.sampled_from(list(SHAPES)), min_size=1, max_size=5),
    st.sampled_from([np.float32, np.float64]),
    st.lists(st.one_of(st.sampled_from(QS), st.floats(0, 1)), max_size=4),
    st.integers(1, 3),
)
def test_quantiles_of_many_rows(
    seed: int, n: int, shapes: list[str], dtype: type, qs: list[float], threads: int
) -> None:
    rng = np.random.default_rng(seed)
    x = np.stack([SHAPES[shape](rng, n) for shape in shapes], axis=1).astype(dtype)
    got = kernels.quantile(x, qs, num_threads=threads)
    assert got.shape == (len(qs), len(shapes))
    assert got.dtype == dtype
    with np.errstate(all="ignore"):
        for q, row in zip(qs, got, strict=True):
            same_bits(row, reference.quantile24(x, q))
            same_bits(row, kernels.quantile(x, q))
            if NUMPY_24:
                same_bits(row, np.quantile(x, q, axis=0))


@pytest.mark.parametrize("shape", [(2_000_000, 1), (100_000, 14), (9000, 300)])
def test_quantiles_whatever_the_threads(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    x = np.around(rng.normal(0, 1, shape), 4).astype(np.float32)
    one = kernels.quantile(x, QS, num_threads=1)
    for q, row in zip(QS, one, strict=True):
        same_bits(row, reference.quantile24(x, q))
    for threads in (2, 3, None):
        assert kernels.quantile(x, QS, num_threads=threads).tobytes() == one.tobytes()


def test_quantile_of_one_q_and_of_several() -> None:
    x = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    for one in (0.3, np.float64(0.3), np.array(0.3)):
        assert kernels.quantile(x, one).shape == (3,)
    for several in ([0.3], (0.3,), np.array([0.3], np.float32), [0, 1], []):
        assert kernels.quantile(x, several).shape == (len(several), 3)


def test_quantile_golden(golden: Any) -> None:
    with np.load(golden / "quantile.npz") as stored:
        names = [name for name in stored.files if name.startswith("x_")]
        assert len(names) == 10
        for name in names:
            x, want = stored[name], stored["q_" + name[2:]]
            for q, row in zip((0.01, 0.1, 0.5, 0.9, 0.99), want, strict=True):
                same_bits(kernels.quantile(x, q), row)


# ----------------------------------------------------------------------------- DCT and rounding


@st.composite
def chunk_batches(draw: Any) -> np.ndarray:
    kind = draw(st.sampled_from([np.float32, np.float64]))
    shape = draw(st.tuples(st.integers(0, 4), st.integers(1, 60), st.integers(1, 9)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from([1e-3, 1.0, 30.0, 1e3]))
    walk = rng.normal(0, size, shape)
    return (np.cumsum(walk, axis=1) if draw(st.booleans()) else walk).astype(kind)


@given(chunk_batches(), st.sampled_from([1.0, 10.0, 25.0, 0.5, 7.3]))
def test_dct_quantize_is_scipy(chunks: np.ndarray, scale: float) -> None:
    got = kernels.dct_quantize(chunks, scale)
    want, near_half = reference.dct_quantize(chunks, scale)
    assert got.dtype == np.int32
    assert got.shape == chunks.shape
    assert ((got == want) | near_half).all()
    assert np.abs(got - want).max(initial=0) <= 1


@given(hnp.arrays(np.float32, (2, 8, 3), elements=st.floats(-2, 2, width=32)))
def test_dct_quantize_of_crafted_values(chunks: np.ndarray) -> None:
    got = kernels.dct_quantize(chunks, 10.0)
    want, near_half = reference.dct_quantize(chunks, 10.0)
    assert ((got == want) | near_half).all()


def test_dct_of_a_half_rounds_to_even() -> None:
    # One frame: the transform is the identity, so halves stay exact.
    chunks = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5]).reshape(6, 1, 1)
    assert kernels.dct_quantize(chunks, 1.0).ravel().tolist() == [0, 2, 2, 0, -2, -2]


def test_a_chunk_does_not_depend_on_its_batch() -> None:
    chunks = np.random.default_rng(0).normal(size=(37, 50, 14)).astype(np.float32)
    alone = [kernels.dct_quantize(chunk[None], 10.0)[0] for chunk in chunks]
    np.testing.assert_array_equal(kernels.dct_quantize(chunks, 10.0), np.stack(alone))


# --------------------------------------------------------------------------------- gather


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 12), st.data())
def test_gather_chunks_is_slicing(n_rows: int, dim: int, chunk: int, data: Any) -> None:
    rows = np.random.default_rng(n_rows).normal(size=(n_rows, dim)).astype(np.float32)
    rows[n_rows // 2, 0] = np.nan
    fits = n_rows - chunk
    first = data.draw(st.lists(st.integers(0, fits), max_size=9)) if fits >= 0 else []
    got = kernels.gather_chunks(rows, i64(first), chunk)
    assert got.dtype == np.float32
    assert got.shape == (len(first), chunk, dim)
    for chunk_rows, start in zip(got, first, strict=True):
        np.testing.assert_array_equal(chunk_rows, rows[start : start + chunk])


def test_many_chunks_whatever_the_threads() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30_000, 14)).astype(np.float32)
    first = rng.integers(0, 29_951, 5000)
    want = np.stack([rows[start : start + 50] for start in first])
    for threads in (1, 2, 5, None):
        got = kernels.gather_chunks(rows, first, 50, num_threads=threads)
        np.testing.assert_array_equal(got, want)


def test_chunks_beyond_memory_are_refused() -> None:
    rows = np.zeros((1 << 24, 1), np.float32)  # a PiB in all, beyond any address space
    with pytest.raises(MemoryError, match="do not fit into memory"):
        kernels.gather_chunks(rows, np.zeros(1 << 24, np.int64), 1 << 24)


ROWS = np.arange(20, dtype=np.float32).reshape(10, 2)


@pytest.mark.parametrize(
    ("first", "chunk"),
    [
        ([-1], 3),
        ([0, 8], 3),
        ([10], 1),
        ([2**62], 3),
        ([-(2**63)], 3),
        ([2**63 - 1], 2),
        ([0], 11),
        ([0], 0),
        ([0], -1),
        ([0], 2**62),
        ([0], 2**70),
    ],
)
def test_gather_outside_the_rows_is_an_error(first: list[int], chunk: int) -> None:
    with pytest.raises((ValueError, IndexError, OverflowError)):
        kernels.gather_chunks(ROWS, i64(first), chunk)


# ------------------------------------------------------------------------- bad arguments

NAN3 = np.array([[[0.1], [np.nan]]], np.float32)
INF3 = np.array([[[0.1], [-np.inf]]], np.float64)
TWO = i64([1, 2])
TABLE = np.arange(10, dtype=np.float64).reshape(1, 10)

BAD_CALLS: dict[str, Callable[[], Any]] = {
    "percentiles: lengths differ": lambda: kernels.percentiles_by_task(TWO, i64([0])),
    "percentiles: two dims": lambda: kernels.percentiles_by_task(TWO[None], TWO[None]),
    "percentiles: floats": lambda: kernels.percentiles_by_task(TWO + 0.5, TWO),
    "percentiles: text": lambda: kernels.percentiles_by_task("12", "00"),
    "percentiles: None": lambda: kernels.percentiles_by_task(None, None),
    "bucketize: lengths differ": lambda: kernels.bucketize(TWO, i64([0]), i64([0]), TABLE),
    "bucketize: rows differ": lambda: kernels.bucketize(TWO, TWO, TWO, TABLE),
    "bucketize: nine boundaries": lambda: kernels.bucketize(TWO, TWO, i64([0]), TABLE[:, :9]),
    "bucketize: one dim": lambda: kernels.bucketize(TWO, TWO, i64([0]), TABLE[0]),
    "bucketize: integers": lambda: kernels.bucketize(TWO, TWO, i64([0]), TABLE.astype(complex)),
    "quantile: no rows": lambda: kernels.quantile(np.empty((0, 3)), 0.5),
    "quantile: one dim": lambda: kernels.quantile(np.ones(3), 0.5),
    "quantile: three dims": lambda: kernels.quantile(np.ones((2, 2, 2)), 0.5),
    "quantile: q below": lambda: kernels.quantile(np.ones((3, 1)), -0.01),
    "quantile: q above": lambda: kernels.quantile(np.ones((3, 1)), 1.01),
    "quantile: q NaN": lambda: kernels.quantile(np.ones((3, 1)), math.nan),
    "quantile: q text": lambda: kernels.quantile(np.ones((3, 1)), "half"),
    "quantile: one of q above": lambda: kernels.quantile(np.ones((3, 1)), [0.5, 1.01]),
    "quantile: q two dims": lambda: kernels.quantile(np.ones((3, 1)), [[0.5]]),
    "quantile: q None": lambda: kernels.quantile(np.ones((3, 1)), None),
    "quantile: no threads": lambda: kernels.quantile(np.ones((3, 1)), 0.5, num_threads=0),
    "quantile: threads": lambda: kernels.quantile(np.ones((3, 1)), 0.5, num_threads=1025),
    "quantile: complex": lambda: kernels.quantile(np.ones((3, 1), complex), 0.5),
    "quantile: objects": lambda: kernels.quantile(np.array([["a"]], object), 0.5),
    "dct: two dims": lambda: kernels.dct_quantize(np.ones((3, 2)), 10.0),
    "dct: NaN": lambda: kernels.dct_quantize(NAN3, 10.0),
    "dct: infinity": lambda: kernels.dct_quantize(INF3, 10.0),
    "dct: beyond int32": lambda: kernels.dct_quantize(np.full((1, 2, 1), 1e12), 10.0),
    "dct: scale NaN": lambda: kernels.dct_quantize(np.ones((1, 2, 1)), math.nan),
    "dct: scale infinity": lambda: kernels.dct_quantize(np.ones((1, 2, 1)), math.inf),
    "dct: complex": lambda: kernels.dct_quantize(np.ones((1, 2, 1), complex), 10.0),
    "gather: one dim": lambda: kernels.gather_chunks(ROWS[0], i64([0]), 1),
    "gather: starts two dims": lambda: kernels.gather_chunks(ROWS, i64([[0]]), 1),
    "gather: starts float": lambda: kernels.gather_chunks(ROWS, np.array([0.5]), 1),
    "gather: chunk float": lambda: kernels.gather_chunks(ROWS, i64([0]), 1.5),
    "gather: chunk None": lambda: kernels.gather_chunks(ROWS, i64([0]), None),
    "gather: rows complex": lambda: kernels.gather_chunks(ROWS.astype(complex), i64([0]), 1),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_arguments_raise_an_ordinary_error(name: str) -> None:
    # A Rust panic is a BaseException and would pass this by.
    with pytest.raises((TypeError, ValueError, OverflowError)) as caught:
        BAD_CALLS[name]()
    assert str(caught.value)


@pytest.mark.parametrize("form", ["strided", "fortran", "swapped", "misaligned"])
def test_other_memory_layouts_give_the_same_answer_or_an_error(form: str) -> None:
    x = np.random.default_rng(3).normal(size=(40, 4))
    chunks = np.random.default_rng(4).normal(size=(3, 8, 2))
    rows = x.astype(np.float32)
    lengths = np.random.default_rng(5).integers(1, 99, 40)

    answers_or_refuses(lambda: kernels.quantile(relayed(x, form), 0.3), kernels.quantile(x, 0.3))
    answers_or_refuses(
        lambda: kernels.dct_quantize(relayed(chunks, form), 10.0),
        kernels.dct_quantize(chunks, 10.0),
    )
    answers_or_refuses(
        lambda: kernels.gather_chunks(relayed(rows, form), i64([0, 5]), 4),
        kernels.gather_chunks(rows, i64([0, 5]), 4),
    )
    zeros = np.zeros(40, np.int64)
    answers_or_refuses(
        lambda: kernels.percentiles_by_task(relayed(lengths, form), zeros)[1],
        kernels.percentiles_by_task(lengths, zeros)[1],
    )


def relayed(x: np.ndarray, form: str) -> np.ndarray:
    """The same values in another memory layout."""
    if form == "strided":
        return np.repeat(x, 2, axis=-1)[..., ::2]
    if form == "fortran":
        return np.asfortranarray(x)
    if form == "swapped":
        return x.astype(x.dtype.newbyteorder())
    return np.frombuffer(b"\0" + x.tobytes(), dtype=x.dtype, offset=1).reshape(x.shape)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int16])
def test_other_integer_widths_give_the_same_answer_or_an_error(dtype: type) -> None:
    lengths, tasks = np.arange(1, 31), np.zeros(30, np.int64)
    want = kernels.percentiles_by_task(i64(lengths), tasks)[1]
    answers_or_refuses(
        lambda: kernels.percentiles_by_task(lengths.astype(dtype), tasks.astype(dtype))[1], want
    )


def test_read_only_arrays_are_welcome_and_inputs_stay_as_they_are() -> None:
    x = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32)
    chunks, lengths, tasks = x.reshape(4, 10, 4), i64(range(40)), np.zeros(40, np.int64)
    kept = [a.copy() for a in (x, lengths, tasks)]
    for array in (x, chunks, lengths, tasks):
        array.flags.writeable = False
    kernels.quantile(x, 0.5)
    kernels.dct_quantize(chunks, 10.0)
    kernels.gather_chunks(x, lengths[:3], 2)
    found, boundaries = kernels.percentiles_by_task(lengths, tasks)
    kernels.bucketize(lengths, tasks, found, boundaries)
    for array, before in zip((x, lengths, tasks), kept, strict=True):
        np.testing.assert_array_equal(array, before)
