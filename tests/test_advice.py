"""Advice without fitting: exact against brute force and real fits, near enough where it guesses."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reference
import vlaprep
from command_line import run, run_json
from lerobot_folder import list_array, make_rows, to_table, write_meta, write_v2, write_v3
from vlaprep import advice, advice_statistics, fit_sample
from vlaprep.action_space import ActionSpace
from vlaprep.errors import (
    DatasetFormatError,
    DatasetNotFoundError,
    EpisodeSelectionError,
    NoChunksError,
    VocabularyError,
)
from vlaprep.fit_chunks import ChunkReader
from vlaprep.fit_options import Draws
from vlaprep.fit_report import read_report
from vlaprep.fit_source import Selection
from vlaprep.processing_action_tokenizer import FastActionProcessor

SMALL = {"n_samples": 150, "chunk_size": 12, "seed": 3}
SCALES, SIZES = (5.0, 20.0, 100.0), (128, 400, 900)


def advise(root: Path, **options: Any) -> advice.Advice:
    return vlaprep.advise_tokenizer(dataset_root=root, **SMALL | options)


def normalised(root: Path, **options: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chunks as the reference normalises what the fit draws, the raw ones, and half the spans."""
    draws = Draws(**{"per": "episode", "replace": True, "nan": "skip"} | SMALL | options)
    dataset = vlaprep.open_dataset(root)
    reader = ChunkReader(dataset, ActionSpace("action"), draws.chunk_size)
    table = fit_sample.select_table(dataset, Selection.of(), "here", "action")
    sample = fit_sample.draw_sample(reader, table, draws, "here")
    chunks, q01, q99 = reference.pi052_normalize(sample.chunks)
    span = np.where(q99 - q01 > np.float32(1e-6), q99 - q01, np.float32(1))
    return chunks, sample.chunks, span.astype(np.float64) / 2


@pytest.fixture(params=["lerobot_v21", "lerobot_v30", "demo", "noise", "still"])
def data(request: pytest.FixtureRequest, golden: Path, tmp_path: Path) -> Path:
    """Recorded in both layouts, made-up teleoperation, noise, and a dim that never moves."""
    if request.param == "demo":
        return Path(request.getfixturevalue("demo_root"))
    if request.param.startswith("lerobot"):
        return golden / request.param
    rows = make_rows(dict.fromkeys(range(9), (0, 40)), dim=3)
    if request.param == "still":
        rows["action"][:, 1] = 7
        return write_v2(tmp_path / "still", rows)
    return write_v3(tmp_path / "noise", rows)


# ----------------------------------------------------------------------------- what is exact


