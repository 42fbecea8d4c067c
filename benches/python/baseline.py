"""The references' own way through both jobs, in plain NumPy, pyarrow and SciPy.

Written from what the references do, step by step and with their choice of calls, not from vlaprep:
each function says whose path it follows. This is what the benches measure against.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.fft

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    Array = NDArray[Any]

PERCENTS = (5, 15, 25, 35, 45, 55, 65, 75, 85, 95)
LABELS = (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
SPARSE = 50

HAS_DATASETS = importlib.util.find_spec("datasets") is not None
"""Whether rows can be loaded as LeRobot loads them; else an Arrow table in memory stands in."""

# ------------------------------------------------------------------------------------- rows


def read_columns(root: Path, columns: Sequence[str]) -> pa.Table:
    """LeRobot pi052's fit: ``read_table`` of every data file in sorted order, concatenated."""
    paths = sorted(root.glob("data/chunk-*/*.parquet"))
    return pa.concat_tables([pq.read_table(path, columns=list(columns)) for path in paths])


def read_actions(root: Path) -> tuple[Array, Array]:
    """LeRobot pi052's fit: ids (N,), and actions (N, D) stacked out of one object a row."""
    table = read_columns(root, ["episode_index", "action"])
    rows = table["action"].to_numpy()  # an array of objects, each one row
    return table["episode_index"].to_numpy(), np.stack(rows).astype(np.float32)


def episode_table(root: Path) -> tuple[Array, Array, Array]:
    """Ids, lengths, and the task of each episode's first row, out of two whole columns."""
    table = read_columns(root, ["episode_index", "task_index"])
    ids, first, length = np.unique(
        table["episode_index"].to_numpy(), return_index=True, return_counts=True
    )
    return ids, length, table["task_index"].to_numpy()[first]


class Loaded(NamedTuple):
    """What a training run holds of a data set once LeRobot has loaded it."""

    rows: Any
    """A `datasets.Dataset` of all columns; a `pyarrow.Table` of tasks where that is missing."""
    length_of: dict[int, int]
    """Frames by episode."""
    position_of: dict[int, int]
    """Where an episode stands in `first_row`."""
    first_row: Array
    """Of each episode, in `rows`; LeRobot has it as a tensor."""
    tasks: set[int]
    """Every task that the metadata define."""


def load(root: Path, cache: Path) -> Loaded:
    """LeRobot's opening of a v3.0 folder; `datasets` converts all rows into `cache`, once."""
    paths = [str(path) for path in sorted(root.glob("data/chunk-*/*.parquet"))]
    rows: Any
    if HAS_DATASETS:
        datasets: Any = importlib.import_module("datasets")
        datasets.disable_progress_bars()
        rows = datasets.Dataset.from_parquet(paths, cache_dir=str(cache))
    else:
        rows = read_columns(root, ["task_index"])
    meta = pq.read_table(root / "meta/episodes", columns=["episode_index", "length"])
    ids, length = meta["episode_index"].to_pylist(), meta["length"].to_numpy()
    tasks = pq.read_table(root / "meta/tasks.parquet", columns=["task_index"])["task_index"]
    return Loaded(
        rows,
        dict(zip(ids, length.tolist(), strict=True)),
        {episode: position for position, episode in enumerate(ids)},
        np.cumsum(length) - length,
        set(tasks.to_pylist()),
    )


def episodes_of_loaded(loaded: Loaded) -> tuple[dict[int, int], dict[int, int]]:
    """OpenTau: length and first row's task by episode; rows are selected by a list of them."""
    first = [
        int(loaded.first_row[loaded.position_of[episode]].item()) for episode in loaded.length_of
    ]
    if HAS_DATASETS:
        column = loaded.rows.with_format("arrow").select(first)["task_index"]
    else:
        column = loaded.rows["task_index"].take(first)
    task_of = {}
    for episode, task in zip(loaded.length_of, column.to_pylist(), strict=True):
        if int(task) in loaded.tasks:
            task_of[episode] = int(task)
    return loaded.length_of, task_of


# ---------------------------------------------------------------------------- speed labels


