"""A fit with ``coverage="all"``: every window of the dataset is encoded exactly."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reference
import vlaprep
from lerobot_folder import Rows, make_rows, write_v2, write_v3
from published_fast import PublishedBase
from vlaprep import fit as fit_module
from vlaprep import fit_cover
from vlaprep.action_space import ActionSpace
from vlaprep.errors import VocabularyError
from vlaprep.fit_chunks import ChunkReader, DrawnChunks
from vlaprep.fit_options import Draws
from vlaprep.fit_report import read_report
from vlaprep.fit_sample import draw_sample, select_table
from vlaprep.fit_source import Selection
from vlaprep.normalization import Normalization
from vlaprep.sweep import Symbols

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vlaprep.fit_sample import Sample

HORIZON = 8
SMALL = {"n_samples": 12, "chunk_size": HORIZON, "seed": 7, "scale": 20.0}


def rare_rows() -> Rows:
    """Calm motion, but for some frames of the last episode and one that is no number."""
    rows = make_rows({e: (0, 30 + 5 * e) for e in range(6)}, dim=3)
    n = len(rows["action"])
    rows["action"] = np.sin(np.arange(n)[:, None] * [0.01, 0.02, 0.03]).astype(np.float32)
    rows["action"][-24:-16] = [[5, -5, 5], [-5, 5, -5]] * 4
    rows["action"][-70] = np.nan
    return rows


@pytest.fixture(params=[write_v2, write_v3], ids=["v2", "v3"])
def root(request: Any, tmp_path: Path) -> Path:
    return request.param(tmp_path / "data", rare_rows())


def fit(root: Path, cache: Path, **options: Any) -> Path:
    return Path(vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=cache, **SMALL | options))


def all_windows(root: Path, normalization: Normalization) -> np.ndarray:
    """Every finite window, normalised, by brute force."""
    dataset, chunks = vlaprep.open_dataset(root), []
    for episode in dataset.episodes.episode_index.tolist():
        rows = dataset.read("action", [episode])["action"]
        windows = reference.windows(rows, HORIZON)
        chunks.append(normalization.normalize(windows[np.isfinite(windows).all(axis=(1, 2))]))
    return np.concatenate(chunks)


def exactly(codec: vlaprep.ActionCodec, chunks: np.ndarray) -> np.ndarray:
    """Which chunks come back with the symbols they went in with."""
    ids, offsets = codec.encode_batch(chunks)
    decoded, status = codec.decode_batch(
        ids, offsets, time_horizon=HORIZON, action_dim=chunks.shape[2]
    )
    want, _ = reference.dct_quantize(chunks, codec.scale)
    got, _ = reference.dct_quantize(decoded, codec.scale)
    return (status == 0) & (want == got).all(axis=(1, 2))


BASES: dict[str, Callable[..., Any] | None] = {
    "built-in": None,
    "published": lambda *_, **__: PublishedBase(),
}


@pytest.mark.parametrize("base", BASES)
def test_every_window_comes_back(
    root: Path, tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if BASES[base]:
        monkeypatch.setattr(fit_module, "open_base", BASES[base])
    sampled = fit(root, tmp_path / "cache")
    covering = fit(root, tmp_path / "cache", coverage="all")
    assert sampled != covering
    normalization = Normalization.from_pretrained(covering)
    assert normalization == Normalization.from_pretrained(sampled)
    chunks = all_windows(root, normalization)
    mode = "published" if BASES[base] else "clamp"
    some = exactly(vlaprep.ActionCodec.from_pretrained(sampled, on_range=mode), chunks)
    assert 0 < some.sum() < len(some)
    assert exactly(vlaprep.ActionCodec.from_pretrained(covering, on_range=mode), chunks).all()

    report = read_report(covering)
    assert "coverage" not in read_report(sampled)
    told = report["coverage"]
    assert (told["windows"], told["windows_skipped"]) == (len(chunks), HORIZON)
    assert told["windows_beyond_sample"] >= len(told["chunks_added"]) > 0
    assert told["symbols_added"]
    symbols, _ = reference.dct_quantize(chunks, SMALL["scale"])
    sample = normalization.normalize(draw(root, report).chunks)
    drawn, _ = reference.dct_quantize(sample, SMALL["scale"])
    assert told["symbols_added"] == sorted(set(symbols.ravel()) - set(drawn.ravel()))


def test_the_corpus_is_the_sample_and_the_windows_added(root: Path, tmp_path: Path) -> None:
    folder = fit(root, tmp_path / "cache", coverage="all")
    report = read_report(folder)
    added = [(at["episode_index"], at["start"]) for at in report["coverage"]["chunks_added"]]
    assert added == sorted(set(added))
    sample = draw(root, report)
    dataset = vlaprep.open_dataset(root)
    more = dataset.read_chunks(*zip(*added, strict=True), HORIZON)
    chunks = Normalization.from_pretrained(folder).normalize(np.concatenate([sample.chunks, more]))
    want = vlaprep.FastActionProcessor.fit(chunks, scale=20.0)
    want.save_pretrained(tmp_path / "want")
    assert (folder / "tokenizer.json").read_bytes() == (
        tmp_path / "want" / "tokenizer.json"
    ).read_bytes()


def test_a_second_fit_is_a_hit_and_other_rows_are_not(root: Path, tmp_path: Path) -> None:
    folder = fit(root, tmp_path / "cache", coverage="all", validation_samples=0)
    stamp = (folder / "fit_report.json").stat().st_mtime_ns
    for threads in (1, 2, 7):
        assert (
            fit(root, tmp_path / "cache", coverage="all", validation_samples=0, num_threads=threads)
            == folder
        )
    assert (folder / "fit_report.json").stat().st_mtime_ns == stamp
    # A frame that no draw holds, but a window that was added.
    report = read_report(folder)
    sample = draw(root, report)
    added = report["coverage"]["chunks_added"]
    frames = frames_of([(at["episode_index"], at["start"]) for at in added])
    frames -= frames_of(zip(sample.episode_index.tolist(), sample.start.tolist(), strict=True))
    rows = rare_rows()
    episode, frame = min(frames)
    at = (rows["episode_index"] == episode) & (rows["frame_index"] == frame)
    rows["action"][at] *= -0.5
    other = write_v3(tmp_path / "other", rows)
    seen = {"validation_samples": 0}
    assert fit(other, tmp_path / "cache", **seen) == fit(root, tmp_path / "cache", **seen)
    assert fit(other, tmp_path / "cache", coverage="all", **seen) != folder


def frames_of(windows: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(episode, start + i) for episode, start in windows for i in range(HORIZON)}


def draw(root: Path, report: dict[str, Any]) -> Sample:
    """The chunks that a fit drew, without those it added."""
    names = Draws.__dataclass_fields__
    draws = Draws(**{name: report["inputs"][name] for name in names})
    dataset = vlaprep.open_dataset(root)
    table = select_table(dataset, Selection.of(), "here", "action")
    reader = ChunkReader(dataset, ActionSpace("action"), draws.chunk_size)
    return draw_sample(reader, table, draws, "here")


def test_a_sample_that_holds_all_symbols_needs_nothing_more(tmp_path: Path) -> None:
    rows = make_rows(dict.fromkeys(range(3), (0, 12)), dim=1)
    root = write_v3(tmp_path / "data", rows)
    folder = fit(root, tmp_path / "cache", coverage="all", n_samples=200)
    told = read_report(folder)["coverage"]
    assert (told["windows"], told["chunks_added"], told["symbols_added"]) == (15, [], [])
    sampled = fit(root, tmp_path / "cache", n_samples=200)
    assert (folder / "tokenizer.json").read_bytes() == (sampled / "tokenizer.json").read_bytes()


def test_excluded_episodes_have_no_say(root: Path, tmp_path: Path) -> None:
    folder = fit(root, tmp_path / "cache", coverage="all", exclude_episodes=[5])
    assert 5 not in {at["episode_index"] for at in read_report(folder)["coverage"]["chunks_added"]}


def test_what_cannot_be_covered_is_said(root: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def forget(folder: Path) -> tuple[vlaprep.ActionCodec, Symbols]:
        return vlaprep.ActionCodec.from_pretrained(folder), Symbols.of(np.arange(-3, 4))

    monkeypatch.setattr("vlaprep.audit.encodable_symbols", forget)
    with pytest.raises(VocabularyError, match=r"cannot encode \d+ of \d+ windows .*coverage='all'"):
        fit(root, tmp_path / "cache", coverage="all")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    with pytest.raises(VocabularyError, match="vocab_size"):
        fit(root, tmp_path / "cache", coverage="all", vocab_size=20)


def test_a_range_that_no_vocabulary_holds_takes_no_memory(root: Path, tmp_path: Path) -> None:
    tracemalloc.start()
    with pytest.raises(VocabularyError, match=r"scale 1e\+08, are more than the 55295 that"):
        fit(root, tmp_path / "cache", coverage="all", scale=1e8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 25


def test_symbols_of_many_chunks(monkeypatch: Any, golden: Path) -> None:
    monkeypatch.setattr(fit_cover, "_BLOCK", 3)
    chunks = np.random.default_rng(0).normal(size=(10, 4, 2)).astype(np.float32)
    norm = vlaprep.Normalization.fit(chunks)
    want, _ = reference.dct_quantize(norm.normalize(chunks), 10.0)
    nowhere = np.zeros(10, dtype=np.int64)
    reader = ChunkReader(vlaprep.open_dataset(golden / "lerobot_v30"), ActionSpace("action"), 4)
    drawn = DrawnChunks(reader, nowhere, nowhere, chunks)
    assert fit_cover.symbols_of(drawn, 10.0, norm).tolist() == sorted(set(want.ravel()))
