"""Every case by name: each kernel, and both whole jobs."""

from __future__ import annotations

import itertools
import json
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import baseline
import peers
import vlaprep
from data import CHUNK_SIZE, DIMS, SEED, VARIANTS, Config, chunks, dataset, lengths_and_tasks
from paired import NUMPY, OURS, Case, assert_equal
from vlaprep.kernels import (
    bucketize,
    dct_quantize,
    gather_chunks,
    percentiles_by_task,
    quantile,
)
from vlaprep.normalization import Normalization
from vlaprep.speed import bucket_episode_length, compute_task_percentiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Array = NDArray[Any]
    Shape = tuple[int, int]

SAMPLE_ROWS = 1024 * CHUNK_SIZE
MAX_ROUNDS = 20
"""Encoding needs chunks it has not seen in each round: some tokenizers remember words."""

PLAIN = (CHUNK_SIZE, DIMS)

_NUMPY_HAS_OUR_QUANTILES = np.lib.NumpyVersion(np.__version__) >= "2.4.0"

# ------------------------------------------------------------------------------------- rows


def scan(variant: str, config: Config) -> Case:
    root = dataset(config, variant)

    def ours(_: int) -> tuple[Array, Array]:
        columns = vlaprep.open_dataset(root).read(["episode_index", "action"])
        return columns["episode_index"], columns["action"]

    sides: dict[str, Callable[[int], Any]] = {
        NUMPY: lambda _: baseline.read_actions(root),
        OURS: ours,
        "pyarrow": lambda _: peers.read_pyarrow(root),
    }
    if peers.HAS_POLARS:
        sides["polars"] = lambda _: peers.read_polars(root)
    return Case(f"all actions and ids, {VARIANTS[variant].words}", sides, memory=True)


def episodes(variant: str, config: Config) -> Case:
    root = dataset(config, variant)

    def ours(_: int) -> tuple[Array, Array, Array]:
        table = vlaprep.open_dataset(root).episodes
        return table.episode_index, table.length, table.task_index

    sides: dict[str, Callable[[int], Any]] = {
        NUMPY: lambda _: baseline.episode_table(root),
        OURS: ours,
    }
    if peers.HAS_POLARS:
        sides["polars"] = lambda _: peers.episodes_polars(root)
    if VARIANTS[variant].group_per_episode:
        sides["pyarrow statistics"] = lambda _: peers.episodes_pyarrow(root)
    return Case(f"episodes: lengths and tasks, {VARIANTS[variant].words}", sides)


# ---------------------------------------------------------------------------- speed labels


