"""Two data sets that LeRobot's own writers recorded, against the answers of the references."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reference
import vlaprep
from vlaprep import kernels, speed
from vlaprep.normalization import Normalization

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = ("lerobot_v21", "lerobot_v30")


@dataclass(frozen=True)
class Recorded:
    """One recorded data set and what the references answered for it."""

    root: Path
    dataset: Any
    expected: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def picks(self) -> np.ndarray:
        return np.asarray(self.expected["fit"]["picks"], np.int64)


@pytest.fixture(scope="module", params=RECORDED)
def recorded(request: pytest.FixtureRequest, golden: Path) -> Recorded:
    root = golden / request.param
    expected = json.loads((golden / f"{request.param}_expected.json").read_text())
    with np.load(golden / f"{request.param}_expected.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    return Recorded(root, vlaprep.open_dataset(root), expected, arrays)


def by_int(mapping: dict[str, Any]) -> dict[int, Any]:
    return {int(key): value for key, value in mapping.items()}


def test_lengths_and_tasks(recorded: Recorded) -> None:
    table = recorded.dataset.episodes
    ids = table.episode_index.tolist()
    assert ids == sorted(ids)
    assert dict(zip(ids, table.length.tolist(), strict=True)) == by_int(
        recorded.expected["episode_lengths"]
    )
    assert dict(zip(ids, table.task_index.tolist(), strict=True)) == by_int(
        recorded.expected["episode_task_index"]
    )


def test_the_recording_has_no_findings_and_names_its_joints(recorded: Recorded) -> None:
    assert recorded.dataset.check() == []
    assert recorded.dataset.feature_names("action") == [f"joint_{i}.pos" for i in range(6)]
    info = recorded.dataset.info
    assert info.codebase_version == ("v2.1" if "v21" in recorded.root.name else "v3.0")
    assert info.fps == 30
    assert info.total_episodes == len(recorded.dataset.episodes)
    tasks = recorded.dataset.tasks
    assert sorted(tasks) == sorted(set(recorded.expected["episode_task_index"].values()))
    assert all(tasks.values())


def test_percentiles_and_labels(recorded: Recorded) -> None:
    answer = speed.speed_labels(recorded.dataset)
    assert dict(answer.percentiles_by_task) == by_int(recorded.expected["percentiles"])
    labels = dict(zip(answer.episode_index.tolist(), answer.label.tolist(), strict=True))
    assert labels == by_int(recorded.expected["labels"])


def test_persisted_percentiles(recorded: Recorded, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(recorded.root, root)
    dataset = vlaprep.open_dataset(root)
    tasks = {text: index for index, text in dataset.tasks.items()}
    answer = speed.load_or_compute_speed_percentiles(
        root,
        by_int(recorded.expected["episode_lengths"]),
        by_int(recorded.expected["episode_task_index"]),
        tasks,
    )
    assert answer == by_int(recorded.expected["percentiles"])
    lines = (root / "meta/speed_percentiles.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert {row["task_index"]: row["percentiles"] for row in rows} == answer
    assert {row["task_index"]: row["task"] for row in rows} == dataset.tasks


def test_the_reference_picks_are_a_prefix_of_ours(recorded: Recorded) -> None:
    fit, table = recorded.expected["fit"], recorded.dataset.episodes
    episode, start = vlaprep.sample_chunks(
        table.episode_index,
        table.length,
        chunk_size=fit["chunk_size"],
        n_samples=fit["n_samples"],
        seed=fit["seed"],
    )
    ours = np.stack([episode, start], axis=1)
    assert len(ours) == fit["n_samples"] > len(recorded.picks)
    np.testing.assert_array_equal(ours[: len(recorded.picks)], recorded.picks)


def test_raw_chunks(recorded: Recorded) -> None:
    chunks = recorded.dataset.read_chunks(
        recorded.picks[:, 0], recorded.picks[:, 1], recorded.expected["fit"]["chunk_size"]
    )
    np.testing.assert_array_equal(chunks, recorded.arrays["raw"], strict=True)


def test_quantiles_and_normalised_chunks(recorded: Recorded) -> None:
    raw = recorded.arrays["raw"]
    flat = raw.reshape(-1, raw.shape[-1])
    for name, q in (("q01", 0.01), ("q99", 0.99)):
        got = kernels.quantile(flat, q)
        np.testing.assert_array_equal(got, recorded.arrays[name], strict=True)
    want = recorded.arrays["normalised"]
    ours = Normalization.fit(raw).normalize(raw)
    np.testing.assert_array_equal(ours, want, strict=True)
    oracle, _, _ = reference.pi052_normalize(raw)
    np.testing.assert_array_equal(oracle, want, strict=True)


def test_all_rows_in_episode_and_frame_order(recorded: Recorded) -> None:
    columns = ["episode_index", "frame_index", "task_index", "action", "observation.state"]
    rows = recorded.dataset.read(columns)
    n = sum(recorded.expected["episode_lengths"].values())
    assert all(len(rows[column]) == n for column in columns)
    found = reference.episodes_of_rows(
        rows["episode_index"], rows["frame_index"], rows["task_index"]
    )
    lengths = {episode: entry["length"] for episode, entry in found.items()}
    assert lengths == by_int(recorded.expected["episode_lengths"])
    order = np.concatenate([entry["rows"] for entry in found.values()])
    np.testing.assert_array_equal(order, np.arange(n))
    assert rows["action"].dtype == np.float32
    assert rows["episode_index"].dtype == np.int64
    for (episode, start), chunk in zip(recorded.picks, recorded.arrays["raw"], strict=True):
        at = found[episode]["rows"][start : start + len(chunk)]
        np.testing.assert_array_equal(rows["action"][at], chunk)


def test_a_selection_reads_only_itself(recorded: Recorded) -> None:
    some = [3, 11, 4]
    selected = vlaprep.open_dataset(recorded.root, episodes=some)
    assert selected.episodes.episode_index.tolist() == sorted(some)
    rows = selected.read(["action", "episode_index"])
    every = recorded.dataset.read(["action", "episode_index"])
    mine = np.isin(every["episode_index"], some)
    np.testing.assert_array_equal(rows["action"], every["action"][mine])
    same = recorded.dataset.read(["action"], some)
    np.testing.assert_array_equal(rows["action"], same["action"])