def test_alphabet_start_dead_entries_and_errors_are_those_of_brute_force(data: Path) -> None:
    told = advise(data, scales=SCALES, vocab_sizes=SIZES)
    chunks, raw, half_span = normalised(data)
    assert told.chunks == len(chunks) == 150
    for scale in told.scales:
        exact = reference.dct(chunks) * scale.scale
        symbols = np.around(exact)
        assert (scale.min_token, scale.max_token) == (symbols.min(), symbols.max())
        assert scale.alphabet_size == symbols.max() - symbols.min() + 1
        # Without room for a merge the vocabulary is what every vocabulary starts with.
        bare = FastActionProcessor.fit(
            chunks, scale.scale, scale.alphabet_size - 1 or 1, compatible=True
        )
        vocabulary = bare.tokenizer.backend_tokenizer.get_vocab()
        ids = bare(chunks)
        assert scale.start_size == len(vocabulary)
        assert scale.dead_entries == len(vocabulary) - len({i for chunk in ids for i in chunk})
        assert scale.byte_characters == len({i for chunk in ids for i in chunk})
        assert scale.bytes == pytest.approx(np.mean([len(chunk) for chunk in ids]), rel=1e-12)
        error = np.asarray(bare.decode(ids)) - chunks
        wanted = np.sqrt((error**2).mean(axis=(0, 1)))
        np.testing.assert_allclose(scale.dim_rmse, wanted, rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(scale.dim_rmse_units, wanted * half_span, rtol=1e-5, atol=1e-8)
        assert scale.rmse == pytest.approx(math.sqrt((error**2).mean()), rel=1e-5)
        total = math.sqrt(((error * half_span) ** 2).mean())
        assert scale.rmse_units == pytest.approx(total, rel=1e-5)
    back = told.normalization.unnormalize(chunks.astype(np.float64))
    clipped = np.sqrt(((back - raw) ** 2).mean(axis=(0, 1)))
    np.testing.assert_allclose(told.clipping_rmse_units, clipped, rtol=1e-12)


def test_what_a_vocabulary_holds_is_what_the_fit_takes(data: Path) -> None:
    told = advise(data, scales=(10, 40), vocab_sizes=(64, 128, 300))
    chunks, _, _ = normalised(data)
    seen = set()
    for scale in told.scales:
        for at, size in enumerate(told.vocab_sizes):
            seen.add(bool(scale.holds[at]))
            if not scale.holds[at]:
                assert scale.merges[at] == 0
                assert np.isnan(scale.tokens[at])
                with pytest.raises(VocabularyError):
                    FastActionProcessor.fit(chunks, scale.scale, size)
                continue
            fitted = FastActionProcessor.fit(chunks, scale.scale, size)
            assert fitted.max_token - fitted.min_token + 1 == scale.alphabet_size
            entries = len(fitted.tokenizer)
            assert entries <= size
            if entries == size:  # else pairs that occur twice ran out
                assert scale.dead_share[at] == scale.dead_entries / entries
            if not scale.merges[at]:
                assert entries == scale.start_size
                lengths = [len(chunk) for chunk in fitted(chunks)]
                assert scale.tokens[at] == pytest.approx(np.mean(lengths))
                assert scale.tokens_low[at] == scale.tokens_high[at] == scale.tokens[at]
    assert seen == {True, False}


def test_a_beginning_one_above_the_vocabulary_is_refused(golden: Path) -> None:
    root = golden / "lerobot_v30"
    start = advise(root, scales=[10]).scales[0].start_size
    held = advise(root, scales=[10], vocab_sizes=[start - 1, start, start + 1]).scales[0]
    assert held.holds.tolist() == [False, True, True]
    assert held.merges.tolist() == [0, 0, 1]


def test_more_coefficients_than_characters_are_held_by_no_vocabulary(golden: Path) -> None:
    told = advise(golden / "lerobot_v30", scales=[20_000], vocab_sizes=[10**6]).scales[0]
    assert told.alphabet_size > advice_statistics.MAX_RANGE + 1
    assert not told.holds.any()
    assert told.start_size >= told.alphabet_size
    assert told.rmse < 1e-4
    assert np.isnan(told.words)


def test_chunks_and_normalisation_are_those_of_the_fit(golden: Path, tmp_path: Path) -> None:
    root = golden / "lerobot_v30"
    cache = tmp_path / "cache"
    folder = vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=cache, **SMALL)
    report = read_report(Path(folder))
    told = advise(root, scales=[10])
    assert told.normalization == vlaprep.Normalization.from_pretrained(folder)
    assert told.scales[0].min_token == report["tokens"]["min_token"]
    assert told.scales[0].max_token == report["tokens"]["max_token"]
    # All 150 chunks are checked in the fit, with clipping; rounding and clipping nearly add up.
    both = np.hypot(told.scales[0].dim_rmse_units, told.clipping_rmse_units)
    rms = report["reconstruction"]["dataset_units"]["rms"]
    np.testing.assert_allclose(both, rms, rtol=0.1)


def test_the_transform_is_scipys_to_nine_digits() -> None:
    chunks = np.random.default_rng(0).uniform(-1, 1, (50, 33, 4)).astype(np.float32)
    for factor in (1, 40):
        fine, unit = advice_statistics.transform(chunks * np.float32(factor))
        want = reference.dct(chunks * np.float32(factor))
        assert np.abs(fine / unit - want).max() < 1e-8 * factor


def test_entropy_is_that_of_each_place() -> None:
    codes = np.random.default_rng(0).integers(0, 5, (200, 7)).astype(np.int32)
    want = 0.0
    for column in codes.T:
        p = np.unique(column, return_counts=True)[1] / len(column)
        want -= float((p * np.log2(p)).sum())
    assert advice_statistics._bits(codes) == pytest.approx(want, rel=1e-12)
    assert advice_statistics._bits(np.zeros((9, 3), np.int32)) == 0


