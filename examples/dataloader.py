"""Encode action chunks inside the workers of a data loader.

What one learns:

- `vlaprep.ActionCodec` is the tokenizer without transformers, which no worker has to import.
- Datasets, codecs and normalisations pickle as the few things they were made from, so they go
  to workers by fork and by spawn alike. vlaprep keeps no threads between calls, so a fork while
  it is in use is harmless.
- A worker reads the chunks of a batch (only the row groups that hold them), normalises, and
  encodes them into one padded matrix of ids with its mask.
- The same batches come out whatever the number of workers and however they were started.

With torch installed the loader is ``torch.utils.data.DataLoader``, else a process pool that does
the same. Run it on any LeRobot folder: ``python examples/dataloader.py path/to/dataset``.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import vlaprep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Batch = tuple[NDArray[np.int32], NDArray[np.bool_]]

RECORDED = Path(__file__).resolve().parent.parent / "tests" / "golden" / "lerobot_v30"
CHUNK_SIZE, MAX_TOKENS = 10, 64


@dataclass(frozen=True)
class EncodedBatches:
    """Item ``i`` is batch ``i``: ids (B, MAX_TOKENS) and the mask of those that are no padding."""

    dataset: vlaprep.Dataset
    normalization: vlaprep.Normalization
    codec: vlaprep.ActionCodec
    episode: NDArray[np.int64]
    start: NDArray[np.int64]
    batch_size: int

    def __len__(self) -> int:
        return len(self.episode) // self.batch_size

    def __getitem__(self, item: int) -> Batch:
        at = slice(item * self.batch_size, (item + 1) * self.batch_size)
        chunks = self.dataset.read_chunks(self.episode[at], self.start[at], CHUNK_SIZE)
        return self.codec.encode_padded(self.normalization.normalize(chunks), MAX_TOKENS)


_in_worker: EncodedBatches


def _keep(batches: EncodedBatches) -> None:
    global _in_worker
    _in_worker = batches


def _fetch(item: int) -> Batch:
    return _in_worker[item]


def load(batches: EncodedBatches, workers: int, start_method: str | None) -> list[Batch]:
    """All batches, fetched by so many workers; none: in this process."""
    if importlib.util.find_spec("torch"):
        from torch.utils.data import DataLoader

        loader: Iterable[Any] = DataLoader(
            batches,
            batch_size=None,  # an item is a batch already
            num_workers=workers,
            multiprocessing_context=start_method if workers else None,
        )
        return [(np.asarray(ids), np.asarray(mask)) for ids, mask in loader]
    items = range(len(batches))
    if not workers:
        return [batches[i] for i in items]
    context = multiprocessing.get_context(start_method)
    with context.Pool(workers, initializer=_keep, initargs=(batches,)) as pool:
        return list(pool.imap(_fetch, items))


def run(root: Path, cache_dir: Path) -> None:
    dataset = vlaprep.open_dataset(root)
    folder = Path(
        vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=cache_dir, chunk_size=CHUNK_SIZE)
    )
    episode, start = vlaprep.sample_chunks(
        dataset.episodes.episode_index,
        dataset.episodes.length,
        chunk_size=CHUNK_SIZE,
        n_samples=512,
        seed=0,
    )
    batches = EncodedBatches(
        dataset,
        vlaprep.Normalization.from_pretrained(folder),
        vlaprep.ActionCodec.from_pretrained(folder),
        episode,
        start,
        batch_size=32,
    )
    if not importlib.util.find_spec("torch"):
        print("torch is not installed: a process pool stands for its DataLoader")
    here = load(batches, 0, None)
    ids, mask = here[0]
    _, status = batches.codec.decode_batch([row[m] for row, m in zip(ids, mask, strict=True)])
    assert not status.any()
    print(f"{len(here)} batches, ids {ids.shape}, {mask.sum(axis=1).mean():.1f} tokens a chunk")
    for start_method in ("fork", "spawn"):
        began = time.perf_counter()
        there = load(batches, 2, start_method)
        took = time.perf_counter() - began
        for mine, theirs in zip(here, there, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        print(f"2 workers by {start_method}: the same batches, {took:.2f} s with their start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dataset", type=Path, nargs="?", default=RECORDED)
    root = parser.parse_args().dataset
    # The package that trains warns at a fork after it has used threads: here it uses none.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with tempfile.TemporaryDirectory() as folder:
        run(root, Path(folder))


if __name__ == "__main__":
    main()