def group_lengths(lengths: Iterable[int], tasks: Iterable[int]) -> dict[int, list[int]]:
    """OpenTau: a dict of lists, filled episode by episode."""
    groups: dict[int, list[int]] = {}
    for length, task in zip(lengths, tasks, strict=True):
        groups.setdefault(task, []).append(length)
    return groups


def task_percentiles(groups: Mapping[int, Sequence[int]]) -> dict[int, list[float] | None]:
    """OpenTau: ``np.percentile`` of each task's list; None below ten distinct lengths."""
    return {
        task: np.percentile(lengths, PERCENTS).tolist()
        if len(set(lengths)) >= len(PERCENTS)
        else None
        for task, lengths in groups.items()
    }


def bucket(length: int, percentiles: Sequence[float] | None) -> int:
    """OpenTau: ``np.searchsorted`` on a list, one call an episode."""
    if percentiles is None:
        return SPARSE
    return LABELS[int(np.searchsorted(percentiles, length, side="right"))]


def speed_labels(lengths: Mapping[int, int], task_of: Mapping[int, int]) -> dict[int, int]:
    """OpenTau: group, rank, label; all in dicts by episode."""
    groups = group_lengths(lengths.values(), (task_of[episode] for episode in lengths))
    return label_episodes(lengths, task_of, task_percentiles(groups))


def label_episodes(
    lengths: Mapping[int, int],
    task_of: Mapping[int, int],
    percentiles: Mapping[int, Sequence[float] | None],
) -> dict[int, int]:
    """OpenTau: look the task up and label, episode by episode."""
    return {
        episode: bucket(length, percentiles[task_of[episode]])
        for episode, length in lengths.items()
    }


def rank_arrays(lengths: Array, tasks: Array) -> tuple[Array, Array, Array]:
    """OpenTau's path for arrays: ascending tasks (T,), boundaries (T, 10), labels (E,)."""
    task_list = tasks.tolist()
    percentiles = task_percentiles(group_lengths(lengths.tolist(), task_list))
    known = sorted(percentiles)
    sparse = [np.nan] * len(PERCENTS)
    boundaries = np.array([percentiles[task] or sparse for task in known])
    labels = [
        bucket(length, percentiles[task])
        for length, task in zip(lengths.tolist(), task_list, strict=True)
    ]
    return np.array(known), boundaries, np.array(labels)


def label_folder(root: Path) -> Array:
    """OpenTau's path from a folder to the label of each episode."""
    ids, length, task = (column.tolist() for column in episode_table(root))
    labels = speed_labels(dict(zip(ids, length, strict=True)), dict(zip(ids, task, strict=True)))
    return np.array([labels[episode] for episode in ids])


# ----------------------------------------------------------------------------- fit: chunks


