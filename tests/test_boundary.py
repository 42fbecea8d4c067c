"""Bad input to every public function: an ordinary error, and nothing half-written."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import vlaprep
from lerobot_folder import file_name, make_rows, take, to_table, write_v3
from outcome import mode_bits_bind, tree
from vlaprep import errors, speed
from vlaprep.normalization import Normalization

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = make_rows({e: (0, 20 + 3 * e) for e in range(12)}, dim=3)
N = len(ROWS["index"])
LENGTHS = {e: 20 + 3 * e for e in range(12)}
TASK_OF = dict.fromkeys(LENGTHS, 0)


def ordinary(call: Callable[[], Any], *kinds: type[Exception]) -> str:
    """The message of the error that `call` raises; it says something, and is no panic."""
    with pytest.raises(kinds or (ValueError, TypeError, OverflowError, RuntimeError)) as caught:
        call()
    message = str(caught.value)
    assert len(message) > 10, repr(caught.value)
    assert "panicked" not in message
    return message


# ------------------------------------------------------------------------ fit_fast_tokenizer


def with_actions(column: Any) -> pa.Table:
    return to_table(ROWS, action=column)


def dirty(value: float | None, share: float = 1.0) -> pa.Table:
    lists: list[Any] = ROWS["action"].tolist()
    for row in range(0, N, round(1 / share)):
        lists[row] = [0.5, value, 0.5]
    return with_actions(pa.array(lists, pa.list_(pa.float32())))


RAGGED: list[Any] = ROWS["action"].tolist()
RAGGED[::7] = [[1.0]] * len(RAGGED[::7])

BAD_DATA: dict[str, tuple[Any, type[Exception]]] = {
    "all NaN": (dirty(math.nan), errors.NoChunksError),
    "all null elements": (dirty(None), errors.NoChunksError),
    "all infinite": (dirty(math.inf), errors.NoChunksError),
    "all null rows": (with_actions(pa.nulls(N, pa.list_(pa.float32()))), errors.VlaprepError),
    "null type": (with_actions(pa.nulls(N)), errors.VlaprepError),
    "ragged": (with_actions(pa.array(RAGGED, pa.list_(pa.float32()))), errors.DatasetFormatError),
    "text": (with_actions(pa.array(["x"] * N)), errors.DatasetFormatError),
    "no action column": (to_table(ROWS, action=None), errors.DatasetFormatError),
    "no rows": (to_table(take(ROWS, slice(0, 0))), errors.VlaprepError),
}
BAD_OPTIONS: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "chunk longer than every episode": ({"chunk_size": 1000}, errors.NoChunksError),
    "absent episode": ({"episodes": [0, 77]}, errors.EpisodeSelectionError),
    "no episode": ({"episodes": []}, errors.EpisodeSelectionError),
    "all excluded": ({"exclude_episodes": range(12)}, errors.EpisodeSelectionError),
    "absent column": ({"action_key": "velocity"}, errors.DatasetFormatError),
    "small vocabulary": ({"vocab_size": 20}, errors.VocabularyError),
    "n_samples": ({"n_samples": 0}, ValueError),
    "n_samples float": ({"n_samples": 10.5}, TypeError),
    "chunk_size": ({"chunk_size": 0}, ValueError),
    "scale": ({"scale": math.nan}, ValueError),
    "scale 0": ({"scale": 0}, ValueError),
    "vocab_size": ({"vocab_size": -1}, ValueError),
    "max_token_length": ({"max_token_length": 0}, ValueError),
    "seed": ({"seed": -1}, ValueError),
    "nan": ({"nan": "zero"}, ValueError),
    "coverage": ({"coverage": "some"}, ValueError),
    "base": ({"base_tokenizer_name": "no such place"}, errors.VlaprepError),
    "revision of a folder": ({"revision": "main"}, ValueError),
}


def fit(root: Path, cache: Path, **options: Any) -> str:
    options = {"n_samples": 20, "chunk_size": 5, **options}
    return vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=cache, **options)


def hold_nothing_published(cache: Path) -> None:
    """Locks and marks of a failure may stay; folders may not, whole or half."""
    left = [path for path in cache.rglob("*") if path.is_dir()] if cache.exists() else []
    assert left == []


@pytest.mark.parametrize("name", BAD_DATA)
def test_a_fit_on_bad_data(tmp_path: Path, name: str) -> None:
    table, kind = BAD_DATA[name]
    root, cache = write_v3(tmp_path / "data", table), tmp_path / "cache"
    before = tree(root)
    ordinary(lambda: fit(root, cache), kind)
    assert tree(root) == before
    hold_nothing_published(cache)


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_a_fit_with_bad_options(tmp_path: Path, name: str) -> None:
    options, kind = BAD_OPTIONS[name]
    root, cache = write_v3(tmp_path / "data", ROWS), tmp_path / "cache"
    ordinary(lambda: fit(root, cache, **options), kind)
    hold_nothing_published(cache)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_dirty_windows_are_skipped_with_one_warning_or_refused(
    tmp_path: Path, value: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    root, cache = write_v3(tmp_path / "data", dirty(value, share=1 / 20)), tmp_path / "cache"
    folder = fit(root, cache)
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(warned) == 1
    assert "%" in warned[0]
    assert Path(folder).is_dir()
    message = ordinary(lambda: fit(root, cache, nan="error"), errors.DatasetFormatError)
    assert "episode" in message
    assert "frame" in message


def test_a_fit_without_any_dataset(tmp_path: Path) -> None:
    ordinary(lambda: vlaprep.fit_fast_tokenizer(cache_dir=tmp_path), ValueError)
    ordinary(lambda: fit(tmp_path / "nowhere", tmp_path / "cache"), errors.DatasetNotFoundError)
    hold_nothing_published(tmp_path)


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    root, cache = write_v3(tmp_path / "data", ROWS), tmp_path / "cache"
    cache.mkdir(mode=0o555)
    with mode_bits_bind():
        ordinary(lambda: fit(root, cache), OSError, RuntimeError)
    assert tree(cache) == {}
    (tmp_path / "file").write_text("no folder")
    ordinary(lambda: fit(root, tmp_path / "file"), OSError, ValueError, RuntimeError)
    assert (tmp_path / "file").read_text() == "no folder"


# ----------------------------------------------------------------------------------- speed

GOOD_ROW = {"task_index": 0, "task": "a", "n_episodes": 12, "percentiles": None}
RISING = [float(value) for value in range(10)]
BAD_LINES: dict[str, str] = {
    "torn": '{"task_index": 1, "task": "b", "n_epi',
    "no object": "[1, 2]",
    "no JSON": "task 1",
    "no task_index": json.dumps({"percentiles": None}),
    "task_index of text": json.dumps({**GOOD_ROW, "task_index": "one"}),
    "task_index with a fraction": json.dumps({**GOOD_ROW, "task_index": 1.5}),
    "no percentiles": json.dumps({"task_index": 1, "task": "b", "n_episodes": 3}),
    "nine boundaries": json.dumps({**GOOD_ROW, "percentiles": RISING[:9]}),
    "eleven boundaries": json.dumps({**GOOD_ROW, "percentiles": [*RISING, 11.0]}),
    "falling boundaries": json.dumps({**GOOD_ROW, "percentiles": RISING[::-1]}),
    "NaN boundary": json.dumps({**GOOD_ROW, "percentiles": [*RISING[:9], math.nan]}),
    "text boundary": json.dumps({**GOOD_ROW, "percentiles": [*RISING[:9], "9"]}),
    "true boundary": json.dumps({**GOOD_ROW, "percentiles": [True, *RISING[1:]]}),
    "boundaries of text": json.dumps({**GOOD_ROW, "percentiles": "0123456789"}),
    "n_episodes of text": json.dumps({**GOOD_ROW, "n_episodes": "many"}),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_malformed_percentile_file_is_named_and_left_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / "meta/speed_percentiles.jsonl"
    path.parent.mkdir()
    path.write_text(json.dumps(GOOD_ROW) + "\n" + BAD_LINES[name] + "\n")
    before = tree(tmp_path)
    message = ordinary(
        lambda: speed.load_or_compute_speed_percentiles(
            tmp_path, LENGTHS, {**TASK_OF, 11: 3}, {"a": 0}
        ),
        errors.PercentileFileError,
    )
    assert "speed_percentiles.jsonl" in message
    assert "2" in message, "the line"
    assert tree(tmp_path) == before


@pytest.mark.parametrize("data", [b"\xff\xfe{}\n", b"\x00" * 64, b"PAR1\n"])
def test_a_percentile_file_that_is_no_text(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "meta/speed_percentiles.jsonl"
    path.parent.mkdir()
    path.write_bytes(data)
    ordinary(
        lambda: speed.load_or_compute_speed_percentiles(tmp_path, LENGTHS, TASK_OF, {"a": 0}),
        errors.PercentileFileError,
    )
    assert path.read_bytes() == data


NINE = [1.0] * 9
BAD_SPEED: dict[str, Callable[[], Any]] = {
    "bucket: nine": lambda: speed.bucket_episode_length(5, NINE),
    "bucket: none": lambda: speed.bucket_episode_length(5, []),
    "bucket: falling": lambda: speed.bucket_episode_length(5, RISING[::-1]),
    "bucket: NaN": lambda: speed.bucket_episode_length(5, [*NINE, math.nan]),
    "bucket: infinite": lambda: speed.bucket_episode_length(5, [*NINE, math.inf]),
    "buckets: shapes": lambda: speed.bucket_episode_lengths([1, 2], [0], {0: RISING}),
    "buckets: nine": lambda: speed.bucket_episode_lengths([1], [0], {0: NINE}),
    "buckets: float lengths": lambda: speed.bucket_episode_lengths([1.5], [0], {0: RISING}),
    "buckets: negative": lambda: speed.bucket_episode_lengths([-1], [0], {0: RISING}),
    "percentiles: float": lambda: speed.compute_task_percentiles({0: [1.5] * 20}),
    "percentiles: negative": lambda: speed.compute_task_percentiles({0: list(range(-5, 20))}),
    "percentiles: text": lambda: speed.compute_task_percentiles({0: ["a"] * 20}),
    "percentiles: None": lambda: speed.compute_task_percentiles({0: [None] * 20}),
    "percentiles: too big": lambda: speed.compute_task_percentiles({0: [2**70] * 20}),
}


@pytest.mark.parametrize("name", BAD_SPEED)
def test_bad_arguments_of_the_speed_functions(name: str) -> None:
    ordinary(BAD_SPEED[name])


def test_a_task_without_a_length(tmp_path: Path) -> None:
    message = ordinary(
        lambda: speed.load_or_compute_speed_percentiles(tmp_path, {0: 5}, {0: 0, 41: 0}, {}),
        errors.EpisodeSelectionError,
    )
    assert "41" in message
    assert tree(tmp_path) == {}


# ------------------------------------------------------------------- the processor, by itself

WAVES = np.sin(np.linspace(0, 3, 400)).reshape(20, 10, 2)
Processor = vlaprep.FastActionProcessor


@pytest.fixture(scope="module")
def codec() -> Any:
    return Processor.fit(WAVES, vocab_size=256)


def spoiled(value: float) -> np.ndarray:
    chunks = WAVES[:3].copy()
    chunks[1, 4, 1] = value
    return chunks


BAD_FITS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: Processor.fit([]),
    "no frames": lambda: Processor.fit(np.empty((3, 0, 2))),
    "no dims": lambda: Processor.fit(np.empty((3, 4, 0))),
    "NaN": lambda: Processor.fit(spoiled(math.nan)),
    "infinity": lambda: Processor.fit(spoiled(math.inf)),
    "flat": lambda: Processor.fit([np.ones(4)]),
    "four dims": lambda: Processor.fit(np.ones((2, 2, 2, 2))),
    "text": lambda: Processor.fit([np.full((4, 2), "a")]),
    "None": lambda: Processor.fit([None]),
    "scale": lambda: Processor.fit(WAVES, scale=math.nan),
    "scale 0": lambda: Processor.fit(WAVES, scale=0),
    "range": lambda: Processor.fit(WAVES * 1000),
    "overflow": lambda: Processor.fit(WAVES * 1e307),
    "vocabulary": lambda: Processor.fit(WAVES, vocab_size=3),
    "width": lambda: Processor.fit(WAVES, action_dim=5),
}


@pytest.mark.parametrize("name", BAD_FITS)
def test_a_processor_fitted_on_bad_chunks(name: str) -> None:
    ordinary(BAD_FITS[name])


BAD_CHUNKS: dict[str, Any] = {
    "NaN": spoiled(math.nan),
    "infinity": spoiled(-math.inf),
    "width": np.ones((2, 10, 5)),
    "flat": np.ones(10),
    "four dims": np.ones((1, 1, 10, 2)),
    "text": np.full((1, 10, 2), "a"),
    "complex": np.ones((1, 10, 2), complex),
    "ragged": [[[1.0, 2.0], [1.0]]],
    "None": None,
}


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_bad_chunks_are_not_encoded(codec: Any, name: str) -> None:
    for encode in (codec, codec.encode_batch, lambda x: codec.encode_padded(x, 8)):
        message = ordinary(lambda encode=encode: encode(BAD_CHUNKS[name]))
    if name in ("NaN", "infinity"):
        assert all(place in message for place in ("chunk 1", "step 4", "dim 1"))


BAD_IDS = {
    "huge": [[2**70]],
    "unknown": [[84967]],
    "negative": [[-1]],
    "nothing": [[]],
    "half": [[0]],
    "too many": [[0] * 5000],
}


@pytest.mark.parametrize("name", BAD_IDS)
def test_bad_ids_are_flagged_zeros_or_an_error(
    codec: Any, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    good = codec(WAVES[:1])
    ids = [*BAD_IDS[name], *good]
    actions, status = codec.decode_batch(ids, time_horizon=10, action_dim=2)
    assert status.tolist()[0] != 0
    assert status.tolist()[1] == 0
    assert not actions[0].any()
    np.testing.assert_array_equal(codec.decode(ids), actions)
    ordinary(lambda: codec.decode_batch(ids, policy="strict", time_horizon=10, action_dim=2))
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("ids", [[["a"]], [[None]], [[0.5]], [3], None, 7])
def test_ids_that_are_no_integers(codec: Any, ids: Any) -> None:
    ordinary(lambda: codec.decode(ids, time_horizon=10, action_dim=2))


@pytest.mark.parametrize("shape", [(0, 2), (-1, 2), (10, 0), (10, 3), (2**62, 2**62)])
def test_shapes_that_cannot_be_decoded(codec: Any, shape: tuple[int, int]) -> None:
    horizon, dim = shape
    ordinary(lambda: codec.decode([[0]], time_horizon=horizon, action_dim=dim))


BAD_FILES = {
    "empty": b"",
    "torn": b'{"scale": 1',
    "list": b"[]",
    "binary": b"\xff\x00",
    "null": b"null",
}


@pytest.mark.parametrize("file", ["processor_config.json", "tokenizer.json"])
@pytest.mark.parametrize("name", [*BAD_FILES, "absent"])
def test_a_folder_that_is_no_tokenizer(codec: Any, tmp_path: Path, file: str, name: str) -> None:
    codec.save_pretrained(tmp_path)
    (tmp_path / file).unlink()
    if name != "absent":
        (tmp_path / file).write_bytes(BAD_FILES[name])
    message = ordinary(lambda: Processor.from_pretrained(tmp_path), errors.TokenizerFormatError)
    assert file in message


def test_a_folder_of_a_newer_format(codec: Any, tmp_path: Path) -> None:
    codec.save_pretrained(tmp_path)
    path = tmp_path / "processor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 99}))
    message = ordinary(lambda: Processor.from_pretrained(tmp_path), errors.TokenizerFormatError)
    assert "99" in message


# --------------------------------------------------------------- draws and normalisation


def draw(**options: Any) -> Any:
    options = {"chunk_size": 5, "n_samples": 9, "seed": 0, **options}
    return vlaprep.sample_chunks(
        options.pop("ids", [0, 1]), options.pop("length", [9, 9]), **options
    )


BAD_DRAWS: dict[str, dict[str, Any]] = {
    "too long": {"chunk_size": 10},
    "chunk 0": {"chunk_size": 0},
    "none wanted": {"n_samples": 0},
    "twice": {"ids": [3, 3]},
    "shapes": {"length": [9]},
    "fractions": {"length": [9.5, 9.5]},
    "two dims": {"ids": [[0, 1]], "length": [[9, 9]]},
    "no episodes": {"ids": [], "length": []},
    "text": {"ids": ["a", "b"]},
}


@pytest.mark.parametrize("name", BAD_DRAWS)
def test_draws_that_make_no_sense(name: str) -> None:
    ordinary(lambda: draw(**BAD_DRAWS[name]))


BAD_NORMS: dict[str, Callable[[], Any]] = {
    "convention": lambda: Normalization.fit(WAVES, convention="mine"),
    "mode": lambda: Normalization.fit(WAVES, mode="MEDIAN"),
    "NaN": lambda: Normalization.fit(spoiled(math.nan)),
    "infinity": lambda: Normalization.fit(np.full((4, 4, 2), np.inf)),
    "no rows": lambda: Normalization.fit(np.empty((0, 4, 2))),
    "width": lambda: Normalization.fit(WAVES).normalize(np.ones((1, 10, 3))),
    "shapes": lambda: Normalization("pi052", "QUANTILES", lo=[0.0], hi=[1.0, 2.0]),
    "newer": lambda: Normalization.from_dict(
        Normalization.fit(WAVES).to_dict() | {"format_version": 9}
    ),
    "malformed": lambda: Normalization.from_dict({}),
}


@pytest.mark.parametrize("name", BAD_NORMS)
def test_normalisations_that_make_no_sense(name: str) -> None:
    ordinary(BAD_NORMS[name])


def test_a_broken_file_stops_both_jobs_before_they_write(tmp_path: Path) -> None:
    root, cache = write_v3(tmp_path / "data", ROWS, ROWS), tmp_path / "cache"
    (root / file_name(1)).write_bytes((root / file_name(1)).read_bytes()[:-100])
    before = tree(root)
    for call in (
        lambda: vlaprep.speed_labels(vlaprep.open_dataset(root)),
        lambda: fit(root, cache),
    ):
        assert "file-001" in ordinary(call, errors.DatasetFormatError)
    assert tree(root) == before
    hold_nothing_published(cache)
