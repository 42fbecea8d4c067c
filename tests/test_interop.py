"""The trainers themselves, on what a fit wrote; where they are not installed it is skipped.

LeRobot's scripts and OpenTau's run as they are, without the network: where they name a tokenizer of
the Hub, the Hub's cache holds ours under that name.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vlaprep
from other_python import other_python
from vlaprep.speed import (
    SPEED_PERCENTILES_PATH,
    bucket_episode_length,
    load_or_compute_speed_percentiles,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

WORKER = Path(__file__).with_name("interop_worker.py")
HORIZON = 10
MODES = {  # LeRobot's modes, and the names of their two statistics
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
    "MEAN_STD": ("mean", "std"),
}
LEROBOT_BASE = "lerobot/fast-action-tokenizer"  # what lerobot-train-tokenizer starts from
OPENTAU_BASE = "physical-intelligence/fast"
OPENTAU_COMMIT = "ec4d7aa71691cac0b8bed6942be45684db2110f4"  # where OpenTau 0.14 pins it


@pytest.fixture(scope="module")
def data(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Own copy of the dataset that LeRobot 0.6.1 recorded."""
    return Path(shutil.copytree(golden / "lerobot_v30", tmp_path_factory.mktemp("data") / "v30"))


@pytest.fixture(scope="module")
def fitted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of ours."""
    cache = tmp_path_factory.mktemp("cache")
    return Path(vlaprep.fit_fast_tokenizer(dataset_root=data, cache_dir=cache, chunk_size=HORIZON))


def all_windows(data: Path) -> NDArray[Any]:
    """Every window of every episode, in order."""
    dataset = vlaprep.open_dataset(data)
    pairs = [
        (episode, start)
        for episode, length in zip(
            dataset.episodes.episode_index.tolist(), dataset.episodes.length.tolist(), strict=True
        )
        for start in range(length - HORIZON + 1)
    ]
    episode, start = zip(*pairs, strict=True)
    return dataset.read_chunks(list(episode), list(start), HORIZON)


@pytest.fixture(scope="module")
def normalised(data: Path, fitted: Path) -> NDArray[np.float32]:
    """Some windows as the fit normalised them, other ones than it drew."""
    windows = all_windows(data)[::31]
    return vlaprep.Normalization.from_pretrained(fitted).normalize(windows)


def put_into_hub_cache(home: Path, repo_id: str, commit: str, folder: Path) -> None:
    """Lay a folder where huggingface_hub looks for a model that it downloaded before."""
    repo = home / "hub" / f"models--{repo_id.replace('/', '--')}"
    shutil.copytree(folder, repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)


def save(path: Path, array: NDArray[Any]) -> Path:
    np.save(path, array)
    return path


def ids_of(folder: Path, chunks: NDArray[Any]) -> list[list[int]]:
    return vlaprep.FastActionProcessor.from_pretrained(folder)(chunks)


# ------------------------------------------------------------------------------------ LeRobot


def train_tokenizer(data: Path, fitted: Path, home: Path, mode: str = "QUANTILES") -> Path:
    """Run lerobot-train-tokenizer with our folder as its base; where it wrote to."""
    python = other_python("lerobot", "datasets", "transformers", "scipy")
    assert python.versions["lerobot"] == "0.6.1"
    put_into_hub_cache(home, LEROBOT_BASE, "0" * 40, fitted)
    out = home / "trained"
    python.run(
        "-m",
        "lerobot.scripts.lerobot_train_tokenizer",
        "--repo_id=recorded/v30",
        f"--root={data}",
        f"--action_horizon={HORIZON}",
        "--sample_fraction=1.0",
        "--encoded_dims=0:2,2:6",
        f"--normalization_mode={mode}",
        f"--output_dir={out}",
        home=home,
    )
    return out


def as_train_tokenizer(x: NDArray[Any], stats: dict[str, Any], mode: str) -> NDArray[Any]:
    """The formula of lerobot-train-tokenizer in NumPy, in float64."""
    lo, hi = (np.array(stats[name]) for name in MODES[mode])
    if mode == "MEAN_STD":
        return np.asarray((x - lo) / np.maximum(hi, 1e-8))
    if mode != "MIN_MAX":
        x = np.clip(x, lo, hi)
    return np.asarray(2.0 * (x - lo) / np.maximum(hi - lo, 1e-8) - 1.0)


@pytest.mark.parametrize("mode", ["QUANTILES", "MIN_MAX"])
def test_lerobot_trains_a_tokenizer_from_ours(
    data: Path, fitted: Path, tmp_path: Path, mode: str
) -> None:
    trained = train_tokenizer(data, fitted, tmp_path, mode)
    stats = json.loads((data / "meta" / "stats.json").read_text())["action"]
    chunks = as_train_tokenizer(all_windows(data), stats, mode)

    # It loads here, and is what a fit of these very chunks gives.
    processor = vlaprep.FastActionProcessor.from_pretrained(trained)
    same = vlaprep.FastActionProcessor.fit(chunks, time_horizon=HORIZON, action_dim=6)
    texts = [p.bpe_tokenizer.backend_tokenizer.to_str() for p in (processor, same)]
    assert json.loads(texts[0])["model"] == json.loads(texts[1])["model"]
    assert (processor.min_token, processor.max_token) == (same.min_token, same.max_token)
    assert (processor.time_horizon, processor.action_dim) == (HORIZON, 6)
    ids = processor(chunks)
    assert ids == same(chunks)
    codec = vlaprep.ActionCodec.from_pretrained(trained)
    assert codec.encode_batch(chunks)[0].tolist() == [token for chunk in ids for token in chunk]

    # And it encodes there as it does here.
    python = other_python("lerobot", "datasets", "transformers", "scipy")
    arrays = save(tmp_path / "chunks.npy", chunks[::31])
    answer = tmp_path / "answer.json"
    python.run(WORKER, "load_and_encode", trained, arrays, answer, home=tmp_path)
    assert json.loads(answer.read_text()) == {"ids": ids[::31], "class": "FastActionProcessor"}
    metadata = json.loads((trained / "metadata.json").read_text())
    assert metadata["num_training_chunks"] == len(chunks)
    assert metadata["compression_stats"]["max_token_length"] <= max(map(len, ids))


def test_the_action_step_of_lerobot_gives_our_ids(
    fitted: Path, normalised: NDArray[np.float32], tmp_path: Path
) -> None:
    """Around our ids: bos, "Action: ", "|", zeros; each id counted down from the vocabulary."""
    python = other_python("lerobot", "transformers")
    arrays, out = save(tmp_path / "chunks.npy", normalised), tmp_path / "out.npz"
    language = tmp_path / "language"
    python.run(WORKER, "tokenize_actions", fitted, language, arrays, out, home=tmp_path)
    seen = np.load(out)
    last = int(seen["vocabulary"]) - 1 - int(seen["skipped"])
    before, after = [int(seen["bos"]), *seen["before"].tolist()], seen["after"].tolist()
    assert len(before) > 1
    assert len(after) > 1
    ids = ids_of(fitted, normalised)
    wanted = [[*before, *(last - token for token in chunk), *after] for chunk in ids]
    width = seen["tokens"].shape[1]
    assert max(map(len, wanted)) < width
    padded = [row + [0] * (width - len(row)) for row in wanted]
    np.testing.assert_array_equal(seen["tokens"], padded)
    np.testing.assert_array_equal(seen["mask"].sum(axis=1), [len(row) for row in wanted])


def as_lerobot(x: NDArray[Any], stats: dict[str, Any], mode: str) -> NDArray[Any]:
    """The formula of LeRobot's training in NumPy, in float32."""
    lo, hi = (np.array(stats[name], np.float32) for name in MODES[mode])
    if mode == "MEAN_STD":
        return np.asarray((x - lo) / (hi + np.float32(1e-8)))
    span = np.where(hi == lo, np.float32(1e-8), hi - lo)
    return np.asarray(np.float32(2) * (x - lo) / span - np.float32(1))


def bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Bytes of an array, in which all NaN are one."""
    array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return np.ascontiguousarray(array).view(np.uint8)


def test_lerobot_normalises_by_the_formulas_we_know(data: Path, tmp_path: Path) -> None:
    """Bit for bit, with a dim that never moves and values that are not finite among them."""
    python = other_python("lerobot")
    x = all_windows(data)[::7].copy()
    x[0, 0], x[1, 1, 2], x[2, 2, 3] = np.nan, np.inf, -np.inf
    stats = json.loads((data / "meta" / "stats.json").read_text())["action"]
    for name in stats:
        if name != "count":
            stats[name][4] = 0.25 if name != "std" else 0.0
    x[3:, :, 4] = 0.25
    given = tmp_path / "stats.json"
    given.write_text(json.dumps(stats))
    arrays, out = save(tmp_path / "x.npy", x), tmp_path / "out.npz"
    python.run(WORKER, "normalize_as_lerobot", arrays, given, out, home=tmp_path)
    seen = np.load(out)
    np.testing.assert_array_equal(bits(seen["IDENTITY.there"]), bits(x))
    for mode in MODES:
        with np.errstate(invalid="ignore"):
            wanted = as_lerobot(x, stats, mode)
            tokenizer = as_train_tokenizer(x, stats, mode)
        there = seen[f"{mode}.there"]
        assert there.dtype == wanted.dtype == np.float32
        np.testing.assert_array_equal(bits(there), bits(wanted), mode)
        if f"{mode}.tokenizer" in seen:
            assert tokenizer.dtype == np.float64
            np.testing.assert_array_equal(bits(seen[f"{mode}.tokenizer"]), bits(tokenizer), mode)
        for convention, answer in (("lerobot", there), ("lerobot-train-tokenizer", tokenizer)):
            compare_with_ours(convention, mode, stats, x, answer)


def compare_with_ours(
    convention: str, mode: str, stats: dict[str, Any], x: NDArray[Any], answer: NDArray[Any]
) -> None:
    """Hold our convention of that name against what the trainer gave."""
    if convention not in vlaprep.normalization.CONVENTIONS:
        return
    lo, hi = (np.array(stats[name]) for name in MODES[mode])
    ours = vlaprep.Normalization(convention, mode, lo, hi).normalize(x)
    assert ours.dtype == answer.dtype
    np.testing.assert_array_equal(bits(ours), bits(answer), f"{convention} {mode}")


# ------------------------------------------------------------------------------------ OpenTau


def test_opentau_fits_saves_and_checks_with_our_processor(
    golden: Path, fitted: Path, tmp_path: Path
) -> None:
    """Its fit script from end to end: the class it finds under the published name is ours."""
    python = other_python("opentau")
    assert python.versions["opentau"] == "0.14.0"
    put_into_hub_cache(tmp_path, OPENTAU_BASE, OPENTAU_COMMIT, fitted)
    root = Path(shutil.copytree(golden / "lerobot_v21", tmp_path / "v21"))
    mixture = tmp_path / "mixture.json"
    dataset = {"repo_id": "recorded/v21", "root": str(root)}
    mixture.write_text(json.dumps({"datasets": [dataset], "weights": [1.0], "action_freq": 30}))
    out = tmp_path / "out"
    python.run(
        *("-m", "opentau.scripts.fit_fast_tokenizer", "--mixture-json", mixture),
        *("--out-dir", out, "--chunk-size", HORIZON, "--action-dim", 8),
        *("--total-chunks", 400, "--vocab-size", 1024, "--num-workers", 1),
        home=tmp_path,
    )
    report = json.loads((out / "fit_report.json").read_text())
    assert report["total_chunks_actual"] == 400
    assert report["roundtrip"]["roundtrip_mse"] < 1e-3
    assert report["roundtrip"]["avg_token_length"] > 1

    processor = vlaprep.FastActionProcessor.from_pretrained(out)
    assert (processor.time_horizon, processor.action_dim) == (HORIZON, 8)
    assert processor.scale == 10
    chunks = np.sin(np.arange(5 * HORIZON * 8)).reshape(5, HORIZON, 8) / 3
    arrays, answer = save(tmp_path / "chunks.npy", chunks), tmp_path / "answer.json"
    python.run(WORKER, "load_and_encode", out, arrays, answer, home=tmp_path)
    assert json.loads(answer.read_text()) == {
        "ids": processor(chunks),
        "class": "FastActionProcessor",
    }


def test_the_round_trip_of_opentau_takes_our_folder(
    fitted: Path, normalised: NDArray[np.float32], tmp_path: Path
) -> None:
    python = other_python("opentau")
    arrays, out = save(tmp_path / "chunks.npy", normalised), tmp_path / "out.npz"
    python.run(WORKER, "round_trip_as_opentau", fitted, arrays, out, home=tmp_path)
    seen = np.load(out)
    processor = vlaprep.FastActionProcessor.from_pretrained(fitted)
    ids = processor(normalised)
    assert seen["avg_token_length"] == np.mean([len(chunk) for chunk in ids])
    assert seen["roundtrip_mse"] == np.mean((normalised - processor.decode(ids)) ** 2)

    lo, hi, x = seen["lo"], seen["hi"], normalised.astype(np.float64)
    span = np.where(np.abs(hi - lo) < 1e-6, 1.0, hi - lo)
    wanted = ((x - lo) + 0.5 * (span - (hi - lo))) / (span + 1e-6) * 2.0 - 1.0
    wanted = np.nan_to_num(wanted, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float32)
    np.testing.assert_array_equal(bits(seen["normalized"]), bits(wanted))
    stats = {"min": lo, "max": hi}
    compare_with_ours("opentau", "MIN_MAX", stats, normalised, seen["normalized"])


def test_opentau_labels_speeds_as_we_do(tmp_path: Path) -> None:
    python = other_python("opentau")
    rng = np.random.default_rng(3)
    tasks = {"stack the cups": 0, "open the drawer": 1, "wipe the table": 5}
    lengths = {e: int(n) for e, n in enumerate(rng.integers(20, 400, size=120))}
    task_of = {e: 5 if e < 6 else e % 2 for e in lengths}  # task 5 is sparse
    given, out = tmp_path / "lengths.json", tmp_path / "out.json"
    given.write_text(json.dumps({e: [lengths[e], task_of[e]] for e in lengths}))
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    python.run(WORKER, "label_speeds_as_opentau", given, theirs, out, home=tmp_path)
    seen = json.loads(out.read_text())

    percentiles = load_or_compute_speed_percentiles(ours, lengths, task_of, tasks)
    assert {str(task): found for task, found in percentiles.items()} == seen["percentiles"]
    labels = {e: bucket_episode_length(lengths[e], percentiles[task_of[e]]) for e in lengths}
    assert {str(e): label for e, label in labels.items()} == seen["labels"]
    files = [(root / SPEED_PERCENTILES_PATH).read_text().splitlines() for root in (ours, theirs)]
    assert [json.loads(line) for line in files[0]] == [json.loads(line) for line in files[1]]