# ------------------------------------------------------------------------ what is estimated


def ratios(root: Path, scales: Any, sizes: Any, **options: Any) -> list[float]:
    """Estimated tokens over real ones, for each fit with at least 8 merges."""
    told = advise(root, scales=scales, vocab_sizes=sizes, **options)
    chunks, _, _ = normalised(root, **options)
    found = []
    for scale in told.scales:
        for at, size in enumerate(told.vocab_sizes):
            if scale.merges[at] >= 8:
                fitted = FastActionProcessor.fit(chunks, scale.scale, size)
                real = float(np.mean([len(chunk) for chunk in fitted(chunks)]))
                assert scale.words - 1e-9 <= real <= scale.bytes + 1e-9
                assert scale.words <= scale.tokens_low[at] <= scale.tokens[at]
                assert scale.tokens[at] <= scale.tokens_high[at] <= scale.bytes
                found.append(scale.tokens[at] / real)
    return found


def test_tokens_are_estimated_within_the_stated_error(golden: Path, demo_root: Path) -> None:
    sizes = (256, 1024, 2048)
    found = [
        *ratios(golden / "lerobot_v21", (10, 50), sizes, n_samples=600, chunk_size=10),
        *ratios(golden / "lerobot_v30", (10, 50), sizes, n_samples=600, chunk_size=16),
        *ratios(demo_root, (10, 50), sizes, n_samples=600, chunk_size=50),
    ]
    assert len(found) >= 14
    errors = np.abs(np.array(found) - 1)
    assert np.median(errors) < 0.10, found
    assert np.quantile(errors, 0.9) < 0.35, found


@pytest.mark.slow
def test_tokens_are_estimated_well_over_the_whole_grid(golden: Path, demo_root: Path) -> None:
    scales, sizes = (5, 10, 20, 50, 100), (256, 1024, 4096)
    found: list[float] = []
    for root in (golden / "lerobot_v21", golden / "lerobot_v30", demo_root):
        for chunk_size in (10, 20):
            found += ratios(root, scales, sizes, n_samples=700, chunk_size=chunk_size)
    errors = np.abs(np.array(found) - 1)
    assert len(found) > 70
    assert np.median(errors) < 0.10
    assert np.quantile(errors, 0.9) < 0.35


@pytest.mark.parametrize("merges", [0, 1, 50, 10**6])
def test_an_estimate_lies_between_words_and_bytes(merges: int) -> None:
    for bits in (0.0, 3.0, 1e6):
        tokens = advice_statistics.estimate_tokens(bits, 4.0, 90.0, merges)
        assert 4 <= tokens <= 90
    assert advice_statistics.estimate_tokens(30.0, 4.0, 90.0, 0) == 90


# ---------------------------------------------------------------------------- recommendation


@pytest.fixture(scope="module")
def recorded(golden: Path) -> advice.Advice:
    return advise(golden / "lerobot_v30")


def test_an_error_asks_for_the_coarsest_scale_that_keeps_it(
    recorded: advice.Advice, golden: Path
) -> None:
    for scale in recorded.scales[:4]:
        told = advise(golden / "lerobot_v30", max_error=scale.rmse * 1.001)
        assert told.scale == scale.scale
        at = told.vocab_sizes.index(told.vocab_size or 0)
        assert scale.merges[at] > scale.start_size
        assert not (scale.merges[:at] > scale.start_size).any()
        assert f"scale {scale.scale:g} is the coarsest" in told.reason
        assert f"{scale.rmse:.3g}" in told.reason


def test_a_budget_asks_for_the_finest_scale_within_it(
    recorded: advice.Advice, golden: Path
) -> None:
    for scale in recorded.scales:
        budget = float(np.nanmin(scale.tokens)) * 1.001
        told = advise(golden / "lerobot_v30", max_tokens=budget)
        assert told.scale == scale.scale
        assert told.vocab_size == recorded.vocab_sizes[-1]
        assert "finest scale" in told.reason
    roomy = advise(golden / "lerobot_v30", max_tokens=1000)
    finest = recorded.scales[-1]
    smallest = int(np.flatnonzero(finest.merges)[0])
    assert (roomy.scale, roomy.vocab_size) == (finest.scale, recorded.vocab_sizes[smallest])


