"""Data as large as they come: minutes each, and gigabytes of disk for a while (`make slow`)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import vlaprep
from reference import bucket, percentiles
from vlaprep.processing_action_tokenizer import quantize

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
WRITE = """
import sys
from pathlib import Path
sys.path.insert(0, {benches!r})
import data
print(data.dataset(data.Config(Path({folder!r}), data.EPISODES["L"]), {variant!r}))
"""
MEASURED = """
import json, resource, sys
import numpy as np
import vlaprep

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

before = peak_mb()
dataset = vlaprep.open_dataset(sys.argv[1])
table = dataset.episodes
opened = peak_mb() - before
episode, start = vlaprep.sample_chunks(
    table.episode_index, table.length, chunk_size=50, n_samples=1024, seed=42)
chunks = dataset.read_chunks(episode, start, 50)
print(json.dumps({
    "episodes": len(table), "frames": int(table.length.sum()), "opened_mb": opened,
    "read_mb": peak_mb() - before, "chunks": list(chunks.shape),
    "sum": float(chunks.sum(dtype=float)),
}))
"""

SCANNED = """
import json, re, sys
from pathlib import Path
import numpy as np
import vlaprep
import vlaprep.dataset

def held_mb(what):
    return int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

before = held_mb("VmRSS")
dataset = vlaprep.open_dataset(sys.argv[1])
dataset.stats("action")
stats = held_mb("VmHWM") - before
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
read = dataset.read(["episode_index", "action"])
print(json.dumps({
    "stats_mb": stats, "read_mb": held_mb("VmHWM") - before,
    "answer_bytes": sum(column.nbytes for column in read.values()),
}))
"""
MILLION = """
import json, resource, sys
import vlaprep

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

before = peak_mb()
folder = vlaprep.fit_fast_tokenizer(
    dataset_root=sys.argv[1], cache_dir=sys.argv[2], n_samples=1_000_000)
print(json.dumps({"folder": folder, "mb": peak_mb() - before}))
"""
LOOP = "print('begun', flush=True)\nwhile True: "


def python(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module", params=["rec", "conv"])
def ten_million(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32,000 episodes, 10 million frames, 14 dims."""
    benches = str(HERE.parent / "benches/python")
    folder = str(tmp_path_factory.mktemp("large"))
    return Path(python(WRITE.format(benches=benches, folder=folder, variant=request.param)))


def test_ten_million_frames_are_labelled_as_numpy_labels_them(ten_million: Path) -> None:
    dataset = vlaprep.open_dataset(ten_million)
    assert dataset.check() == []
    labels = vlaprep.speed_labels(dataset)
    columns = ["episode_index", "task_index"]
    tables = [pq.read_table(ten_million / name, columns=columns) for name in dataset.files]
    episode, task = (np.concatenate([t[c].to_numpy() for t in tables]) for c in columns)
    ids, first, length = np.unique(episode, return_index=True, return_counts=True)
    np.testing.assert_array_equal(labels.episode_index, ids)
    np.testing.assert_array_equal(labels.length, length)
    np.testing.assert_array_equal(labels.task_index, task[first])
    for number in np.unique(labels.task_index).tolist():
        mine = labels.task_index == number
        boundaries = percentiles(length[mine].tolist())
        assert labels.percentiles_by_task[number] == boundaries
        want = [bucket(value, boundaries) for value in length[mine].tolist()]
        assert labels.label[mine].tolist() == want


def test_ten_million_frames_are_sampled_in_bounded_memory(ten_million: Path) -> None:
    told = json.loads(python(MEASURED, str(ten_million)))
    assert (told["episodes"], told["chunks"]) == (32_000, [1024, 50, 14])
    assert told["frames"] > 9_000_000
    # The actions alone are 560 MB; opening holds footers, drawing holds what is drawn.
    assert told["opened_mb"] < 150, told
    assert told["read_mb"] < (150 if ten_million.name.startswith("rec") else 300), told


def test_whole_columns_take_the_room_of_the_answer(ten_million: Path) -> None:
    told = json.loads(python(SCANNED, str(ten_million)))
    footers = 0
    for path in ten_million.glob("data/*/*.parquet"):
        with path.open("rb") as file:
            file.seek(-8, 2)
            footers += int.from_bytes(file.read(4), "little")
    assert told["stats_mb"] < footers / 1e6 + 200, told  # the actions are 560 MB
    assert told["read_mb"] * 1.048576 < (told["answer_bytes"] + footers) / 1e6 + 64, told


