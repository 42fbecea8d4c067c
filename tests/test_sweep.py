"""A sweep over every window against SciPy on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
import vlaprep
from lerobot_folder import make_rows, write_v2, write_v3
from vlaprep import sweep
from vlaprep.action_space import ActionSpace
from vlaprep.fit_chunks import ChunkReader
from vlaprep.kernels import sweep_windows
from vlaprep.normalization import Normalization
from vlaprep.sweep import Symbols, Windows

if TYPE_CHECKING:
    from pathlib import Path

LENGTHS = {3: 40, 4: 7, 9: 300, 10: 8, 12: 2, 20: 65}
WRITERS = {"v2": write_v2, "v3": write_v3}


def brute(rows: np.ndarray, horizon: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Symbols of all windows of one episode, and which of the windows are finite."""
    chunks = reference.windows(rows, horizon)
    finite = np.isfinite(chunks).all(axis=(1, 2))
    symbols, _ = reference.dct_quantize(np.where(finite[:, None, None], chunks, 0), scale)
    return symbols, finite


def expected(episodes: dict[int, np.ndarray], horizon: int, scale: float, known: set[int]) -> Any:
    """Unencodable windows, first windows of unknown symbols, counts: by brute force."""
    outside, firsts, windows, skipped = [], {}, 0, 0
    for episode, rows in episodes.items():
        symbols, finite = brute(rows, horizon, scale)
        windows, skipped = windows + int(finite.sum()), skipped + int((~finite).sum())
        for start in np.flatnonzero(finite).tolist():
            lacking = sorted(set(symbols[start].ravel().tolist()) - known)
            if lacking:
                outside.append((episode, start))
            for symbol in lacking:
                firsts.setdefault(symbol, (episode, start))
    return outside, dict(sorted(firsts.items())), windows, skipped


def listed(runs: np.ndarray) -> list[tuple[int, int]]:
    return [(e, start) for e, first, end in runs.tolist() for start in range(first, end)]


def told(swept: sweep.Swept) -> Any:
    firsts = {symbol: (episode, start) for symbol, episode, start in swept.symbols.tolist()}
    return listed(swept.outside), firsts, swept.windows, swept.skipped


def episodes_of(rows: Any) -> dict[int, np.ndarray]:
    ids = rows["episode_index"]
    return {int(e): rows["action"][ids == e] for e in dict.fromkeys(ids.tolist())}


@pytest.fixture(params=["v2", "v3"])
def made(request: Any, tmp_path: Path) -> tuple[Any, Path]:
    rows = make_rows({e: (0, n) for e, n in LENGTHS.items()}, dim=3)
    rows["action"][[5, 190, 300]] = np.nan, np.inf, -np.inf
    return rows, WRITERS[request.param](tmp_path / "data", rows)


@pytest.mark.parametrize("horizon", [1, 5, 8, 50])
@pytest.mark.parametrize("block", [None, 60])
def test_every_window_is_seen_as_it_is(
    made: Any, horizon: int, block: int | None, monkeypatch: Any
) -> None:
    rows, root = made
    if block:  # episodes are cut, and few lie in one block
        monkeypatch.setattr(sweep, "BLOCK_VALUES", block * 3)
    episodes = episodes_of(rows)
    norm = Normalization("pi052", "QUANTILES", lo=[-1.0, -2.0, 0.5], hi=[1.0, 1.5, 0.5])
    normal = {e: np.where(np.isfinite(x), norm.normalize(x), np.nan) for e, x in episodes.items()}
    known = {*range(-12, 11), 14, -15} - {3}
    want = expected(normal, horizon, 10.0, known)
    dataset = vlaprep.open_dataset(root)
    table = dataset.episodes
    options: Any = {"scale": 10.0, "known": Symbols.of(np.array([*known])), "normalization": norm}
    answers = []
    for threads in (1, 2, 7):
        reader = ChunkReader(dataset, ActionSpace("action"), horizon)
        windows = Windows(reader, table.episode_index, table.length, threads)
        swept = windows.sweep(**options, ranges=True)
        assert told(swept) == want
        answers.append((swept.low.tobytes(), swept.low_at.tobytes(), swept.high_at.tobytes()))
    assert len(set(answers)) == 1
    chunks = np.concatenate([reference.windows(x, horizon) for x in normal.values()])
    coefficients = reference.dct(chunks[np.isfinite(chunks).all(axis=(1, 2))])
    np.testing.assert_allclose(
        swept.low, coefficients.min(axis=0), rtol=0, atol=swept.bound + 1e-12
    )
    np.testing.assert_allclose(swept.high, coefficients.max(axis=0), atol=swept.bound + 1e-12)
    for extreme, places in ((swept.low, swept.low_at), (swept.high, swept.high_at)):
        for k, dim in np.ndindex(extreme.shape):
            episode, start = places[k, dim].tolist()
            chunk = normal[episode][start : start + horizon]
            assert abs(reference.dct(chunk[None])[0, k, dim] - extreme[k, dim]) < 1e-12
    runs = swept.outside
    assert ((runs[1:, 0] != runs[:-1, 0]) | (runs[1:, 1] > runs[:-1, 2])).all(), "runs are whole"


@given(
    horizon=st.integers(1, 12),
    lengths=st.lists(st.integers(0, 60), max_size=4),
    dims=st.integers(1, 5),
    scale=st.sampled_from([1.0, 10.0, 33.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 1000),
)
def test_the_kernel_against_scipy(
    horizon: int, lengths: list[int], dims: int, scale: float, dtype: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = np.clip(rng.normal(size=(sum(lengths), dims)), -1, 1).astype(dtype)
    rows[rng.random(len(rows)) < 0.02] = np.nan
    ends = np.cumsum([0, *lengths])
    episodes = {i: rows[ends[i] : ends[i + 1]] for i in range(len(lengths))}
    known = set(range(-8, 9)) - {2}
    symbols = Symbols.of(np.array([*known]))
    windows, skipped, outside, found, *_ = sweep_windows(
        rows, np.array(lengths, np.int64), horizon, scale, symbols.first, symbols.known
    )
    firsts = {symbol: (episode, start) for symbol, episode, start in found.tolist()}
    assert (listed(outside), firsts, windows, skipped) == expected(episodes, horizon, scale, known)


def test_shapes_that_do_not_agree_are_refused() -> None:
    rows, good = np.zeros((10, 2)), np.zeros((4, 2))
    for arguments, message in [
        ((rows, [9], 4, 10.0), "add up to the 10 rows"),
        ((rows, [-1, 11], 4, 10.0), "add up to the 10 rows"),
        ((rows, [10], 0, 10.0), "no windows of 0 x 2"),
        ((rows, [10], 4, -1.0), "scale must be a positive number"),
        ((rows, [10], 4, 10.0, 0, None, good), "must both have shape"),
        ((rows, [10], 4, 10.0, 0, None, good[1:], good), "must both have shape"),
        ((rows[0], [10], 4, 10.0), "rows must have 2 dimension"),
    ]:
        with pytest.raises(ValueError, match=message):
            sweep_windows(*arguments)


def test_a_dataset_without_any_window(tmp_path: Path) -> None:
    dataset = vlaprep.open_dataset(write_v3(tmp_path / "data", make_rows({0: (0, 5)})))
    table = dataset.episodes
    reader = ChunkReader(dataset, ActionSpace("action"), 6)
    swept = Windows(reader, table.episode_index, table.length).sweep(scale=10.0)
    assert (swept.windows, swept.skipped, len(swept.outside), len(swept.symbols)) == (0, 0, 0, 0)
