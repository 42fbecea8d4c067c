"""What code written for OpenTau's module relies on: first-row tasks, ranks, barriers, hooks."""

from __future__ import annotations

import inspect
import logging
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import reference
from fake_ranks import Barrier
from percentile_file import (
    HUNDRED,
    ODD,
    ONE,
    TWO,
    Load,
    file_in,
    messages,
    put,
    refuse,
    row,
    rows_in,
)
from vlaprep import coordinate, ranks, speed
from vlaprep.errors import EpisodeSelectionError, PercentileFileError
from vlaprep.ranks import Ranks

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("fresh_warnings")


def test_names_and_arguments_are_the_references() -> None:
    def arguments(function: Any) -> list[str]:
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return [p.name for p in inspect.signature(function).parameters.values() if p.kind is kinds]

    assert arguments(speed.compute_task_percentiles) == ["episode_lengths_per_task"]
    assert arguments(speed.bucket_episode_length) == ["length", "percentiles"]
    assert arguments(speed.episode_to_task_index_from_hf_dataset) == [
        "hf_dataset", "episodes", "episode_data_index", "epi2idx", "valid_task_indices"
    ]  # fmt: skip
    assert arguments(speed.load_or_compute_speed_percentiles) == [
        "root", "episode_lengths", "episode_to_task_index", "task_to_task_index"
    ]  # fmt: skip
    assert arguments(speed._atomic_write_jsonlines) == ["rows", "path"]
    assert set(speed.__all__) <= set(dir(speed))


# ------------------------------------------------------------- the task of the first row


