"""The chunks of a fit, read block by block: a million of them need not lie in memory at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from vlaprep.dataset import Dataset
    from vlaprep.normalization import Normalization

    _Ids = NDArray[np.int64]
    _Chunks = NDArray[np.float32]

__all__ = ["ChunkReader", "DrawnChunks", "NormalizedChunks", "RowBlocks"]

BLOCK_VALUES = 1 << 25
"""Values of the chunks that are read at a time: 128 MiB."""
HELD_VALUES = 1 << 26
"""Up to here chunks are kept once they are read, in 256 MiB; of more, only the places are."""


@dataclass(frozen=True, eq=False)
class ChunkReader:
    """What a chunk of a dataset is.

    Parameters
    ----------
    dataset : Dataset
        Where the frames lie.
    action_key : str
        Column of the actions.
    chunk_size : int
        Frames of a chunk.
    """

    dataset: Dataset
    action_key: str
    chunk_size: int

    def read(self, episode_index: _Ids, start: _Ids) -> _Chunks:
        """Read raw chunks (N, chunk_size, D) float32."""
        return self.dataset.read_chunks(episode_index, start, self.chunk_size, self.action_key)

    def in_file_order(self, episode_index: _Ids, start: _Ids) -> _Ids:
        """Give the order in which reading chunks touches each part of a file once."""
        ids = self.dataset.episodes.episode_index
        by_id = np.argsort(ids, kind="stable")
        place = by_id[np.searchsorted(ids, episode_index, sorter=by_id)]
        return np.lexsort((start, place))

    def blocks(self, episode_index: _Ids, start: _Ids) -> Iterator[_Chunks]:
        """Read chunks in the order given, so many at a time as fit into a block."""
        first, most = 0, 1  # a first one tells how large they are
        while first < len(start):
            some = slice(first, first + most)
            block = self.read(episode_index[some], start[some])
            yield block
            first += len(block)
            most = max(BLOCK_VALUES // max(block[0].size, 1), 1)


@dataclass(frozen=True, eq=False)
class DrawnChunks:
    """Raw chunks by their places, in the order in which they were drawn.

    Parameters
    ----------
    reader : ChunkReader
        Reads them.
    episode_index, start : int64 array, shape (N,)
        Where each begins.
    held : float32 array, shape (N, H, D), optional
        The chunks themselves, where they are few enough to be kept.
    """

    reader: ChunkReader
    episode_index: _Ids
    start: _Ids
    held: _Chunks | None = None

    def __len__(self) -> int:
        return len(self.start)

    def blocks(self) -> Iterator[_Chunks]:
        """Give all of them in arrays (n, H, D): as they were drawn, or as they lie in files."""
        if self.held is not None:
            yield self.held
        else:
            order = self.reader.in_file_order(self.episode_index, self.start)
            yield from self.reader.blocks(self.episode_index[order], self.start[order])

    def take(self, places: _Ids) -> _Chunks:
        """Give some of them, by their numbers in the order of the draws."""
        if self.held is not None:
            return self.held[places]
        return self.reader.read(self.episode_index[places], self.start[places])

    def all(self) -> _Chunks:
        """Give all of them in one array (N, H, D), in the order of the draws."""
        if self.held is not None:
            return self.held
        order = self.reader.in_file_order(self.episode_index, self.start)
        chunks = np.concatenate(list(self.blocks()))
        drawn = np.empty_like(chunks)
        drawn[order] = chunks
        return drawn


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """The frames of drawn chunks in matrices (n * H, D); each iteration begins anew."""

    chunks: DrawnChunks

    def __iter__(self) -> Iterator[_Chunks]:
        for block in self.chunks.blocks():
            yield block.reshape(-1, block.shape[-1])


@dataclass(eq=False)
class NormalizedChunks:
    """Normalised chunks in blocks (n, H, D); each iteration begins anew.

    Parameters
    ----------
    chunks : DrawnChunks
        Raw chunks.
    normalization : Normalization
        How to normalise them.
    added : float32 array, shape (M, H, D), optional
        Further raw chunks, which come last.
    """

    chunks: DrawnChunks
    normalization: Normalization
    added: _Chunks | None = None
    clipped_fraction: NDArray[np.float64] = field(init=False)
    """Share of values of each dim of `chunks` that were clipped, once all have passed."""

    def __iter__(self) -> Iterator[NDArray[Any]]:
        clipped, rows = np.int64(0), 0
        for block in self.chunks.blocks():
            normal, counts = self.normalization.normalize_counting(block)
            clipped = clipped + counts
            rows += block.size // block.shape[-1]
            yield normal
        self.clipped_fraction = clipped / np.float64(max(rows, 1))
        if self.added is not None and len(self.added):
            yield self.normalization.normalize(self.added)
