"""Every case by name: each kernel, and both whole jobs."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import baseline
import data
import peer_files
import peers
import vlaprep
from data import CHUNK_SIZE, DIMS, SEED, VARIANTS, Config, chunks, dataset, lengths_and_tasks
from paired import NUMPY, OURS, Case, assert_equal
from peer_files import Draws
from suite_codec import decode, encode, encode_call
from suite_fit import fit
from suite_sweep import sweep_dataset, sweep_rows
from vlaprep._native import Reader
from vlaprep.kernels import (
    bucketize,
    dct_quantize,
    gather_chunks,
    percentiles_by_task,
    quantile,
)
from vlaprep.normalization import Normalization
from vlaprep.speed import (
    bucket_episode_length,
    bucket_episode_lengths,
    compute_task_percentiles,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Array = NDArray[Any]
    Shape = tuple[int, int]

PYARROW, POLARS = "pyarrow", "polars"
STATISTICS = "pyarrow, row-group statistics"
DRAWN = "pyarrow, drawn row groups"
PARTITION = "NumPy, one partition"
SCIPY = "SciPy, one batch"
"""Sides that have a bar, in `bars.py`."""

SAMPLE_ROWS = 1024 * CHUNK_SIZE
_NUMPY_HAS_OUR_QUANTILES = np.lib.NumpyVersion(np.__version__) >= "2.4.0"

# ------------------------------------------------------------------------------------- rows


def scan(variant: str, config: Config) -> Case:
    root = dataset(config, variant)
    pyarrow = _pyarrow_reader(variant)
    sides: dict[str, Callable[[int], Any]] = {
        NUMPY: lambda _: baseline.read_actions(root),
        OURS: lambda _: _read_actions(root),
        PYARROW: lambda _: pyarrow(root),
        "arrow-rs": lambda _: _read_by_arrow(root),
    }
    if peer_files.HAS_POLARS:
        sides[POLARS] = lambda _: peer_files.read_polars(root)
    return Case(f"all actions and ids, {_words(variant, config)}", sides, memory=True)


def scan_one_thread(variant: str, config: Config) -> Case:
    root = dataset(config, variant)
    pyarrow = _pyarrow_reader(variant)
    return Case(
        f"all actions and ids in one thread, {_words(variant, config)}",
        {
            NUMPY: lambda _: baseline.read_actions(root),
            OURS: lambda _: _read_actions(root, num_threads=1),
            PYARROW: lambda _: pyarrow(root, threads=1),
        },
    )


def _read_actions(root: Path, num_threads: int | None = None) -> tuple[Array, Array]:
    opened = vlaprep.open_dataset(root, num_threads=num_threads)
    columns = opened.read(["episode_index", "action"])
    return columns["episode_index"], columns["action"]


def _read_by_arrow(root: Path) -> tuple[Array, Array]:
    """Our own reader, with every page left to the Arrow reader of the parquet crate."""
    reader = Reader(root, engine="arrow")
    ids, actions = reader.read(["episode_index", "action"], np.arange(len(reader.episodes()[0])))
    return ids, actions


def _pyarrow_reader(variant: str) -> Callable[..., tuple[Array, Array]]:
    small = VARIANTS[variant].file_per_episode
    return peer_files.read_pyarrow_small if small else peer_files.read_pyarrow


def episodes(variant: str, config: Config) -> Case:
    root = dataset(config, variant)

    def ours(_: int) -> tuple[Array, Array, Array]:
        table = vlaprep.open_dataset(root).episodes
        return table.episode_index, table.length, table.task_index

    sides: dict[str, Callable[[int], Any]] = {
        NUMPY: lambda _: baseline.episode_table(root),
        OURS: ours,
    }
    if peer_files.HAS_POLARS:
        sides[POLARS] = lambda _: peer_files.episodes_polars(root)
    if VARIANTS[variant].group_per_episode:
        sides[STATISTICS] = lambda _: peer_files.episodes_pyarrow(root)
    return Case(f"episodes: lengths and tasks, {_words(variant, config)}", sides)


def episodes_of_loaded(variant: str, config: Config) -> Case:
    """As `episodes`, but the references need not load the data set first."""
    case = episodes(variant, config)
    loaded = baseline.load(dataset(config, variant), config.folder / "loaded")
    return replace(
        case,
        words=f"{case.words}, which {NUMPY} has loaded already",
        sides={**case.sides, NUMPY: lambda _: baseline.episodes_of_loaded(loaded)},
        same=_same_episodes,
    )


# ---------------------------------------------------------------------------- speed labels


def rank_arrays(config: Config) -> Case:
    lengths, tasks = _ranked(config)

    def ours(_: int) -> tuple[Array, Array, Array]:
        known, boundaries = percentiles_by_task(lengths, tasks)
        return known, boundaries, bucketize(lengths, tasks, known, boundaries)

    sides: dict[str, Callable[[int], Any]] = {
        NUMPY: lambda _: baseline.rank_arrays(lengths, tasks),
        OURS: ours,
        "NumPy, one sort": lambda _: peers.rank_sorted(lengths, tasks),
    }
    if peer_files.HAS_POLARS:
        sides[POLARS] = lambda _: peers.rank_polars(lengths, tasks)
    return Case(f"rank and label {len(lengths):,} episodes, arrays", sides, same=_same_ranks)


def rank_lists(config: Config) -> Case:
    length_of, task_of = _ranked_dicts(config)
    groups = baseline.group_lengths(length_of.values(), task_of.values())
    episodes, lengths, tasks = map(list, (length_of, length_of.values(), task_of.values()))

    def ours(_: int) -> dict[int, int]:
        labels = bucket_episode_lengths(lengths, tasks, compute_task_percentiles(groups))
        return dict(zip(episodes, labels.tolist(), strict=True))

    def theirs(_: int) -> dict[int, int]:
        return baseline.label_episodes(length_of, task_of, baseline.task_percentiles(groups))

    return Case(
        f"rank and label {len(length_of):,} episodes, lists to a dict",
        {NUMPY: theirs, OURS: ours},
    )


def rank_dicts(config: Config) -> Case:
    length_of, task_of = _ranked_dicts(config)

    def ours(_: int) -> dict[int, int]:
        count = len(length_of)
        length = np.fromiter(length_of.values(), np.int64, count)
        task = np.fromiter(map(task_of.__getitem__, length_of), np.int64, count)
        labels = bucketize(length, task, *percentiles_by_task(length, task))
        return dict(zip(length_of, labels.tolist(), strict=True))

    return Case(
        f"rank and label {len(length_of):,} episodes, dicts",
        {NUMPY: lambda _: baseline.speed_labels(length_of, task_of), OURS: ours},
    )


def rank_dropin(config: Config) -> Case:
    length_of, task_of = _ranked_dicts(config)

    def ours(_: int) -> dict[int, int]:
        tasks = [task_of[episode] for episode in length_of]
        percentiles = compute_task_percentiles(baseline.group_lengths(length_of.values(), tasks))
        return {
            episode: bucket_episode_length(length, percentiles[task_of[episode]])
            for episode, length in length_of.items()
        }

    return Case(
        f"rank and label {len(length_of):,} episodes, one call each",
        {NUMPY: lambda _: baseline.speed_labels(length_of, task_of), OURS: ours},
    )


def job_speed(variant: str, config: Config) -> Case:
    root = dataset(config, variant)
    return Case(
        f"**job: folder to speed labels**, {_words(variant, config)}",
        {
            NUMPY: lambda _: baseline.label_folder(root),
            OURS: lambda _: vlaprep.speed_labels(vlaprep.open_dataset(root)).label,
        },
        fresh=True,
        memory=True,
    )


# ----------------------------------------------------------------------------------- chunks


def fit_input(variant: str, config: Config) -> Case:
    root = dataset(config, variant)
    draws = Draws(CHUNK_SIZE, config.n_samples, SEED)

    def ours(_: int) -> Array:
        opened = vlaprep.open_dataset(root)
        table = opened.episodes
        drawn = vlaprep.sample_chunks(table.episode_index, table.length, **draws._asdict())
        raw = opened.read_chunks(*drawn, CHUNK_SIZE)
        return Normalization.fit(raw).normalize(raw)

    pyarrow = _pyarrow_reader(variant)
    sides: dict[str, Callable[[int], Any]] = {
        NUMPY: lambda _: baseline.fit_input(root, **draws._asdict()),
        OURS: ours,
        PYARROW: lambda _: peer_files.fit_input_by_scan(pyarrow, root, draws),
    }
    if VARIANTS[variant].group_per_episode:
        sides[DRAWN] = lambda _: peer_files.fit_input_by_row_groups(root, draws)
    if peer_files.HAS_POLARS:
        polars = peer_files.read_polars
        sides[POLARS] = lambda _: peer_files.fit_input_by_scan(polars, root, draws)
    words = f"{config.n_samples:,} normalised chunks, {_words(variant, config)}"
    return Case(words, sides, same=_same_quantiles, memory=True)


def gather(config: Config) -> Case:
    rows = _all_actions(config)
    count = min(100_000, len(rows) // 8)
    first = np.random.default_rng(SEED).integers(0, len(rows) - CHUNK_SIZE + 1, count)
    return Case(
        f"gather {count:,} chunks of {CHUNK_SIZE} x {DIMS} from rows in memory",
        {
            NUMPY: lambda _: np.stack([rows[i : i + CHUNK_SIZE] for i in first]),
            OURS: lambda _: gather_chunks(rows, first, CHUNK_SIZE),
            "NumPy, one index": lambda _: peers.gather_windows(rows, first, CHUNK_SIZE),
        },
    )


def quantiles(of_sample: bool, config: Config) -> Case:
    rows = _sampled_rows() if of_sample else data.rows(config.quantile_rows)
    return Case(
        f"1 % and 99 % quantiles of {len(rows):,} x {DIMS}",
        {
            NUMPY: lambda _: tuple(np.quantile(rows, q, axis=0) for q in (0.01, 0.99)),
            OURS: lambda _: tuple(quantile(rows, (0.01, 0.99))),
            PARTITION: lambda _: peers.quantiles_by_partition(rows),
        },
        same=_same_quantiles,
    )


# ------------------------------------------------------------------------------------- FAST


def dct(config: Config) -> Case:
    batch = chunks(min(1024, config.episodes * 8))
    return Case(
        f"DCT and rounding of {len(batch):,} chunks of {CHUNK_SIZE} x {DIMS}, one thread",
        {
            NUMPY: lambda _: baseline.dct_symbols(batch),
            OURS: lambda _: dct_quantize(batch, 10.0),
            SCIPY: lambda _: peers.dct_symbols_batched(batch, workers=1),
        },
        same=_same_symbols,
    )


def job_fit(variant: str, config: Config) -> Case:
    root = dataset(config, variant)
    draws: dict[str, Any] = {"chunk_size": CHUNK_SIZE, "n_samples": config.n_samples, "seed": SEED}

    def theirs(_: int) -> str:
        with tempfile.TemporaryDirectory(dir=config.folder) as folder:
            baseline.fit_tokenizer(root, Path(folder), **draws)
            return _saved_bpe(Path(folder))

    def ours(_: int) -> str:
        with tempfile.TemporaryDirectory(dir=config.folder) as folder:
            fitted = vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=folder, **draws)
            return _saved_bpe(Path(fitted))

    return Case(
        f"**job: folder to fitted tokenizer**, {_words(variant, config)}",
        {NUMPY: theirs, OURS: ours},
        same=_same_bpe,
        fresh=True,
        memory=True,
    )


SUITE: Mapping[str, Callable[[Config], Case]] = {
    **{f"scan-{variant}": partial(scan, variant) for variant in VARIANTS},
    **{f"scan-{variant}-1thread": partial(scan_one_thread, variant) for variant in VARIANTS},
    "episodes-rec": partial(episodes_of_loaded, "rec"),
    **{f"episodes-{variant}": partial(episodes, variant) for variant in ("conv", "zstd", "v21")},
    **{f"fit-input-{variant}": partial(fit_input, variant) for variant in ("rec", "conv")},
    "quantile-51k": partial(quantiles, True),
    "quantile-4.8M": partial(quantiles, False),
    "gather": gather,
    "dct": dct,
    "sweep": sweep_rows,
    "sweep-rec": partial(sweep_dataset, "rec"),
    "sweep-conv": partial(sweep_dataset, "conv"),
    "rank-arrays": rank_arrays,
    "rank-lists": rank_lists,
    "rank-dicts": rank_dicts,
    "rank-dropin": rank_dropin,
    **{f"encode-{count}": partial(encode, count) for count in (1, 64, 256, 1024)},
    "encode-1024-two-threads": partial(encode, 1024, threads=2),
    "encode-call": encode_call,
    **{f"decode-{count}": partial(decode, count) for count in (1, 256)},
    **{
        f"{job.__name__}-256-{horizon}x{dim}": partial(job, 256, shape=(horizon, dim))
        for horizon, dim in ((10, 7), (16, 2), (100, 32))
        for job in (encode, decode)
    },
    **{f"fit-{count}": partial(fit, count) for count in (1024, 10_000, 100_000)},
    **{f"job-speed-{variant}": partial(job_speed, variant) for variant in ("rec", "conv")},
    **{f"job-fit-{variant}": partial(job_fit, variant) for variant in ("rec", "conv")},
}

# -------------------------------------------------------------------------------- inputs


def _words(variant: str, config: Config) -> str:
    """Who wrote the data set; how large it is where that is not the size of all."""
    words, most = VARIANTS[variant].words, VARIANTS[variant].most_episodes
    return words if most is None else f"{words}, {config.of(variant).episodes:,} episodes"


def _ranked(config: Config) -> tuple[Array, Array]:
    count = config.ranked_episodes
    return lengths_and_tasks(count, min(200, count // 25))


def _ranked_dicts(config: Config) -> tuple[dict[int, int], dict[int, int]]:
    lengths, tasks = _ranked(config)
    return dict(enumerate(lengths.tolist())), dict(enumerate(tasks.tolist()))


def _all_actions(config: Config) -> Array:
    return vlaprep.open_dataset(dataset(config, "conv")).read("action")["action"]


def _sampled_rows() -> Array:
    """As many rows as a fit normalises."""
    return chunks(SAMPLE_ROWS // CHUNK_SIZE).reshape(-1, DIMS)


# ------------------------------------------------------------------------------- answers


def _same_episodes(got: Any, want: Any) -> None:
    """Arrays against dicts by episode."""
    length_of, task_of = want
    assert list(length_of) == sorted(task_of)
    columns = (list(column) for column in (length_of, length_of.values(), task_of.values()))
    assert_equal(tuple(got), tuple(np.array(column) for column in columns))


def _same_quantiles(got: Any, want: Any) -> None:
    """Every bit, where the NumPy at hand has the rule that ours is fixed to (2.4 and newer)."""
    if _NUMPY_HAS_OUR_QUANTILES:
        assert_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def _same_ranks(got: Any, want: Any) -> None:
    """Every bit of what a side gives."""
    for one, other in zip(got, want, strict=True):
        if one is not None:
            assert_equal(one, other)


def _same_symbols(got: Array, want: Array) -> None:
    """Equal, but for one in a million that lies within 1e-9 of a half."""
    assert got.shape == want.shape
    wrong = np.abs(got - want)
    assert wrong.max() <= 1
    assert np.count_nonzero(wrong) <= wrong.size * 1e-6


def _saved_bpe(folder: Path) -> str:
    return (folder / "tokenizer.json").read_text(encoding="utf-8")


def _same_bpe(got: str, want: str) -> None:
    """Equal in vocabulary and merges, order included."""
    ours, theirs = json.loads(got)["model"], json.loads(want)["model"]
    assert ours["vocab"] == theirs["vocab"]
    assert ours["merges"] == theirs["merges"]
    assert len(ours["merges"]) > 100