class Tensor:
    """A torch tensor as far as it matters here: items are 0-d things that int() takes."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __getitem__(self, i: int) -> Tensor:
        return Tensor(self.values[i])

    def __int__(self) -> int:
        return int(self.values)


class Frames:
    """A ``datasets.Dataset`` as far as it matters here; it counts the rows that are read."""

    def __init__(self, task_index: list[int | None], lazy: bool = False) -> None:
        self.table = pa.table({"task_index": pa.array(task_index, pa.int64())})
        self.lazy = lazy
        self.form = "torch"
        self.read: list[int] = []

    def with_format(self, form: str) -> Frames:
        self.form = form
        return self

    def select(self, rows: list[int]) -> Frames:
        self.read += rows
        self.table = self.table.take(rows)
        return self

    def __getitem__(self, key: str) -> Any:
        assert self.form == "arrow"
        column = self.table[key]
        # From version 4 on a column is a sequence that reads when it is sliced.
        return SimpleColumn(column) if self.lazy else column


class SimpleColumn:
    def __init__(self, column: Any) -> None:
        self.column = column

    def __getitem__(self, rows: slice) -> Any:
        return self.column[rows]


def frames_of(*episodes: tuple[int, int, int | None], **options: Any) -> dict[str, Any]:
    """The arguments for episodes given as (episode, length, task)."""
    lengths = [length for _, length, _ in episodes]
    return {
        "hf_dataset": Frames([t for _, n, t in episodes for _ in range(n)], **options),
        "episodes": [episode for episode, _, _ in episodes],
        "episode_data_index": {"from": [sum(lengths[:i]) for i in range(len(lengths))]},
        "epi2idx": {episode: i for i, (episode, _, _) in enumerate(episodes)},
        "valid_task_indices": {0, 1},
    }


class TestEpisodeToTaskIndex:
    @pytest.mark.parametrize("wrap", [list, np.asarray, Tensor])
    @pytest.mark.parametrize("lazy", [False, True])
    def test_first_rows_decide_and_only_they_are_read(self, wrap: Any, lazy: bool) -> None:
        given = frames_of((4, 5, 0), (2, 3, 1), (9, 4, 0), lazy=lazy)
        given["episode_data_index"]["from"] = wrap(given["episode_data_index"]["from"])
        given["episodes"] = [9, 2]
        assert speed.episode_to_task_index_from_hf_dataset(**given) == {9: 0, 2: 1}
        assert given["hf_dataset"].read == [8, 5]

    @pytest.mark.parametrize("none", [[], (), np.array([], dtype=np.int64)])
    def test_no_episode_touches_nothing(self, none: Any) -> None:
        given: dict[str, Any] = dict.fromkeys(frames_of())
        assert speed.episode_to_task_index_from_hf_dataset(**given | {"episodes": none}) == {}

    def test_an_unknown_task_is_left_out_with_one_warning(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        episodes = (0, 5, 0), (1, 5, 99), (2, 5, 99), (3, 5, 7), (4, 5, None)
        for _ in range(2):
            given = frames_of(*episodes)
            assert speed.episode_to_task_index_from_hf_dataset(**given) == {0: 0}
        texts = messages(caplog)
        assert len(texts) == 3
        assert "task_index=99" in texts[0]
        assert "2 episode(s)" in texts[0]
        assert "sparse" in texts[0]
        assert "task_index=7" in texts[1]
        assert "task_index=None" in texts[2]

    def test_each_dataset_is_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        for fingerprint in ("aa", "bb", "aa"):
            given = frames_of((1, 5, 99))
            given["hf_dataset"]._fingerprint = fingerprint
            speed.episode_to_task_index_from_hf_dataset(**given)
        assert len(messages(caplog)) == 2

    def test_only_the_main_process_warns(self, caplog: pytest.LogCaptureFixture) -> None:
        for rank in (3, 0):
            speed.episode_to_task_index_from_hf_dataset(
                **frames_of((1, 5, 99)), accelerator=Barrier(4, rank)
            )
            assert len(messages(caplog)) == (rank == 0)

    def test_an_episode_the_dataset_lacks(self) -> None:
        given = frames_of((1, 5, 0))
        with pytest.raises(EpisodeSelectionError, match="first 8"):
            speed.episode_to_task_index_from_hf_dataset(**given | {"episodes": [1, 8]})

    def test_the_real_datasets_library_where_it_is_installed(self) -> None:
        datasets = pytest.importorskip("datasets", reason="datasets is not installed")
        given = frames_of((4, 5, 0), (2, 3, 99), (9, 4, 1))
        tasks = given["hf_dataset"].table["task_index"].to_pylist()
        real = datasets.Dataset.from_dict({"task_index": tasks, "x": [0.0] * len(tasks)})
        for form in (None, "numpy", "arrow"):
            given["hf_dataset"] = real.with_format(form)
            assert speed.episode_to_task_index_from_hf_dataset(**given) == {4: 0, 9: 1}


# ------------------------------------------------------------------------ ranks, barriers


def unreadable(root: Path, patch: pytest.MonkeyPatch) -> None:
    put(root, b'{"torn')


def stale(root: Path, patch: pytest.MonkeyPatch) -> None:
    put(root, row(0, 5), row(1, 1, None))


def complete(root: Path, patch: pytest.MonkeyPatch) -> None:
    put(root, row(0), row(1, 2, None))


def partly(root: Path, patch: pytest.MonkeyPatch) -> None:
    put(root, row(0))


def absent(root: Path, patch: pytest.MonkeyPatch) -> None:
    pass


def read_only(root: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(speed, "_atomic_write_jsonlines", refuse(30))


def no_locks(root: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coordinate.fcntl, "flock", refuse(38))
    patch.setattr(coordinate, "_UNSUPPORTED_WARNED", set())


def kernel_fails(root: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(speed, "percentiles_by_task", refuse(5))


def interrupted(root: Path, patch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    patch.setattr(speed, "percentiles_by_task", stop)


RAISES: dict[Any, type[BaseException]] = {
    unreadable: PercentileFileError,
    kernel_fails: OSError,
    interrupted: KeyboardInterrupt,
}
WARNS = (stale, partly, read_only, no_locks)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "state",
    [absent, complete, stale, partly, unreadable, read_only, no_locks, kernel_fails, interrupted],
)
class TestRanks:
    def call(self, root: Path, state: Any, accelerator: Any) -> None:
        if error := RAISES.get(state):
            with pytest.raises(error):
                TWO(root, accelerator=accelerator)
        else:
            assert TWO(root, accelerator=accelerator).keys() == {0, 1}

    def test_the_barrier_runs_exactly_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Any, rank: int
    ) -> None:
        state(tmp_path, monkeypatch)
        accelerator = Barrier(2, rank)
        self.call(tmp_path, state, accelerator)
        assert accelerator.waits == 1
        with monkeypatch.context() as patch:  # found by itself, too
            patch.setattr(ranks, "_accelerate_state", lambda: accelerator)
            self.call(tmp_path, state, None)
        assert accelerator.waits == 2

    def test_one_process_meets_no_barrier(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Any, rank: int
    ) -> None:
        state(tmp_path, monkeypatch)
        accelerator = Barrier(1, 0)
        self.call(tmp_path, state, accelerator)
        assert accelerator.waits == 0

    def test_only_the_main_process_writes_and_warns(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        state: Any,
        rank: int,
    ) -> None:
        state(tmp_path, monkeypatch)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
        self.call(tmp_path, state, Barrier(2, rank))
        after = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
        assert (after != before) is (rank == 0 and state in (absent, partly, no_locks))
        assert bool(messages(caplog)) is (rank == 0 and state in WARNS)


def test_every_rank_has_its_own_copy_of_the_same_answer(tmp_path: Path) -> None:
    put(tmp_path, row(0))
    answers = [TWO(tmp_path, accelerator=Ranks(rank, 3, rank == 0)) for rank in (2, 0, 1)]
    assert answers == [{0: ODD, 1: None}] * 3
    assert len({id(answer) for answer in answers}) == 3


# -------------------------------------------------------------------------------- hooks


def test_a_replaced_writer_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise PermissionError("no writing here")

    monkeypatch.setattr(speed, "_atomic_write_jsonlines", fail)
    assert ONE(tmp_path) == ONE.answer
    assert "speed percentiles" in messages(caplog)[0]
    assert {str(tmp_path)} == speed._READONLY_WARNED


def test_the_writer_takes_rows_and_lines(tmp_path: Path) -> None:
    speed._atomic_write_jsonlines([{"a": "é"}, b'{"b":  1}'], tmp_path / "x.jsonl")
    assert (tmp_path / "x.jsonl").read_bytes() == '{"a": "é"}\n{"b":  1}\n'.encode()


def test_sixteen_threads_agree(tmp_path: Path) -> None:
    load = Load({task: [n + 5 * task for n in HUNDRED] for task in range(5)})
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: load(tmp_path), range(16)))
    assert answers == [load.answer] * 16
    assert [r["task_index"] for r in rows_in(tmp_path)] == [0, 1, 2, 3, 4]
    assert [p.name for p in file_in(tmp_path).parent.iterdir()] == ["speed_percentiles.jsonl"]


def test_deleting_the_file_starts_afresh_without_noise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    TWO(tmp_path)
    file_in(tmp_path).unlink()
    assert TWO(tmp_path) == TWO(tmp_path) == TWO.answer
    assert caplog.records == []


# ------------------------------------------------------------------------- speed_labels


class TestSpeedLabels:
    def dataset(self, lengths: list[int], tasks: list[int]) -> Any:
        ids = np.arange(len(lengths), dtype=np.int64) * 3
        columns = {
            "episode_index": ids,
            "length": np.array(lengths, dtype=np.int64),
            "task_index": np.array(tasks, dtype=np.int64),
        }
        return SimpleNamespace(episodes=SimpleNamespace(**columns))

    def test_labels_of_all_episodes(self) -> None:
        rng = np.random.default_rng(3)
        lengths = rng.integers(5, 90, 400).tolist()
        tasks = rng.choice([-1, 4, 10**9, 6], 400, p=[0.1, 0.6, 0.29, 0.01]).tolist()
        labels = speed.speed_labels(self.dataset(lengths, tasks))
        wanted = reference.percentiles_of_tasks(
            *zip(*[(n, t) for n, t in zip(lengths, tasks, strict=True) if t >= 0], strict=True)
        )
        assert labels.percentiles_by_task == wanted
        assert wanted[6] is None
        assert labels.label.tolist() == [
            reference.bucket(n, wanted.get(t)) for n, t in zip(lengths, tasks, strict=True)
        ]
        assert (len(labels), labels.label.dtype) == (400, np.int64)
        assert labels.episode_index.tolist() == list(range(0, 1200, 3))
        assert (labels.length.tolist(), labels.task_index.tolist()) == (lengths, tasks)

    def test_ties(self) -> None:
        dataset = self.dataset([100] * 910 + list(range(101, 191)), [0] * 1000)
        assert speed.speed_labels(dataset).label[0] == 90
        assert speed.speed_labels(dataset, ties="mid").label[0] == 50

    def test_no_episode_and_no_task(self) -> None:
        assert len(speed.speed_labels(self.dataset([], []))) == 0
        labels = speed.speed_labels(self.dataset([5, 6], [-1, -1]))
        assert labels.label.tolist() == [50, 50]
        assert labels.percentiles_by_task == {}