def test_both_wishes_hold_together_or_it_says_what_to_change(
    recorded: advice.Advice, golden: Path
) -> None:
    root = golden / "lerobot_v30"
    scale = recorded.scales[2]
    error = scale.rmse * 1.001
    told = advise(root, max_error=error, max_tokens=float(scale.tokens[2]) * 1.001)
    assert (told.scale, told.vocab_size) == (scale.scale, recorded.vocab_sizes[2])
    few = float(recorded.scales[0].tokens[-1]) * 1.001
    none = advise(root, max_error=error, max_tokens=few)
    assert (none.scale, none.vocab_size) == (None, None)
    assert f"raise max_tokens to {math.ceil(np.nanmin(scale.tokens))}" in none.reason
    assert f"allow an error of {recorded.scales[0].rmse:.3g} (scale 5)" in none.reason


def test_where_nothing_fits_it_says_what_to_change(golden: Path) -> None:
    root = golden / "lerobot_v30"
    assert advise(root).scale is None
    assert "max_error or max_tokens" in advise(root).reason
    coarse = advise(root, max_error=1e-4)
    assert coarse.scale is None
    assert "look at scales from about 2887 on" in coarse.reason
    helped = advise(root, max_error=1e-4, scales=[2887], vocab_sizes=[100_000])
    assert helped.scale == 2887
    small = advise(root, max_error=0.1, vocab_sizes=[64])
    assert small.scale is None
    assert "larger vocabularies" in small.reason
    dear = advise(root, max_tokens=1)
    assert dear.scale is None
    assert "lower scales" in dear.reason


# ------------------------------------------------------------------------- form and arguments


def test_the_result_is_frozen_plain_and_readable(recorded: advice.Advice) -> None:
    scale = recorded.scales[0]
    with pytest.raises(FrozenInstanceError):
        recorded.scale = 3.0  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        scale.dim_rmse[0] = 0
    again = pickle.loads(pickle.dumps(recorded))
    assert again.to_dict() == recorded.to_dict()
    plain = json.loads(json.dumps(recorded.to_dict(), allow_nan=False))
    assert plain["scales"][0]["dim_rmse"] == scale.dim_rmse.tolist()
    assert plain["scales"][-1]["tokens"][0] is None
    text = str(recorded)
    assert max(map(len, text.splitlines())) <= 100
    assert "joint_5.pos" in text
    assert "\x1b" not in text
    assert isinstance(vlaprep.Advice, type)
    assert isinstance(vlaprep.ScaleAdvice, type)


def test_threads_and_order_of_arguments_change_nothing(golden: Path) -> None:
    root = golden / "lerobot_v21"
    first = advise(root, scales=(5, 20), vocab_sizes=(300, 900)).to_dict()
    for options in ({"num_threads": 1}, {"num_threads": 7}):
        turned = advise(root, scales=[20, 5, 5.0], vocab_sizes=np.array([900, 300]), **options)
        assert turned.to_dict() == first


def test_both_layouts_give_the_same(tmp_path: Path) -> None:
    rows = make_rows({e: (0, 20 + e) for e in range(6)}, dim=2)
    flat = advise(write_v2(tmp_path / "v2", rows)).to_dict()
    many = advise(write_v3(tmp_path / "v3", rows)).to_dict()
    assert flat.pop("dataset") != many.pop("dataset")
    assert flat == many
    assert flat["dims"] == ["0", "1"]


def test_names_of_dims_come_from_the_dataset_where_they_fit(tmp_path: Path) -> None:
    rows = make_rows(dict.fromkeys(range(6), (0, 20)), dim=2)
    for names, want in ((["x", "y"], ("x", "y")), (["x"], ("0", "1"))):
        root = write_v3(tmp_path / str(len(names)), rows)
        feature = {"dtype": "float32", "shape": [2], "names": names}
        write_meta(root, features={"action": feature})
        assert advise(root, scales=[10]).dims == want


