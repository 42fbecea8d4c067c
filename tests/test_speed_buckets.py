"""Boundaries and labels: bit for bit those of NumPy and of the recorded answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from vlaprep import speed

if TYPE_CHECKING:
    from pathlib import Path

TEN = [50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 350.0, 400.0, 450.0, 500.0]

lengths_with_ties = st.one_of(
    st.lists(st.integers(0, 30), max_size=120),
    st.lists(st.integers(0, 5000), max_size=300),
    st.lists(st.integers(0, 2**40), min_size=10, max_size=40),
)
tasks = st.dictionaries(st.integers(0, 10**12), lengths_with_ties, max_size=6)
boundaries = st.lists(st.integers(0, 400), min_size=10, max_size=10).map(
    lambda quarters: [quarter / 4 for quarter in sorted(quarters)]
)
fractions = st.lists(st.floats(0, 100), min_size=10, max_size=10).map(sorted)


def bits(percentiles: dict[int, list[float] | None]) -> dict[int, list[str] | None]:
    return {
        task: None if row is None else [value.hex() for value in row]
        for task, row in percentiles.items()
    }


def test_constants() -> None:
    assert speed.SPEED_PERCENTILES == (5, 15, 25, 35, 45, 55, 65, 75, 85, 95)
    assert speed.SPEED_BUCKET_LABELS == (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
    assert speed.SPEED_PERCENTILES_PATH == "meta/speed_percentiles.jsonl"
    assert speed.MIN_EPISODES_FOR_PERCENTILES == 10
    assert speed.SPARSE_TASK_BUCKET == 50


def test_recorded_answers(golden: Path) -> None:
    recorded = json.loads((golden / "speed.json").read_text())
    assert len(recorded) == 60
    answer = speed.compute_task_percentiles({i: r["lengths"] for i, r in enumerate(recorded)})
    assert bits(answer) == {i: r["percentiles"] for i, r in enumerate(recorded)}
    for task, row in enumerate(recorded):
        one_by_one = [speed.bucket_episode_length(x, answer[task]) for x in row["probe"]]
        assert one_by_one == row["labels"]
    probes = np.concatenate([r["probe"] for r in recorded])
    task_of = np.repeat(np.arange(60), [len(r["probe"]) for r in recorded])
    at_once = speed.bucket_episode_lengths(probes, task_of, answer)
    assert at_once.dtype == np.int64
    assert at_once.tolist() == [label for r in recorded for label in r["labels"]]


@given(tasks)
def test_percentiles_are_numpys(lengths: dict[int, list[int]]) -> None:
    answer = speed.compute_task_percentiles(lengths)
    assert list(answer) == list(lengths)
    assert bits(answer) == bits({t: reference.percentiles(x) for t, x in lengths.items()})


@given(st.one_of(boundaries, fractions), st.lists(st.integers(-1, 101), max_size=50))
def test_labels_are_searchsorteds(row: list[float], lengths: list[int]) -> None:
    lengths = [abs(x) for x in lengths] + [int(x) for x in row]
    wanted = [reference.bucket(x, row) for x in lengths]
    assert [speed.bucket_episode_length(x, row) for x in lengths] == wanted
    task = np.full(len(lengths), 7)
    assert speed.bucket_episode_lengths(lengths, task, {7: row, 3: None}).tolist() == wanted


def test_order_of_operations_decides_a_label() -> None:
    lengths = [37 + 10 * i for i in range(101)]
    row = speed.compute_task_percentiles({0: lengths})[0]
    assert row is not None
    assert row[5] == 587.0000000000001
    assert speed.bucket_episode_length(587, row) == 50


def test_sparse_and_empty_tasks() -> None:
    nine, ten = [10 * (i % 9) for i in range(100)], [10 * (i % 10) for i in range(100)]
    answer = speed.compute_task_percentiles({5: nine, 3: ten, 9: [], 1: [200] * 100})
    assert list(answer) == [5, 3, 9, 1]
    assert [answer[task] is None for task in answer] == [True, False, True, True]
    assert speed.compute_task_percentiles({}) == {}
    assert speed.compute_task_percentiles({4: []}) == {4: None}


@given(st.lists(st.integers(0, 2**63 - 1), max_size=200))
def test_lists_and_other_sequences_say_the_same(lengths: list[int]) -> None:
    task = [7] * len(lengths)
    wanted = bits(speed.compute_task_percentiles({7: np.array(lengths, np.int64), 3: (5, 6)}))  # type: ignore[dict-item]
    for same in (lengths, tuple(lengths), [np.int64(x) for x in lengths]):
        answer = speed.compute_task_percentiles({7: same, 3: [5, 6]})
        assert bits(answer) == wanted
        labels = speed.bucket_episode_lengths(same, task, answer)
        assert labels.tolist() == [reference.bucket(x, answer[7]) for x in lengths]


@pytest.mark.parametrize("odd", [1.5, "1", None, 2**63, -1])
def test_one_odd_value_in_a_long_list(odd: Any) -> None:
    lengths = [*range(1, 300), odd, *range(300, 400)]
    with pytest.raises((TypeError, ValueError), match="task 1 "):
        speed.compute_task_percentiles({0: [5], 1: lengths})
    with pytest.raises((TypeError, ValueError), match="lengths "):
        speed.bucket_episode_lengths(lengths, [0] * 400, {})


def test_answers_are_plain_python() -> None:
    answer = speed.compute_task_percentiles({0: np.arange(100, 200)})  # type: ignore[dict-item]
    assert answer[0] is not None
    assert {type(value) for value in answer[0]} == {float}
    assert type(speed.bucket_episode_length(75, TEN)) is int
    assert type(speed.bucket_episode_length(np.int64(75), TEN)) is int  # type: ignore[arg-type]
    assert type(speed.bucket_episode_length(75, None)) is int


@pytest.mark.parametrize(
    ("length", "label"),
    [(0, 0), (49, 0), (50, 10), (99, 10), (100, 20), (150, 30), (250, 50), (499, 90),
     (500, 100), (99999, 100)],
)  # fmt: skip
def test_a_tie_goes_up(length: int, label: int) -> None:
    assert speed.bucket_episode_length(length, TEN) == label
    assert speed.bucket_episode_length(length, TEN, ties="mid") == label


class TestTies:
    @pytest.mark.parametrize(
        ("others", "reference_label", "mid"), [(range(101, 191), 90, 50), (range(10, 100), 100, 60)]
    )
    def test_most_of_a_task_of_one_length(
        self, others: range, reference_label: int, mid: int
    ) -> None:
        lengths = [100] * 910 + list(others)
        row = speed.compute_task_percentiles({0: lengths})
        assert speed.bucket_episode_length(100, row[0]) == reference_label
        assert speed.bucket_episode_length(100, row[0], ties="mid") == mid

    @given(boundaries, st.integers(0, 101))
    def test_mid_is_the_middle_of_the_possible_labels(self, row: list[float], length: int) -> None:
        low = np.searchsorted(row, length, side="left")
        high = np.searchsorted(row, length, side="right")
        possible = range(int(low) * 10, int(high) * 10 + 1, 10)
        wanted = possible[len(possible) // 2]
        assert speed.bucket_episode_length(length, row, ties="mid") == wanted
        many = speed.bucket_episode_lengths([length, length], [0, 1], {0: row}, ties="mid")
        assert many.tolist() == [wanted, 50]

    def test_other_words_are_refused(self) -> None:
        for call in (
            lambda: speed.bucket_episode_length(1, None, ties="left"),  # type: ignore[arg-type]
            lambda: speed.bucket_episode_lengths([1], [0], {}, ties="left"),  # type: ignore[arg-type]
        ):
            with pytest.raises(ValueError, match="'left'; it can be 'right' or 'mid'"):
                call()


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ([], "have 0 values"),
        (TEN[:9], "have 9 values instead of 10"),
        ([*TEN, 600.0], "have 11 values"),
        ([*TEN[:9], float("nan")], "nan, which is no finite number"),
        ([*TEN[:9], float("inf")], "inf, which is no finite number"),
        ([*TEN[:9], 10**400], "no finite number"),
        ([*TEN[:9], "500"], "'500', which is no finite number"),
        ([*TEN[:9], None], "None, which is no finite number"),
        ([*TEN[:9], True], "True, which is no finite number"),
        ([*TEN[:9], 449.0], r"decrease from 450\.0 to 449\.0"),
    ],
)
def test_boundaries_that_are_none(row: list[Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        speed.bucket_episode_length(100, row)
    with pytest.raises(ValueError, match=f"task 8 .*{fault}"):
        speed.bucket_episode_lengths([100], [8], {8: row})


class TestArrays:
    def test_unknown_and_unresolved_tasks_are_sparse(self) -> None:
        labels = speed.bucket_episode_lengths([999] * 4, [0, 1, -1, 10**15], {0: TEN, 1: None})
        assert labels.tolist() == [100, 50, 50, 50]

    def test_nothing(self) -> None:
        labels = speed.bucket_episode_lengths([], [], {})
        assert (labels.dtype, labels.shape) == (np.int64, (0,))

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", ">i4"])
    def test_any_integers(self, dtype: str) -> None:
        lengths = np.array([0, 50, 0, 120, 0], dtype=dtype)[1::2]  # not contiguous
        assert speed.bucket_episode_lengths(lengths, [0, 0], {0: TEN}).tolist() == [10, 20]

    @pytest.mark.parametrize(
        ("lengths", "error", "message"),
        [
            ([1.5, 2], TypeError, "must be integers.*float64"),
            ([10.0], TypeError, "must be integers"),
            ([True], TypeError, "bool"),
            (["7"], TypeError, "must be integers"),
            ([2**63], TypeError, "at most 64 bits"),
            ([2**80], TypeError, "must be integers"),
            ([None], TypeError, "must be integers"),
            ([3, -4], ValueError, "-4; a length is a count of frames"),
            ([[1, 2]], ValueError, "one-dimensional"),
        ],
    )
    def test_lengths_that_are_none(self, lengths: Any, error: Any, message: str) -> None:
        with pytest.raises(error, match=message):
            speed.bucket_episode_lengths(lengths, [0] * len(lengths), {0: TEN})
        with pytest.raises(error, match=f"task 6 .*{message}"):
            speed.compute_task_percentiles({6: lengths})

    def test_shapes_must_agree(self) -> None:
        with pytest.raises(ValueError, match="differ in shape"):
            speed.bucket_episode_lengths([1, 2], [0], {})