def rank_arrays(config: Config) -> Case:
    lengths, tasks = _ranked(config)

    def ours(_: int) -> tuple[Array, Array, Array]:
        known, boundaries = percentiles_by_task(lengths, tasks)
        return known, boundaries, bucketize(lengths, tasks, known, boundaries)

    return Case(
        f"rank and label {len(lengths):,} episodes, arrays",
        {
            NUMPY: lambda _: baseline.rank_arrays(lengths, tasks),
            OURS: ours,
            "NumPy, one sort": lambda _: peers.rank_sorted(lengths, tasks),
        },
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
        f"**job: folder to speed labels**, {VARIANTS[variant].words}",
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
    draws: dict[str, Any] = {"chunk_size": CHUNK_SIZE, "n_samples": config.n_samples, "seed": SEED}

    def ours(_: int) -> Array:
        opened = vlaprep.open_dataset(root)
        table = opened.episodes
        drawn = vlaprep.sample_chunks(table.episode_index, table.length, **draws)
        raw = opened.read_chunks(*drawn, CHUNK_SIZE)
        return Normalization.fit(raw).normalize(raw)

    def with_reader(read: Callable[[Path], tuple[Array, Array]]) -> Callable[[int], Array]:
        return lambda _: baseline.normalize(baseline.sample_chunks(*read(root), **draws))

    sides: dict[str, Callable[[int], Any]] = {
        NUMPY: with_reader(baseline.read_actions),
        OURS: ours,
        "pyarrow": with_reader(peers.read_pyarrow),
    }
    if peers.HAS_POLARS:
        sides["polars"] = with_reader(peers.read_polars)
    words = f"{config.n_samples:,} normalised chunks, {VARIANTS[variant].words}"
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
    rows = chunks(SAMPLE_ROWS // CHUNK_SIZE).reshape(-1, DIMS) if of_sample else None
    rows = _all_actions(config) if rows is None else rows
    return Case(
        f"1 % and 99 % quantiles of {len(rows):,} x {DIMS}",
        {
            NUMPY: lambda _: tuple(np.quantile(rows, q, axis=0) for q in (0.01, 0.99)),
            OURS: lambda _: tuple(quantile(rows, q) for q in (0.01, 0.99)),
            "NumPy, one partition": lambda _: peers.quantiles_by_partition(rows),
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
            "SciPy, one batch": lambda _: peers.dct_symbols_batched(batch, workers=1),
        },
        same=_same_symbols,
    )


def encode(count: int, config: Config, *, shape: Shape = PLAIN, threads: int = 1) -> Case:
    """Batches of so many chunks; of one, as many in a row as make a time that can be taken."""
    fitted = _fitted(config, count, shape)
    processor, codec = fitted.processor, fitted.codec
    bpe, low = processor.bpe_tokenizer, processor.min_token

    def each(call: Callable[[Array], Any]) -> Callable[[int], list[Any]]:
        return lambda i: [call(batch) for batch in fitted.batches(i)]

    sides = {
        NUMPY: each(lambda batch: baseline.fast_encode(bpe, batch, low)),
        OURS: each(partial(codec.encode_batch, num_threads=threads)),
    }
    if peers.HAS_FASTOKENS:
        sides["fastokens"] = each(partial(_fastokens(fitted), min_token=low))
    if count > 1:
        sides["tokenizers, one batch"] = each(
            lambda batch: peers.encode_texts(_of_package(bpe), batch, low)
        )
    words = f"encode {count:,} unseen chunk{'s' * (count > 1)} of {shape[0]} x {shape[1]}"
    words += ", two threads" * (threads == 2)
    return Case(words, sides, same=_same_ids)


def encode_call(config: Config) -> Case:
    fitted = _fitted(config, 1)
    processor = fitted.processor
    bpe, low = processor.bpe_tokenizer, processor.min_token
    return Case(
        f"processor(chunk) of one unseen chunk of {CHUNK_SIZE} x {DIMS}, lists out",
        {
            NUMPY: lambda i: [baseline.fast_encode(bpe, x, low) for x in fitted.batches(i)],
            OURS: lambda i: [processor(x) for x in fitted.batches(i)],
        },
    )


def decode(count: int, config: Config, *, shape: Shape = PLAIN) -> Case:
    fitted = _fitted(config, count, shape)
    processor, codec = fitted.processor, fitted.codec
    bpe, low, (horizon, dim) = processor.bpe_tokenizer, processor.min_token, shape
    ids = [[codec.encode_batch(x) for x in fitted.batches(i)] for i in range(MAX_ROUNDS + 1)]
    lists = [[_lists(pair) for pair in batches] for batches in ids]
    of_package = bpe.backend_tokenizer.decode_batch
    return Case(
        f"decode {count} chunk{'s' * (count > 1)} of {horizon} x {dim}",
        {
            NUMPY: lambda i: [baseline.fast_decode(bpe, chunk, low, dim) for chunk in lists[i]],
            OURS: lambda i: [codec.decode_batch(*pair)[0] for pair in ids[i]],
            "tokenizers, one batch": lambda i: [
                peers.decode_texts(of_package, *pair, low, shape) for pair in ids[i]
            ],
        },
        same=partial(np.testing.assert_allclose, rtol=0, atol=1e-6),
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
        f"**job: folder to fitted tokenizer**, {VARIANTS[variant].words}",
        {NUMPY: theirs, OURS: ours},
        same=_same_bpe,
        fresh=True,
        memory=True,
    )


SUITE: Mapping[str, Callable[[Config], Case]] = {
    **{f"scan-{variant}": partial(scan, variant) for variant in VARIANTS},
    **{f"episodes-{variant}": partial(episodes, variant) for variant in VARIANTS},
    **{f"fit-input-{variant}": partial(fit_input, variant) for variant in ("rec", "conv")},
    "quantile-sample": partial(quantiles, True),
    "quantile-all": partial(quantiles, False),
    "gather": gather,
    "dct": dct,
    "rank-arrays": rank_arrays,
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
    **{f"job-speed-{variant}": partial(job_speed, variant) for variant in ("rec", "conv")},
    **{f"job-fit-{variant}": partial(job_fit, variant) for variant in ("rec", "conv")},
}

# -------------------------------------------------------------------------------- inputs


def _ranked(config: Config) -> tuple[Array, Array]:
    count = config.ranked_episodes
    return lengths_and_tasks(count, min(200, count // 25))


def _ranked_dicts(config: Config) -> tuple[dict[int, int], dict[int, int]]:
    lengths, tasks = _ranked(config)
    return dict(enumerate(lengths.tolist())), dict(enumerate(tasks.tolist()))


def _all_actions(config: Config) -> Array:
    return vlaprep.open_dataset(dataset(config, "conv")).read("action")["action"]


@dataclass(frozen=True)
class Fitted:
    """A tokenizer, and chunks that it has not seen but all of whose symbols it has."""

    processor: vlaprep.FastActionProcessor
    codec: vlaprep.ActionCodec
    unseen: Array
    count: int

    def batches(self, number: int) -> Array:
        """Batches of the round, shape (some, count, H, D): no chunk comes twice."""
        some = len(self.unseen) // (MAX_ROUNDS + 1)
        batch = self.unseen[number * some : (number + 1) * some]
        return batch.reshape(-1, self.count, *batch.shape[1:])


def _fitted(config: Config, count: int, shape: Shape = PLAIN) -> Fitted:
    """Fit a tokenizer; make enough unseen chunks for batches of `count` in every round."""
    kind = dict(zip(("horizon", "dims"), shape, strict=True))
    train = chunks(min(1024, config.episodes * 32), **kind)
    processor = vlaprep.FastActionProcessor.fit(train)
    codec = vlaprep.ActionCodec(
        processor.bpe_tokenizer.backend_tokenizer.to_str(),
        10.0,
        vocab_size=processor.vocab_size,
        min_token=processor.min_token,
        max_token=processor.max_token,
        time_horizon=shape[0],
        action_dim=shape[1],
    )
    wanted = max(count, min(64, config.episodes)) // count * count * (MAX_ROUNDS + 1)
    found: list[Array] = []
    symbols = np.unique(dct_quantize(train, 10.0))
    for seed in itertools.count(SEED + 1):
        more = chunks(wanted // 4 + 64, seed, **kind)
        found.append(more[np.isin(dct_quantize(more, 10.0), symbols).all(axis=(1, 2))])
        if sum(map(len, found)) >= wanted:
            return Fitted(processor, codec, np.concatenate(found)[:wanted], count)
    raise AssertionError


def _of_package(bpe: Any) -> Callable[[list[str]], list[list[int]]]:
    """``tokenizers`` on all CPUs; offsets, which nobody wants here, are left out."""
    return lambda texts: [e.ids for e in bpe.backend_tokenizer.encode_batch_fast(texts)]


def _fastokens(fitted: Fitted) -> Callable[..., list[list[int]]]:
    import fastokens

    bpe = fastokens.Tokenizer.from_json_str(fitted.codec.tokenizer)
    return partial(peers.encode_texts, lambda texts: bpe.encode_batch(texts))


def _lists(answer: Any) -> Any:
    """Ids of each chunk as a list, of flat ids with offsets or of encodings."""
    if isinstance(answer, tuple):
        ids, offsets = (array.tolist() for array in answer)
        return [ids[a:b] for a, b in itertools.pairwise(offsets)]
    return [getattr(chunk, "ids", chunk) for chunk in answer]


# ------------------------------------------------------------------------------- answers


def _same_quantiles(got: Any, want: Any) -> None:
    """Every bit, where the NumPy at hand has the rule that ours is fixed to (2.4 and newer)."""
    if _NUMPY_HAS_OUR_QUANTILES:
        assert_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def _same_ids(got: list[Any], want: list[Any]) -> None:
    assert [_lists(answer) for answer in got] == [_lists(answer) for answer in want]


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