def test_windows_that_are_not_finite_are_left_out_or_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = make_rows(dict.fromkeys(range(6), (0, 40)), dim=2)
    rows["action"][50, 1] = np.nan
    root = write_v3(tmp_path / "data", rows)
    assert advise(root).chunks == 150
    assert "were skipped" in caplog.text
    with pytest.raises(DatasetFormatError, match="NaN"):
        advise(root, nan="error")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scales": []}, "scales must be positive numbers, got none"),
        ({"scales": [10, 0]}, "scales must be positive numbers, got 0"),
        ({"scales": [math.inf]}, "scales must be positive numbers, got inf"),
        ({"scales": [math.nan]}, "scales must be positive numbers, got nan"),
        ({"scales": [1e12]}, "scale"),
        ({"vocab_sizes": []}, "vocab_sizes must be positive numbers, got none"),
        ({"vocab_sizes": [-1]}, "vocab_sizes must be positive numbers, got -1"),
        ({"vocab_sizes": [512, 2**20 + 1]}, "vocab_sizes must be at most 1048576, got 1048577"),
        ({"vocab_sizes": [10**20]}, "vocab_sizes must be at most 1048576"),
        ({"max_error": 0}, "max_error must be a positive number"),
        ({"max_tokens": math.nan}, "max_tokens must be a positive number"),
        ({"n_samples": 0}, "n_samples must be at least 1"),
        ({"nan": "keep"}, "nan must be"),
        ({"revision": "main"}, "revision"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused(
    golden: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        advise(golden / "lerobot_v30", **options)


def test_errors_are_those_of_the_fit(golden: Path, tmp_path: Path) -> None:
    root = golden / "lerobot_v30"
    with pytest.raises(DatasetFormatError, match="no action column 'joints'"):
        advise(root, action_key="joints")
    with pytest.raises(NoChunksError):
        advise(root, chunk_size=10_000)
    with pytest.raises(EpisodeSelectionError):
        advise(root, episodes=[4711])
    with pytest.raises(DatasetNotFoundError):
        advise(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no dataset"):
        vlaprep.advise_tokenizer()
    rows = make_rows({0: (0, 30)}, dim=2)
    rows["action"][:] = np.nan
    broken = write_v3(tmp_path / "nan", to_table(rows, action=list_array(rows["action"])))
    with pytest.raises(NoChunksError, match="hold NaN"):
        advise(broken)


# ------------------------------------------------------------------------------ command line

FEW = ("--n-samples", "64", "--chunk-size", "20", "--advise")


def test_the_command_shows_tables_and_fits_nothing(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    ran = run("fit", root, *FEW, "--cache-dir", cache, "--max-error", "0.02", COLUMNS="100")
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert not cache.exists()
    for words in ("alphabet", "Tokens a chunk", "RMSE by dim", "gripper.pos", "the coarsest scale"):
        assert words in ran.stderr
    table = [line for line in ran.stderr.splitlines()[2:] if str(root) not in line]
    assert max(map(len, table)) <= 100


def test_the_command_tells_the_same_as_the_function(root: Path) -> None:
    lists = ("--scales", "10,5", "--vocab_sizes", "[400, 800]")
    told = run_json("fit", root, *FEW, *lists, "--max-tokens", "30", "--episodes", "0:20")
    want = vlaprep.advise_tokenizer(
        dataset_root=root,
        n_samples=64,
        chunk_size=20,
        episodes=range(20),
        scales=(5, 10),
        vocab_sizes=(400, 800),
        max_tokens=30,
    )
    assert told["advice"] == json.loads(json.dumps(want.to_dict()))
    assert told["advice"]["vocab_sizes"] == [400, 800]


def test_the_command_says_when_nothing_fits_and_when_it_fails(root: Path) -> None:
    ran = run("fit", root, *FEW, "--max-error", "1e-6")
    assert ran.exit_code == 0
    assert "none to recommend" in ran.stderr
    unseen = run("fit", root, *FEW, "--alphabet", "symbols", "--scale", "50", "--coverage", "all")
    assert unseen.exit_code == 0
    assert "it does not look at --scale, --alphabet, --coverage" in unseen.stderr
    assert "does not look at" not in ran.stderr
    failed = run("fit", root, *FEW, "--scales", "0")
    assert failed.exit_code == 1
    assert "scales must be positive" in failed.stderr
