"""Both jobs as the command line runs them: what they write and what they tell of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import vlaprep
from command_line import SMALL_FIT, run, run_json
from lerobot_folder import make_rows, write_meta, write_v3
from vlaprep import jobs, speed
from vlaprep.normalization import Normalization
from vlaprep.speed import SPEED_BUCKET_LABELS, SPEED_PERCENTILES_PATH

if TYPE_CHECKING:
    import pytest


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --------------------------------------------------------------------------------------- speed


def test_speed_tells_what_the_file_and_the_library_say(root: Path) -> None:
    answer = run_json("speed", root)
    labels = vlaprep.speed_labels(vlaprep.open_dataset(root))
    assert {t["task_index"]: t["percentiles"] for t in answer["tasks"]} == (
        labels.percentiles_by_task
    )
    lines = (root / SPEED_PERCENTILES_PATH).read_text().splitlines()
    assert [json.loads(line)["percentiles"] for line in lines] == [
        task["percentiles"] for task in answer["tasks"]
    ]
    counts = [np.count_nonzero(labels.label == int(label)) for label in answer["labels"]]
    assert list(answer["labels"].values()) == counts
    for task in answer["tasks"]:
        mine = labels.label[labels.task_index == task["task_index"]].tolist()
        assert task["labels"] == {str(label): mine.count(label) for label in SPEED_BUCKET_LABELS}
    assert answer["file"]["path"] == str(root / SPEED_PERCENTILES_PATH)
    assert set(answer) == {
        *("format_version", "command", "dataset", "revision", "root", "episodes", "frames", "fps"),
        *("ties", "tasks", "labels", "unresolved_episodes", "file", "findings", "warnings"),
    }
    assert set(answer["tasks"][0]) == {
        *("task_index", "task", "episodes", "frames", "shortest", "median", "longest"),
        *("distinct_lengths", "labels", "percentiles"),
    }


def test_a_dry_run_writes_nothing(root: Path) -> None:
    before = files_in(root)
    dry = run_json("speed", root, "--dry-run")
    assert files_in(root) == before
    assert dry["file"]["state"] == "written"
    assert "would be written" in run("speed", root, "--dry-run").stderr
    wet = run_json("speed", root)
    assert {k: v for k, v in dry.items() if k != "file"} == {
        k: v for k, v in wet.items() if k != "file"
    }
    assert set(files_in(root)) == {*before, SPEED_PERCENTILES_PATH}


def test_the_states_of_the_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / SPEED_PERCENTILES_PATH
    assert run_json("speed", root)["file"] == {
        "path": str(path),
        "dry_run": False,
        "state": "written",
        "episodes_before": None,
        "stale": False,
    }
    whole = path.read_bytes()
    assert run_json("speed", root)["file"]["state"] == "kept"
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:1]))
    extended = run_json("speed", root)
    assert extended["file"]["state"] == "extended"
    assert any("Adding" in text for text in extended["warnings"])
    assert path.read_bytes() == whole

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path.unlink()
    monkeypatch.setattr(speed, "write_atomic", full)
    monkeypatch.setattr(speed, "_READONLY_WARNED", set())
    unwritable = run_json("speed", root)
    assert unwritable["file"]["state"] == "unwritable"
    assert any("No space left" in text for text in unwritable["warnings"])


def test_a_stale_file_is_told_of_kept_and_replaced_on_demand(root: Path) -> None:
    path = root / SPEED_PERCENTILES_PATH
    run_json("speed", root)
    whole = path.read_bytes()
    few = run_json("speed", root, "--episodes", "0:38", "--recompute")
    assert few["file"]["state"] == "replaced"
    assert any("selected episodes" in text for text in few["warnings"])
    poisoned = path.read_bytes()
    stale = run_json("speed", root)
    assert (stale["file"]["state"], stale["file"]["stale"]) == ("kept", True)
    assert any("Stale" in text for text in stale["warnings"])
    assert "though stale" in " ".join(run("speed", root, "--dry-run").stderr.split())
    assert path.read_bytes() == poisoned
    replaced = run_json("speed", root, "--recompute")
    assert replaced["file"]["episodes_before"] == 38
    assert path.read_bytes() == whole


def test_a_torn_file_is_refused_and_replaced_only_on_demand(root: Path) -> None:
    path = root / SPEED_PERCENTILES_PATH
    run_json("speed", root)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    refused = run("speed", root)
    assert refused.exit_code == 1
    assert f"{path}, line 4" in refused.stderr
    assert path.read_bytes() == whole[:-20]
    would = run("speed", root, "--recompute", "--dry-run").stderr
    assert "it was unreadable" in " ".join(would.split())
    assert path.read_bytes() == whole[:-20]
    assert run_json("speed", root, "--recompute")["file"]["state"] == "replaced"
    assert path.read_bytes() == whole


def test_a_rank_from_the_scheduler_does_not_suppress_the_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_NTASKS", "8")
    assert run_json("speed", root)["file"]["state"] == "written"
    assert (root / SPEED_PERCENTILES_PATH).exists()


def test_ties_reach_the_labels(tmp_path: Path) -> None:
    lengths = [5] * 30 + list(range(6, 20))
    root = write_v3(tmp_path, make_rows({e: (0, n) for e, n in enumerate(lengths)}))
    right, mid = (run_json("speed", root, "--ties", ties) for ties in ("right", "mid"))
    assert right["ties"] == "right"
    assert max(right["labels"], key=right["labels"].__getitem__) == "70"
    assert max(mid["labels"], key=mid["labels"].__getitem__) == "40"


def test_episodes_without_a_task_are_told_of_once(tmp_path: Path) -> None:
    root = write_v3(tmp_path, make_rows({e: (e % 2, 10 + e) for e in range(30)}))
    write_meta(root, tasks={1: "open the drawer"})
    answer = run_json("speed", root)
    assert answer["unresolved_episodes"] == 15
    assert answer["labels"]["50"] >= 15
    kinds = [finding["kind"] for finding in answer["findings"]]
    assert "unresolved-task" in kinds
    text = " ".join(run("speed", root).stderr.split())
    assert "15 episodes have no known task" in text
    message = next(f["message"] for f in answer["findings"] if f["kind"] == "unresolved-task")
    assert text.count(message) == 1


def test_findings_that_are_no_warnings_are_listed(root: Path) -> None:
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | {"total_episodes": 39}))
    (finding,) = run_json("speed", root)["findings"]
    text = " ".join(run("speed", root).stderr.split())
    assert text.count(finding["message"]) == 1


# ----------------------------------------------------------------------------------------- fit


def test_fit_tells_what_lies_in_the_folder(root: Path, tmp_path: Path) -> None:
    command = ["fit", root, *SMALL_FIT, "--cache-dir", tmp_path / "cache"]
    answer = run_json(*command)
    folder = Path(answer["folder"])
    assert folder.name == answer["signature"]
    assert not answer["cached"]
    report = json.loads((folder / "fit_report.json").read_text())
    assert answer["tokens"] == report["tokens"]
    assert set(answer) == {
        *("format_version", "command", "dataset", "folder", "cached", "signature", "inputs"),
        *("draws", "actions", "normalization", "tokens", "reconstruction", "validation"),
        "over_budget",
        *("files", "warnings"),
    }
    again = run(*command)
    assert again.exit_code == 0
    assert again.stdout == ""
    assert f"Action tokenizer {folder.name} (found in the cache)" in again.stderr
    assert str(folder) in again.stderr


def test_fit_reports_the_errors_that_a_round_trip_makes(root: Path, tmp_path: Path) -> None:
    answer = run_json("fit", root, *SMALL_FIT, "--cache-dir", tmp_path / "cache")
    processor = vlaprep.FastActionProcessor.from_pretrained(answer["folder"])
    dataset = vlaprep.open_dataset(root)
    table = dataset.episodes
    drawn = vlaprep.sample_chunks(
        table.episode_index, table.length, chunk_size=20, n_samples=64, seed=42
    )
    raw = dataset.read_chunks(*drawn, 20)
    norm = Normalization.from_dict(answer["normalization"])
    ids = processor(norm.normalize(raw))
    error = np.abs(norm.unnormalize(processor.decode(ids)) - raw)
    told = answer["reconstruction"]
    assert told["chunks"] == 64
    np.testing.assert_allclose(told["dataset_units"]["max"], error.max(axis=(0, 1)))
    np.testing.assert_allclose(told["dataset_units"]["rms"], np.sqrt((error**2).mean((0, 1))))
    counts = [len(chunk) for chunk in ids]
    assert answer["tokens"]["per_chunk"] == {
        "mean": np.mean(counts),
        "min": min(counts),
        "p50": np.percentile(counts, 50),
        "p99": np.percentile(counts, 99),
        "max": max(counts),
    }


def test_a_fit_that_cannot_be_is_a_message(root: Path, tmp_path: Path) -> None:
    ran = run("fit", root, "--chunk-size", "5000", "--cache-dir", tmp_path / "cache")
    assert ran.exit_code == 1
    assert "chunk_size" in ran.stderr
    assert "Traceback" not in ran.stderr


# ---------------------------------------------------------------------------------------- sums


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 12)), max_size=60))
def test_sums_by_task(episodes: list[tuple[int, int]]) -> None:
    task, length = np.array(episodes, np.int64).reshape(-1, 2).T
    told = list(jobs.by_task(task, length))
    assert [index for index, _, _ in told] == sorted(set(task.tolist()))
    for index, summary, at in told:
        mine = length[task == index]
        assert length[at].tolist() == sorted(mine.tolist())
        assert set(at.tolist()) == set(np.flatnonzero(task == index).tolist())
        assert summary == {
            "episodes": len(mine),
            "frames": mine.sum(),
            "shortest": mine.min(),
            "median": np.median(mine),
            "longest": mine.max(),
            "distinct_lengths": len(set(mine.tolist())),
        }


def test_two_tasks_of_one_text_keep_it(tmp_path: Path) -> None:
    rows = make_rows({episode: (episode % 2, 10 + episode) for episode in range(6)})
    root = write_meta(write_v3(tmp_path, rows), tasks={0: "push", 1: "push"})
    jobs.run_speed(vlaprep.open_dataset(root))
    lines = (root / SPEED_PERCENTILES_PATH).read_text().splitlines()
    assert [json.loads(line)["task"] for line in lines] == ["push", "push"]