def test_ctrl_c_ends_any_scan(ten_million: Path) -> None:
    for call in ("vlaprep.open_dataset(root)", "d.read('action')", "d.stats('action')"):
        code = (
            f"import sys, vlaprep; root = sys.argv[1]; d = vlaprep.open_dataset(root)\n{LOOP}{call}"
        )
        command = [sys.executable, "-c", code, str(ten_million)]
        for patience in (0.0, 0.13, 0.29):
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
                assert child.stdout is not None
                assert child.stdout.readline() == b"begun\n"
                time.sleep(patience)
                child.send_signal(signal.SIGINT)
                begin = time.monotonic()
                _, said = child.communicate(timeout=60)
            # Half a second is the aim; a busy machine and the end of Python come on top.
            assert time.monotonic() - begin < 3, call
            assert b"KeyboardInterrupt" in said


def test_drawn_chunks_are_the_rows(ten_million: Path) -> None:
    dataset = vlaprep.open_dataset(ten_million)
    table = dataset.episodes
    episode, start = vlaprep.sample_chunks(
        table.episode_index, table.length, chunk_size=50, n_samples=200, seed=7
    )
    chunks = dataset.read_chunks(episode, start, 50)
    ends = np.cumsum(table.length)
    rows = dataset.read("action")["action"]
    for i, (e, s) in enumerate(zip(episode, start, strict=True)):
        begin = ends[e] - table.length[e] + s
        np.testing.assert_array_equal(chunks[i], rows[begin : begin + 50])


def test_a_tokenizer_of_ten_million_frames(ten_million: Path, tmp_path: Path) -> None:
    folder = vlaprep.fit_fast_tokenizer(dataset_root=ten_million, cache_dir=tmp_path)
    processor = vlaprep.FastActionProcessor.from_pretrained(folder)
    assert (processor.time_horizon, processor.action_dim) == (50, 14)


def test_a_hundred_thousand_chunks(ten_million: Path, tmp_path: Path) -> None:
    folder = vlaprep.fit_fast_tokenizer(
        dataset_root=ten_million, cache_dir=tmp_path, n_samples=100_000, chunk_size=10
    )
    report = json.loads((Path(folder) / "fit_report.json").read_text())
    assert report["draws"]["chunks"] == 100_000


@pytest.mark.timeout(1200)
def test_a_million_chunks_are_fitted_in_bounded_memory(ten_million: Path, tmp_path: Path) -> None:
    told = json.loads(python(MILLION, str(ten_million), str(tmp_path)))
    report = json.loads((Path(told["folder"]) / "fit_report.json").read_text())
    assert report["draws"]["chunks"] == 1_000_000
    assert told["mb"] < 6000


@pytest.mark.timeout(1200)
def test_a_hundred_thousand_chunks_are_learnt_as_by_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    steps = rng.normal(0, 0.1, (100_000, 20, 5))
    chunks = np.clip(np.cumsum(steps, axis=1), -1, 1).astype(np.float32)
    native = vlaprep.FastActionProcessor.fit(chunks)
    monkeypatch.setattr("vlaprep.processing_action_tokenizer.fit_bpe", None)
    published = vlaprep.FastActionProcessor.fit(chunks)
    text = native.bpe_tokenizer.backend_tokenizer.to_str()
    assert text == published.bpe_tokenizer.backend_tokenizer.to_str()


def test_more_list_elements_than_32_bits_count(tmp_path: Path) -> None:
    """Case P19: 310 million rows of 7 values in one file."""
    command = [sys.executable, HERE / "cases/make_cases.py", tmp_path, "--only", "P19", "--big"]
    subprocess.run(command, check=True, capture_output=True)
    (case,) = json.loads((tmp_path / "cases.json").read_text(encoding="utf-8"))
    lengths = case["expected"]["percentiles"]["episode_lengths"]
    told = json.loads(python(MEASURED.replace("50", "5"), str(tmp_path / "P19")))
    assert told["episodes"] == len(lengths)
    assert told["frames"] == sum(lengths.values()) == 310_000_000
    assert told["sum"] == told["chunks"][0] * told["chunks"][1] * sum(range(7))
    assert told["read_mb"] < 2000, told


def test_a_million_chunks_come_back_symbol_for_symbol() -> None:
    horizon, dim, block = 8, 3, 20_000
    rng = np.random.default_rng(0)

    def chunks(count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        ends = rng.uniform(-1, 1, (2, count, 1, dim))
        return ends[0] + (ends[1] - ends[0]) * np.linspace(0, 1, horizon)[:, None]

    corners = np.stack(np.broadcast_arrays(*[np.full((horizon, dim), v) for v in (-1.0, 1.0)]))
    processor = vlaprep.FastActionProcessor.fit([*chunks(3000), *corners], vocab_size=512)
    for _ in range(1_000_000 // block):
        batch = chunks(block)
        actions, status = processor.decode_batch(*processor.encode_batch(batch))
        assert (status == 0).all()
        np.testing.assert_array_equal(quantize(actions, 10), quantize(batch, 10))
