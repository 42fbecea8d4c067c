"""The cases of tests/cases that ask for a fit, a codec or a cache of fits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reference
import vlaprep
from case_table import ASKED, DATASETS, IDS, only
from outcome import observe, tree
from vlaprep import errors
from vlaprep.normalization import Normalization

N_SAMPLES = 60
SEED = 7
NUMPY_24 = tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 4)

# ------------------------------------------------------------- job (b): the tokenizer fit


def fit(root: Path, cache: Path, **options: Any) -> Path:
    options = {"n_samples": N_SAMPLES, "seed": SEED, **options}
    return Path(vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=cache, **options))


@pytest.fixture
def fitted_on(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The normalised chunks of every fit of the built-in processor, as it was given them."""
    seen: list[np.ndarray] = []
    original = vlaprep.FastActionProcessor.fit

    def spy(chunks: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(np.concatenate([*chunks]))
        return original(chunks, *args, **kwargs)

    monkeypatch.setattr(vlaprep.FastActionProcessor, "fit", staticmethod(spy))
    return seen


def clean_chunks(actions: np.ndarray, episode_index: np.ndarray, chunk_size: int) -> np.ndarray:
    """What the fit has to draw, from the truth: the first clean draws of the endless sequence."""
    ids, first, length = np.unique(episode_index, return_index=True, return_counts=True)
    picks = vlaprep.sample_chunks(
        ids, length, chunk_size=chunk_size, n_samples=N_SAMPLES, seed=SEED, n_draws=50 * N_SAMPLES
    )
    begin = dict(zip(ids.tolist(), first.tolist(), strict=True))
    windows = (
        actions[begin[e] + s : begin[e] + s + chunk_size]
        for e, s in zip(*map(list, picks), strict=False)
    )
    clean = [window for window in windows if np.isfinite(window).all()]
    return np.stack(clean[:N_SAMPLES])


def hold_fit(folder: Path, expected: dict[str, Any], chunks: np.ndarray) -> None:
    assert chunks.shape == (N_SAMPLES, expected["chunk_size"], expected["action_dim"])
    assert np.isfinite(chunks).all()
    config = json.loads((folder / "processor_config.json").read_text())
    assert config["time_horizon"] == expected["chunk_size"]
    assert config["action_dim"] == expected["action_dim"]
    codec = vlaprep.FastActionProcessor.from_pretrained(folder)
    decoded = np.asarray(codec.decode(codec(chunks)))
    symbols, near_half = reference.dct_quantize(chunks, 10.0)
    assert ((reference.dct_quantize(decoded, 10.0)[0] == symbols) | near_half).all()


def hold_no_folder(cache: Path) -> None:
    """Nothing is published and nothing half-written stays; marks of a failure may."""
    left = [path for path in cache.rglob("*") if path.is_dir()] if cache.exists() else []
    assert left == []


@only(*DATASETS)
def test_fast_fit(
    case: tuple[Path, Any],
    cases_root: Path,
    tmp_path: Path,
    fitted_on: list[np.ndarray],
    caplog: pytest.LogCaptureFixture,
) -> None:
    root, expected = case[0], case[1]["fast_fit"]
    before, cache = tree(root), tmp_path / "cache"
    seen = observe(lambda: fit(root, cache, chunk_size=expected.get("chunk_size", 10)), caplog)
    assert tree(root) == before
    if not seen.hold(expected):
        hold_no_folder(cache)
        return
    hold_fit(seen.answer, expected, fitted_on[-1])
    stored = cases_root / "_expected" / f"{root.name}.npz"
    if stored.exists() and "error" not in expected["outcome"]:
        with np.load(stored) as truth:
            actions, episodes = truth["actions"].astype(np.float32), truth["episode_index"]
        chunks = clean_chunks(actions, episodes, expected["chunk_size"])
        want, _, _ = reference.pi052_normalize(chunks)
        np.testing.assert_array_equal(fitted_on[-1], want)


@only("L23")
def test_fit_on_a_column_named_by_the_caller(
    case: tuple[Path, Any], tmp_path: Path, fitted_on: list[np.ndarray]
) -> None:
    folder = fit(case[0], tmp_path / "cache", chunk_size=10, action_key="actions")
    hold_fit(folder, {"chunk_size": 10, "action_dim": 7}, fitted_on[-1])


@pytest.mark.parametrize("which", range(4))
@only("F26")
def test_chunk_sizes_around_the_longest_episode(
    case: tuple[Path, Any],
    which: int,
    tmp_path: Path,
    fitted_on: list[np.ndarray],
    caplog: pytest.LogCaptureFixture,
) -> None:
    root, expected = case[0], case[1]["also"][which]
    seen = observe(lambda: fit(root, tmp_path, chunk_size=expected["chunk_size"]), caplog)
    if seen.hold(expected):
        hold_fit(seen.answer, expected, fitted_on[-1])
    else:
        assert str(expected["chunk_size"]) in str(seen.error)
        assert str(len(expected["too_short"])) in str(seen.error)
        assert isinstance(seen.error, errors.NoChunksError)


@only("L08")
def test_names_of_files_do_not_steer_the_sample(
    case: tuple[Path, Any], cases_root: Path, tmp_path: Path, fitted_on: list[np.ndarray]
) -> None:
    fit(case[0], tmp_path / "one", chunk_size=10)
    fit(cases_root / "L00a", tmp_path / "other", chunk_size=10)
    np.testing.assert_array_equal(fitted_on[0], fitted_on[1])


@pytest.mark.parametrize(
    "variant", sorted(("a_empty_sentinel", "b_half_sentinel", "c_sentinel_only", "d_no_python"))
)
@only("C07")
def test_a_broken_cache_entry_is_no_hit(
    case: tuple[Path, Any],
    variant: str,
    cases_root: Path,
    tmp_path: Path,
    fitted_on: list[np.ndarray],
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected, cache = case[1]["fast_cache"][variant], tmp_path / "cache"
    folder = fit(cases_root / "L00b", cache, chunk_size=10)
    whole = tree(folder)
    shutil.rmtree(folder)
    shutil.copytree(case[0] / variant, folder)
    seen = observe(lambda: fit(cases_root / "L00b", cache, chunk_size=10), caplog)
    if seen.hold(expected):
        assert seen.answer == folder
        assert set(tree(folder)) == set(whole)
        assert tree(folder)["tokenizer.json"] == whole["tokenizer.json"]
    else:
        assert folder.name in str(seen.error)


SNAPSHOT_CHILD = """
import json, sys
import vlaprep
from vlaprep import speed
answers = {}
for revision in sys.argv[2:]:
    dataset = vlaprep.open_dataset("org/name", revision=revision)
    labels = speed.speed_labels(dataset)
    folder = vlaprep.fit_fast_tokenizer(
        dataset_repo_id="org/name", revision=revision, cache_dir=sys.argv[1],
        n_samples=40, chunk_size=10,
    )
    answers[revision] = {
        "commit": dataset.revision,
        "folder": folder,
        "lengths": labels.length.tolist(),
        "percentiles": {str(k): v for k, v in labels.percentiles_by_task.items()},
    }
print(json.dumps(answers))
"""


@only("C20")
def test_two_revisions_are_two_entries(case: tuple[Path, Any], tmp_path: Path) -> None:
    hub, by_revision = case[0], case[1]["by_revision"]
    offline = {"HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1"}
    older, newer = sorted(by_revision)
    ran = subprocess.run(
        [sys.executable, "-c", SNAPSHOT_CHILD, str(tmp_path / "cache"), "v3.0", older, "main"],
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    answers = json.loads(ran.stdout)
    for revision, commit in (("v3.0", older), (older, older), ("main", newer)):
        want, got = by_revision[commit]["percentiles"], answers[revision]
        assert got["commit"] == commit
        assert got["lengths"] == list(want["episode_lengths"].values())
        assert got["percentiles"] == want["percentiles"]
        texts = [data for data in tree(Path(got["folder"])).values() if commit.encode() in data]
        assert texts, "the commit is recorded in the folder"
    assert answers["v3.0"]["folder"] == answers[older]["folder"] != answers["main"]["folder"]


# ---------------------------------------------------------------- the codec on given chunks


def chunks_of(case: tuple[Path, Any]) -> dict[str, np.ndarray]:
    with np.load(case[0] / "chunks.npz") as stored:
        return {name: stored[name] for name in stored.files}


def truth_of(case: tuple[Path, Any], cases_root: Path) -> dict[str, np.ndarray]:
    with np.load(cases_root / "_expected" / f"{case[0].name}.npz") as stored:
        return {name: stored[name] for name in stored.files}


def round_trip(codec: Any, chunks: np.ndarray) -> np.ndarray:
    decoded = codec.decode(codec(chunks))
    assert decoded.shape == chunks.shape
    return np.asarray(decoded)


def symbols_of(chunks: np.ndarray) -> np.ndarray:
    return reference.dct_quantize(chunks, 10.0)[0]


@only("F07")
def test_the_quantisation_error_is_bounded(case: tuple[Path, Any], cases_root: Path) -> None:
    chunks, expected = chunks_of(case)["chunks"], case[1]["fast_codec"]
    codec = vlaprep.FastActionProcessor.fit(list(chunks), scale=expected["scale"])
    decoded = round_trip(codec, chunks)
    assert np.abs(decoded - truth_of(case, cases_root)["reconstruction"]).max() < 1e-6
    error = np.linalg.norm(decoded - chunks, axis=1).max()
    assert error == pytest.approx(expected["measured_l2_error_per_dim"], rel=1e-4)
    assert error <= expected["max_l2_error_per_dim"]
    assert codec(decoded) == codec(chunks)


@only("F08")
def test_decode_follows_the_latest_encode(case: tuple[Path, Any]) -> None:
    chunks, expected = chunks_of(case), case[1]["fast_codec"]
    codec = vlaprep.FastActionProcessor.fit([c for batch in chunks.values() for c in batch])
    for name in expected["sequence"]:
        decoded = round_trip(codec, chunks[name])
        np.testing.assert_array_equal(symbols_of(decoded), symbols_of(chunks[name]))


@only("F08")
def test_a_horizon_other_than_the_fitted_one_is_reported(
    case: tuple[Path, Any], caplog: pytest.LogCaptureFixture
) -> None:
    chunks = chunks_of(case)
    codec = vlaprep.FastActionProcessor.fit(list(chunks["h50"]))
    assert not observe(lambda: round_trip(codec, chunks["h50"]), caplog).warnings
    assert observe(lambda: round_trip(codec, chunks["h20"]), caplog).warnings_with("20", "50")


@pytest.mark.parametrize("which", ["unit", "degrees", "unit_scale_100", "ticks"])
@only("F09")
def test_the_range_is_checked_before_training(
    case: tuple[Path, Any], which: str, caplog: pytest.LogCaptureFixture
) -> None:
    chunks, expected = chunks_of(case), case[1]["fast_codec"][which]
    batch = chunks["unit" if which == "unit_scale_100" else which]
    fit = vlaprep.FastActionProcessor.fit
    seen = observe(lambda: fit(list(batch), scale=expected["scale"], vocab_size=1024), caplog)
    if not seen.hold(expected):
        assert isinstance(seen.error, errors.VocabularyError)


@only("F09")
def test_encoding_far_outside_the_alphabet(
    case: tuple[Path, Any], caplog: pytest.LogCaptureFixture
) -> None:
    ticks = chunks_of(case)["ticks"]
    codec = vlaprep.FastActionProcessor.fit(list(ticks / 1000), scale=10)
    assert codec.min_token == 0
    seen = observe(lambda: codec(ticks), caplog)
    assert not isinstance(seen.error, UnicodeError)
    assert seen.error is not None or seen.warnings, "a clamp has to be said"


@only("F13")
def test_blanks_before_punctuation_survive(case: tuple[Path, Any], tmp_path: Path) -> None:
    chunks, expected = chunks_of(case)["chunks"], case[1]["fast_codec"]
    codec = vlaprep.FastActionProcessor.fit(list(chunks))
    codec.save_pretrained(tmp_path)
    for one in (codec, vlaprep.FastActionProcessor.from_pretrained(tmp_path)):
        assert one.min_token == expected["min_token"]
        np.testing.assert_array_equal(symbols_of(round_trip(one, chunks)), symbols_of(chunks))


@only("F17", "F18", "F20")
def test_dimensions_that_hardly_move(case: tuple[Path, Any], cases_root: Path) -> None:
    chunks, truth = chunks_of(case)["chunks"], truth_of(case, cases_root)
    normalization = Normalization.fit(chunks)
    normalised = normalization.normalize(chunks)
    want = truth["normalised_seed_rule" if case[0].name == "F20" else "normalised"]
    # The truth is made with the installed NumPy, whose float32 quantiles are ours from 2.4 on.
    assert np.abs(normalised - want).max() <= (0 if NUMPY_24 else 1e-6)
    assert np.abs(normalised).max() <= 1
    codec = vlaprep.FastActionProcessor.fit(list(normalised))
    back = normalization.unnormalize(round_trip(codec, normalised))
    if case[0].name == "F20":
        still = case[1]["fast_codec"]["constant_dims"]
        assert list(normalization.constant_dims) == still
        assert np.abs(back[..., still]).max() <= 0.01
    if case[0].name == "F17":
        assert list(normalization.constant_dims) == [4, 5]
    if case[0].name == "F18":
        clipped = normalization.clipped_fraction(chunks)
        assert clipped[4] > 0.004  # one chunk of 200 lies far outside


@only("F23")
def test_batches_singles_and_empties(case: tuple[Path, Any], cases_root: Path) -> None:
    chunks = chunks_of(case)["chunks"]
    codec = vlaprep.FastActionProcessor.fit(list(chunks))
    ids = codec(chunks)
    assert ids == [codec(chunk)[0] for chunk in chunks]
    assert ids == codec(chunks.astype(np.float64))
    assert codec(chunks[:0]) == []
    assert len(codec(chunks[0])) == 1
    decoded = symbols_of(np.asarray(codec.decode(ids)))
    np.testing.assert_array_equal(decoded, truth_of(case, cases_root)["dct_int"])


# ------------------------------------------------------------------------------ the count

LATER: dict[str, str] = {}
"""Cases that this code cannot answer yet: id -> the step that will."""


def test_every_case_is_asked() -> None:
    import test_cases

    assert test_cases.DATASETS == DATASETS
    assert len(IDS) == 59
    assert set(IDS) == ASKED | set(LATER)
    assert not ASKED & set(LATER)
