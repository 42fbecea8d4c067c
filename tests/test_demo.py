"""The demo: a dataset laid out as LeRobot lays it out, and both jobs on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import vlaprep
from vlaprep import cli, demo
from vlaprep.demo import write_demo_dataset

DATA = "data/chunk-000/file-000.parquet"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo_dataset(tmp_path_factory.mktemp("demo") / "dataset")


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def widths_aside(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type).split("[")[0] for field in schema}


# ------------------------------------------------------------------------------------ layout


def test_files_are_those_of_the_real_writer(root: Path, golden: Path) -> None:
    theirs = golden / "lerobot_v30"
    assert set(files_in(root)) == set(files_in(theirs))
    for name in (DATA, EPISODES, "meta/tasks.parquet"):
        ours, wanted = (pq.read_schema(folder / name) for folder in (root, theirs))
        assert widths_aside(ours) == widths_aside(wanted), name
    for name in ("meta/info.json", "meta/stats.json"):
        ours, wanted = (json.loads((folder / name).read_text()) for folder in (root, theirs))
        assert set(ours) - set(wanted) == set()
        assert set(wanted) - set(ours) <= {"video_files_size_in_mb"}
        for key in {"action", "features"} & set(wanted):
            assert set(ours[key]) == set(wanted[key])


def test_every_episode_is_a_row_group(root: Path) -> None:
    dataset = vlaprep.open_dataset(root)
    metadata = pq.read_metadata(root / DATA)
    groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert groups == dataset.episodes.length.tolist()
    assert metadata.row_group(0).column(0).compression == "SNAPPY"


def test_the_reader_finds_nothing_to_complain_about(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = vlaprep.open_dataset(root)
    assert dataset.check() == []
    assert caplog.records == []
    assert len(dataset.episodes) == 96
    assert dataset.feature_names("action") == demo.DIM_NAMES
    counts = np.bincount(dataset.episodes.task_index)
    assert len(counts) == len(dataset.tasks) == 4
    assert counts.min() > 0


def test_statistics_are_those_of_the_rows(root: Path) -> None:
    action = vlaprep.open_dataset(root).read("action")["action"].astype(np.float64)
    stats = json.loads((root / "meta/stats.json").read_text())["action"]
    for name in ("min", "max", "mean", "std"):
        np.testing.assert_allclose(stats[name], getattr(action, name)(axis=0), rtol=1e-9)
    assert stats["count"] == [len(action)]
    # Averages of the episodes' quantiles, as published datasets have them.
    assert np.all(np.array(stats["q01"]) > np.quantile(action, 0.01, axis=0))


@pytest.mark.parametrize("per_file", [1, 4, 10])
def test_episodes_may_be_spread_over_files(per_file: int, tmp_path: Path) -> None:
    whole = write_demo_dataset(tmp_path / "whole", episodes=10, seed=3)
    parts = write_demo_dataset(tmp_path / "parts", episodes=10, seed=3, episodes_per_file=per_file)
    one, many = map(vlaprep.open_dataset, (whole, parts))
    assert len(many.files) == -(-10 // per_file)
    assert many.check() == []
    columns = ("action", "observation.state", "index", "timestamp")
    for name in columns:
        np.testing.assert_array_equal(one.read(name)[name], many.read(name)[name])


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    first, again, other = (
        files_in(write_demo_dataset(tmp_path / name, episodes=6, seed=seed))
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    )
    assert first == again
    assert first[DATA] != other[DATA]


# ------------------------------------------------------------------------------------ motion


def test_motion_is_that_of_an_arm(root: Path) -> None:
    dataset = vlaprep.open_dataset(root)
    table = dataset.episodes
    action = dataset.read("action")["action"]
    step = np.abs(np.diff(action, axis=0))
    within = np.ones(len(step), dtype=bool)
    within[np.cumsum(table.length)[:-1] - 1] = False  # from one episode to the next
    assert step[within, :6].max() < 15  # degrees in a thirtieth of a second
    assert 15 < step[within, 6].max() < 50  # the gripper snaps
    still = (step[within] < 0.5).all(axis=1).mean()  # holds, and ends of moves
    assert 0.1 < still < 0.6
    assert action[:, -1].min() >= 0
    assert action[:, -1].max() <= 100
    assert np.ptp(action, axis=0).min() > 30  # no dim is constant
    state = dataset.read("observation.state")["observation.state"]
    assert 0 < np.sqrt(((state - action) ** 2).mean()) < 5


# ------------------------------------------------------------------------------------ writing


@pytest.mark.parametrize("made", [lambda p: p.write_text("mine"), lambda p: p.mkdir()])
def test_what_is_not_the_demos_is_left_alone(made: Any, tmp_path: Path) -> None:
    target = tmp_path / "dataset"
    made(target)
    with pytest.raises(FileExistsError, match="choose another"):
        write_demo_dataset(target, episodes=2)
    assert list(tmp_path.iterdir()) == [target]


def test_an_older_demo_is_replaced_whole(tmp_path: Path) -> None:
    root = write_demo_dataset(tmp_path / "dataset", episodes=3)
    (root / "meta/speed_percentiles.jsonl").touch()
    write_demo_dataset(root, episodes=2)
    assert len(vlaprep.open_dataset(root).episodes) == 2
    assert not (root / "meta/speed_percentiles.jsonl").exists()
    assert list(tmp_path.iterdir()) == [root]


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(demo, "_write_meta", full)
    with pytest.raises(OSError, match="No space left"):
        write_demo_dataset(tmp_path / "dataset", episodes=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("counts", [{"episodes": 0}, {"episodes_per_file": 0}])
def test_counts_below_one_are_refused(counts: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        write_demo_dataset(tmp_path / "dataset", **counts)


# --------------------------------------------------------------------------------- both jobs


def run(out: Path, *arguments: str) -> Any:
    result = CliRunner().invoke(cli.app, ["demo", str(out), *arguments])
    assert result.exit_code == 0, result.output
    return result


def test_the_demo_from_end_to_end(tmp_path: Path) -> None:
    answer = json.loads(run(tmp_path / "out", "--episodes", "50", "--json").stdout)
    assert set(answer) == {
        *("format_version", "command", "dataset", "speed", "fit", "round_trip", "seconds"),
        "warnings",
    }
    assert set(answer["seconds"]) == {"dataset", "speed", "fit", "encode", "decode"}
    assert answer["speed"]["episodes"] == 50
    states = [task["percentiles"] is None for task in answer["speed"]["tasks"]]
    assert set(states) == {True, False}  # it shows a ranked task and a sparse one
    assert answer["fit"]["draws"]["chunks"] == 1024
    trip = answer["round_trip"]
    assert trip["values"] / trip["tokens"] > 5
    assert max(np.divide(trip["rms_error"], trip["range"])) < 0.02
    paths = [answer["dataset"], answer["speed"]["file"]["path"], answer["fit"]["folder"]]
    assert all(Path(path).exists() for path in paths)

    again = run(tmp_path / "out", "--episodes", "50")
    assert again.stdout == ""
    assert "found in the cache" in again.stderr
    last = again.stderr.split("Both jobs, end to end")[1]
    assert all(path in last for path in paths)
    assert all(step in last for step in answer["seconds"])
