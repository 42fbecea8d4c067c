"""The fit from dataset to folder: draws, statistics, tokenizer, errors, and what they leave."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reference
import vlaprep
from lerobot_folder import list_array, make_rows, to_table, write_v3
from vlaprep import fit_sample
from vlaprep.action_space import ActionSpace
from vlaprep.errors import (
    DatasetFormatError,
    DatasetNotFoundError,
    EpisodeSelectionError,
    NoChunksError,
    TokenizerFormatError,
)
from vlaprep.fit_chunks import ChunkReader
from vlaprep.fit_options import Draws
from vlaprep.fit_report import REPORT_NAME, read_report
from vlaprep.fit_source import Selection
from vlaprep.normalization import Normalization

SMALL = {"n_samples": 40, "chunk_size": 5, "seed": 7}


def fit(root: Path, cache: Path, **options: Any) -> Path:
    return Path(vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=cache, **SMALL | options))


def draw(root: Path, episodes: Any = None, **options: Any) -> fit_sample.Sample:
    label, key = options.pop("label", "here"), options.pop("action_key", "action")
    selection = Selection.of(episodes, options.pop("exclude", None))
    dataset = vlaprep.open_dataset(root, episodes=selection.episodes)
    draws = Draws(**{"per": "episode", "replace": True, "nan": "skip"} | SMALL | options)
    table = fit_sample.select_table(dataset, selection, label, key)
    reader = ChunkReader(dataset, ActionSpace(key), draws.chunk_size)
    return fit_sample.draw_sample(reader, table, draws, label)


@pytest.fixture
def rows() -> Any:
    """Frames of eight episodes, 6 to 27 long."""
    return make_rows({e: (0, 6 + 3 * e) for e in range(8)}, dim=3)


@pytest.fixture
def root(tmp_path: Path, rows: Any) -> Path:
    return write_v3(tmp_path / "data", rows)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


# ------------------------------------------------------------------------------ right answers


@pytest.mark.parametrize("recorded", ["lerobot_v21", "lerobot_v30"])
def test_golden_draws_chunks_and_statistics(golden: Path, recorded: str) -> None:
    picks = json.loads((golden / f"{recorded}_expected.json").read_text())["fit"]["picks"]
    want = np.load(golden / f"{recorded}_expected.npz")
    sample = draw(golden / recorded, n_samples=200, chunk_size=10, seed=42)
    got = list(zip(sample.episode_index.tolist(), sample.start.tolist(), strict=True))
    assert got[: len(picks)] == [tuple(pick) for pick in picks]
    assert len(sample.chunks) == sample.drawn == 200  # the reference falls short here
    assert sample.chunks[: len(picks)].tobytes() == want["raw"].tobytes()
    norm = Normalization.fit(sample.chunks[: len(picks)])
    assert norm.lo.tobytes() == want["q01"].tobytes()
    assert norm.hi.tobytes() == want["q99"].tobytes()
    assert norm.normalize(want["raw"]).tobytes() == want["normalised"].tobytes()


def test_the_folder_holds_the_tokenizer_of_the_reference_rules(
    golden: Path, tmp_path: Path
) -> None:
    root = golden / "lerobot_v30"
    folder = fit(root, tmp_path / "cache", n_samples=200, chunk_size=10, seed=42)
    sample = draw(root, n_samples=200, chunk_size=10, seed=42)
    chunks, q01, q99 = reference.pi052_normalize(sample.chunks)
    processor = vlaprep.FastActionProcessor.fit(list(chunks))
    names = vlaprep.open_dataset(root).feature_names("action")
    processor.normalization = Normalization("pi052", "QUANTILES", q01, q99, names).to_dict()
    processor.save_pretrained(tmp_path / "want")
    for want in (tmp_path / "want").iterdir():
        assert (folder / want.name).read_bytes() == want.read_bytes(), want.name

    report = read_report(folder)
    assert report["signature"] == folder.name
    assert report["normalization"]["lo"] == q01.tolist()
    assert report["normalization"]["hi"] == q99.tolist()
    assert Normalization.from_dict(report["normalization"]).normalize(sample.chunks).tobytes() == (
        chunks.tobytes()
    )
    assert report["draws"]["chunks"] == 200
    assert report["draws"]["windows_skipped"] == 0
    assert report["tokens"]["min_token"] < 0 < report["tokens"]["max_token"]
    assert set(report["files"]) | {REPORT_NAME} == {path.name for path in folder.iterdir()}


def test_what_a_call_prints(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fit(root, tmp_path / "cache")
    assert capfd.readouterr() == ("", "")


def test_a_selection_is_a_set_and_exclusion_wins(root: Path) -> None:
    assert Selection.of([5, 2, 5, 3], [3, 3]) == Selection([2, 5], [], None)
    assert set(draw(root, episodes=[5, 2, 5, 3], exclude=[3]).episode_index) == {2, 5}
    assert set(draw(root, exclude=[6, 6]).table.episode_index) == {0, 1, 2, 3, 4, 5, 7}
    with pytest.raises(EpisodeSelectionError, match="exclude_episodes= names episode 77"):
        draw(root, exclude=[6, 77])


def test_episode_ids_need_not_be_dense(tmp_path: Path) -> None:
    far = write_v3(tmp_path / "far", make_rows({3: (0, 9), 10**12: (0, 30)}))
    assert set(draw(far).episode_index) == {3, 10**12}


# ------------------------------------------------------------------------------- NaN and null


def spoil(rows: Any, at: Any, value: float) -> Any:
    rows["action"][at] = value
    return rows


def first_finite(root: Path, n_draws: int = 4000) -> list[tuple[int, int]]:
    """What a patient reader takes: the endless draws without the windows that are not finite."""
    dataset = vlaprep.open_dataset(root)
    table = dataset.episodes.episode_index, dataset.episodes.length
    episode, start = vlaprep.sample_chunks(*table, **SMALL, n_draws=n_draws)
    chunks = dataset.read_chunks(episode, start, SMALL["chunk_size"])
    good = np.isfinite(chunks).all(axis=(1, 2))
    picks = zip(episode[good].tolist(), start[good].tolist(), strict=True)
    return list(picks)[: SMALL["n_samples"]]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_windows_that_are_not_finite_are_passed_over(
    rows: Any, tmp_path: Path, value: float, caplog: pytest.LogCaptureFixture
) -> None:
    root = write_v3(tmp_path / "data", spoil(rows, (slice(None, None, 7), 1), value))
    sample = draw(root)
    assert np.isfinite(sample.chunks).all()
    assert len(sample.chunks) == 40
    assert 0 < sample.skipped < sample.drawn
    got = zip(sample.episode_index.tolist(), sample.start.tolist(), strict=True)
    assert list(got) == first_finite(root)

    folder = fit(root, tmp_path / "cache")
    told = [line for line in warnings_of(caplog) if "NaN" in line]
    assert len(told) == 1
    share = f"{sample.skipped} of {sample.drawn} drawn windows"
    for word in (share, f"{100 * sample.skipped / sample.drawn:.1f} %", "40 of 40", str(root)):
        assert word in told[0]
    draws = read_report(folder)["draws"]
    assert (draws["windows_drawn"], draws["windows_skipped"]) == (sample.drawn, sample.skipped)


def test_null_rows_and_elements_count_as_nan(rows: Any, tmp_path: Path) -> None:
    values = rows["action"].tolist()
    for at in range(0, len(values), 11):
        values[at] = None
    for at in range(5, len(values), 11):
        values[at][2] = None
    import pyarrow as pa

    table = to_table(rows, action=pa.array(values, pa.list_(pa.float32())))
    root = write_v3(tmp_path / "data", table)
    assert np.isfinite(draw(root).chunks).all()


def test_nan_can_be_refused(rows: Any, tmp_path: Path) -> None:
    first_of_6 = sum(6 + 3 * e for e in range(6))
    root = write_v3(tmp_path / "data", spoil(rows, (first_of_6 + 12, 1), np.nan))
    with pytest.raises(DatasetFormatError, match=r"'action'.*episode 6, frame 12, dim 1.*data"):
        fit(root, tmp_path / "cache", nan="error")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(("draws_per_chunk", "found", "drawn"), [(16, 40, 320), (4, 20, 160)])
def test_rare_finite_windows_are_looked_for_up_to_a_bound(
    rows: Any,
    tmp_path: Path,
    monkeypatch: Any,
    caplog: pytest.LogCaptureFixture,
    draws_per_chunk: int,
    found: int,
    drawn: int,
) -> None:
    monkeypatch.setattr(fit_sample, "MIN_DRAWS", 0)
    monkeypatch.setattr(fit_sample, "MAX_DRAWS_PER_CHUNK", draws_per_chunk)
    rows["action"][rows["episode_index"] != 1] = np.nan  # one draw in eight is finite
    folder = fit(write_v3(tmp_path / "data", rows), tmp_path / "cache")
    (told,) = (line for line in warnings_of(caplog) if "NaN" in line)
    assert f"{drawn - found} of {drawn} drawn windows (87.5 %)" in told
    assert f"{found} of 40 wanted chunks" in told
    assert read_report(folder)["draws"]["chunks"] == found


def test_nothing_but_nan_is_an_error(rows: Any, tmp_path: Path) -> None:
    root = write_v3(tmp_path / "data", spoil(rows, slice(None), np.nan))
    with pytest.raises(NoChunksError) as caught:
        fit(root, tmp_path / "cache")
    for word in ("all 4096 windows", "chunk_size=5", "'action'", str(root), "NaN", "action_key="):
        assert word in str(caught.value)
    assert not (tmp_path / "cache").exists()


# ------------------------------------------------------------------------------------- errors


def test_a_chunk_longer_than_every_episode(root: Path, tmp_path: Path) -> None:
    with pytest.raises(NoChunksError) as caught:
        fit(root, tmp_path / "cache", chunk_size=28)
    for word in ("all 8 episodes", "chunk_size=28", "27 frames", "smaller", str(root)):
        assert word in str(caught.value)


def test_an_action_column_that_is_not_there(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetFormatError) as caught:
        fit(root, tmp_path / "cache", action_key="actions")
    for word in ("'actions'", "action, ", "frame_index", "action_key=", str(root)):
        assert word in str(caught.value)


def test_a_column_by_another_name(rows: Any, tmp_path: Path) -> None:
    table = to_table(rows, action=None, actions=list_array(rows["action"]))
    root = write_v3(tmp_path / "data", table)
    folder = fit(root, tmp_path / "cache", action_key="actions")
    assert read_report(folder)["actions"]["action_key"] == "actions"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": [1, 99, 100]}, "99"),
        ({"episodes": []}, "no episodes are left"),
        ({"episodes": [1, 2], "exclude_episodes": [2, 1]}, "no episodes are left"),
        ({"exclude_episodes": range(8)}, "names all 8"),
    ],
)
def test_selections_that_name_nothing(
    root: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(EpisodeSelectionError, match=message):
        fit(root, tmp_path / "cache", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": "most"}, "coverage must be one of sample, all, got 'most'"),
        ({"nan": "ignore"}, "nan must be one of skip, error"),
        ({"n_samples": 0}, "n_samples must be at least 1"),
        ({"chunk_size": -1}, "chunk_size must be at least 1"),
        ({"seed": -1}, "seed must not be negative"),
        ({"scale": float("nan")}, "scale must be a positive number"),
        ({"scale": 0}, "scale must be a positive number"),
        ({"num_threads": 0}, "num_threads must be 1 to 1024"),
        ({"revision": "main"}, "revision='main' is of no use with local data"),
    ],
)
def test_arguments_that_make_no_sense(
    root: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fit(root, tmp_path / "cache", **options)
    assert not (tmp_path / "cache").exists()


def test_no_dataset_at_all(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dataset_repo_id= or dataset_root="):
        vlaprep.fit_fast_tokenizer(cache_dir=tmp_path)
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        fit(tmp_path / "nowhere", tmp_path)
    with pytest.raises(TokenizerFormatError, match="neither a folder nor a Hub id"):
        fit(tmp_path, tmp_path, base_tokenizer_name="./nowhere")


def test_a_failed_fit_leaves_no_folder(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(vlaprep.errors.VocabularyError, match="vocab_size 8"):
        fit(root, cache, vocab_size=8)
    (marker,) = cache.iterdir()
    assert marker.name.endswith(".failed.json")
    with pytest.raises(vlaprep.errors.VocabularyError):  # a later call tries afresh
        fit(root, cache, vocab_size=8)


def test_what_does_not_decode_is_never_published(
    root: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    from vlaprep.processing_action_tokenizer import FastActionProcessor

    decode = FastActionProcessor.decode
    monkeypatch.setattr(
        FastActionProcessor, "decode", lambda self, ids, **shape: decode(self, ids, **shape) + 0.3
    )
    with pytest.raises(TokenizerFormatError, match="does not give back"):
        fit(root, tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


@pytest.mark.parametrize("ids", [[0.5], ["1"], [True], [2**63], [1.0]])
@pytest.mark.parametrize("option", ["episodes", "exclude_episodes"])
def test_episode_ids_are_never_rounded(root: Path, tmp_path: Path, option: str, ids: Any) -> None:
    with pytest.raises(EpisodeSelectionError):
        fit(root, tmp_path / "cache", **{option: ids})