def sample_chunks(
    ids: Array, actions: Array, *, chunk_size: int, n_samples: int, seed: int
) -> Array:
    """LeRobot pi052's fit: sort all rows by episode, then draw a few starts an episode."""
    order = np.argsort(ids, kind="stable")
    ids, actions = ids[order], actions[order]
    edges = np.searchsorted(ids, np.arange(int(ids.max()) + 2))
    rows_of = {
        episode: (int(begin), int(end))
        for episode, (begin, end) in enumerate(itertools.pairwise(edges))
        if begin < end
    }
    rng = np.random.default_rng(seed)
    per_episode = max(1, n_samples // len(rows_of))
    chunks: list[Array] = []
    for episode in rng.permutation(list(rows_of)):
        begin, end = rows_of[int(episode)]
        if end - begin < chunk_size:
            continue
        rows = actions[begin:end]
        starts = rng.integers(0, len(rows) - chunk_size + 1, size=per_episode)
        chunks += [rows[int(start) : int(start) + chunk_size] for start in starts]
        if len(chunks) >= n_samples:
            break
    return np.stack(chunks[:n_samples])


def normalize(chunks: Array) -> Array:
    """LeRobot pi052's fit: two ``np.quantile`` calls over all sampled rows, then scale and clip."""
    rows = chunks.reshape(-1, chunks.shape[-1])
    low, high = np.quantile(rows, 0.01, axis=0), np.quantile(rows, 0.99, axis=0)
    span = np.where(high - low > 1e-6, high - low, np.ones_like(low))
    return np.asarray(np.clip((chunks - low) / span * 2 - 1, -1, 1), dtype=np.float32)


def fit_input(root: Path, *, chunk_size: int, n_samples: int, seed: int) -> Array:
    """LeRobot pi052's fit: from the folder to what the tokenizer is trained on."""
    ids, actions = read_actions(root)
    drawn = sample_chunks(ids, actions, chunk_size=chunk_size, n_samples=n_samples, seed=seed)
    return normalize(drawn)


# ------------------------------------------------------------------------------------ FAST


def dct_symbols(chunks: Array, scale: float = 10.0) -> Array:
    """FAST's fit as published: a transform a chunk, then rounded; fed float64."""
    symbols = [
        np.around(scipy.fft.dct(chunk.astype(np.float64), axis=0, norm="ortho") * scale)
        for chunk in chunks
    ]
    return np.stack(symbols).astype(np.int32)


def fast_fit(
    chunks: Array, scale: float = 10.0, vocab_size: int = 1024
) -> tuple[PreTrainedTokenizerFast, int]:
    """FAST's fit as published: a string a chunk, byte-level BPE; with its ``min_token``."""
    from transformers import PreTrainedTokenizerFast

    coefficients = [
        scipy.fft.dct(chunk.astype(np.float64), axis=0, norm="ortho").ravel() for chunk in chunks
    ]
    rounded = np.around(np.concatenate(coefficients) * scale)
    low, high = int(rounded.min()), int(rounded.max())
    texts = (_text(np.around(row * scale) - low) for row in coefficients)
    bpe = fast_train(texts, high - low, vocab_size)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, clean_up_tokenization_spaces=False), low


def fast_train(texts: Iterable[str], span: int, vocab_size: int) -> Tokenizer:
    """FAST's training as published, on a text a chunk of characters from 0 to `span`."""
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers.trainers import BpeTrainer

    bpe = ByteLevelBPETokenizer()
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        show_progress=False,
        special_tokens=[],
        initial_alphabet=[chr(code) for code in range(span + 1)],
        max_token_length=10_000,
    )
    bpe._tokenizer.train_from_iterator(texts, trainer=trainer)
    trained: Tokenizer = bpe._tokenizer
    return trained


def fast_encode(
    bpe: PreTrainedTokenizerFast, chunks: Array, min_token: int, scale: float = 10.0
) -> list[list[int]]:
    """FAST's call as published: one transform of the batch, one call of the BPE a chunk."""
    coefficients = scipy.fft.dct(chunks.astype(np.float64), axis=1, norm="ortho")
    return [
        bpe(_text(np.maximum(row - min_token, 0)))["input_ids"]
        for row in np.around(coefficients * scale).reshape(len(chunks), -1)
    ]


def fast_decode(
    bpe: PreTrainedTokenizerFast,
    ids: list[list[int]],
    min_token: int,
    action_dim: int,
    scale: float = 10.0,
) -> Array:
    """FAST's decode as published, of lists that are chunks: one by one, then transformed."""
    coefficients = [
        (np.array(list(map(ord, bpe.decode(row)))) + min_token).reshape(-1, action_dim)
        for row in ids
    ]
    return np.asarray(scipy.fft.idct(np.stack(coefficients) / scale, axis=1, norm="ortho"))


def fit_tokenizer(root: Path, folder: Path, *, chunk_size: int, n_samples: int, seed: int) -> None:
    """LeRobot pi052's fit as a whole: rows, draws, normalisation, FAST, a folder."""
    chunks = fit_input(root, chunk_size=chunk_size, n_samples=n_samples, seed=seed)
    bpe, min_token = fast_fit(chunks)
    bpe.save_pretrained(str(folder))
    config = {"scale": 10, "vocab_size": 1024, "min_token": min_token}
    (folder / "processor_config.json").write_text(json.dumps(config), encoding="utf-8")


def _text(codes: Array) -> str:
    return "".join(map(chr, codes.astype(int).tolist()))
