"""The chunks of a fit, read block by block: a million of them need not lie in memory at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from vlaprep.action_space import ActionSpace
    from vlaprep.dataset import Dataset
    from vlaprep.normalization import Normalization

    _Ids = NDArray[np.int64]
    _Chunks = NDArray[np.float32]

__all__ = ["ChunkReader", "DrawnChunks", "NormalizedChunks", "RowBlocks", "padded"]

BLOCK_VALUES = 1 << 25
"""Values of the chunks that are read at a time: 128 MiB."""
HELD_VALUES = 1 << 26
"""Up to here chunks are kept once they are read, in 256 MiB; of more, only the places are."""
_WORTH_A_THREAD = 1 << 20


@dataclass(frozen=True, eq=False)
class ChunkReader:
    """Reads raw chunks: frames of a dataset, in the space of a policy's actions.

    Parameters
    ----------
    dataset : Dataset
        Where the frames lie.
    space : ActionSpace
        What of them a chunk is.
    chunk_size : int
        Frames of a chunk.
    """

    dataset: Dataset
    space: ActionSpace
    chunk_size: int

    def read(self, episode_index: _Ids, start: _Ids) -> _Chunks:
        """Read raw chunks (N, chunk_size, D) float32."""
        space = self.space
        if space.tail == "clamp":
            chunks = self._clamped(episode_index, start)
        else:
            chunks = self._frames(episode_index, start, self.chunk_size)
        if space.state_key is not None:
            state = self.dataset.read_chunks(episode_index, start, 1, space.state_key)
            relative = list(space.relative)
            chunks[..., relative] -= state[..., relative]
        if space.dims is not None:
            chunks = np.ascontiguousarray(chunks[..., list(space.dims)])
        return chunks

    def rows(self, episode_index: _Ids) -> NDArray[np.float32]:
        """Read all frames of some episodes (R, D) float32, where chunks are nothing but frames."""
        key = self.space.action_key
        rows = self.dataset.read(key, episode_index)[key]
        rows = rows if rows.ndim == 2 else rows[:, None]
        if self.space.dims is not None:
            rows = rows[:, list(self.space.dims)]
        return np.ascontiguousarray(rows, dtype=np.float32)

    def _frames(self, episode_index: _Ids, start: _Ids, count: int) -> _Chunks:
        return self.dataset.read_chunks(episode_index, start, count, self.space.action_key)

    def _clamped(self, episode_index: _Ids, start: _Ids) -> _Chunks:
        """Read chunks that repeat the last frame of their episode past its end."""
        length = self.dataset.episodes.length[self._places(episode_index)]
        # Whole within the episode, and from there on by number of the frame.
        count = np.minimum(length, self.chunk_size)
        first = np.minimum(start, length - count)
        wanted = (start - first)[:, None] + np.arange(self.chunk_size)
        chunks: _Chunks | None = None
        for frames in np.unique(count).tolist():
            some = np.flatnonzero(count == frames)
            whole = self._frames(episode_index[some], first[some], frames)
            shown = np.minimum(wanted[some], frames - 1)[..., None]
            if chunks is None:
                shape = (len(start), self.chunk_size, whole.shape[2])
                chunks = np.empty(shape, dtype=np.float32)
            chunks[some] = np.take_along_axis(whole, shown, axis=1)
        return self._frames(episode_index, start, 1)[:, :0] if chunks is None else chunks

    def in_file_order(self, episode_index: _Ids, start: _Ids) -> _Ids:
        """Give the order in which reading chunks touches each part of a file once."""
        return np.lexsort((start, self._places(episode_index)))

    def _places(self, episode_index: _Ids) -> _Ids:
        """Find episodes in the table of the dataset."""
        ids = self.dataset.episodes.episode_index
        by_id = np.argsort(ids, kind="stable")
        return by_id[np.searchsorted(ids, episode_index, sorter=by_id)]

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
    max_action_dim : int, optional
        Dims to fill up to with zeros.
    num_threads : int, optional
        Bound on threads; by default VLAPREP_NUM_THREADS, else what the machine or container allows.
    """

    chunks: DrawnChunks
    normalization: Normalization
    added: _Chunks | None = None
    max_action_dim: int | None = None
    num_threads: int | None = None
    clipped_fraction: NDArray[np.float64] = field(init=False)
    """Share of values of each dim of `chunks` that were clipped, once all have passed."""

    def __iter__(self) -> Iterator[NDArray[Any]]:
        clipped, rows = np.int64(0), 0
        for block in self.chunks.blocks():
            normal, counts = self._normalized(block)
            clipped = clipped + counts
            rows += block.size // block.shape[-1]
            yield padded(normal, self.max_action_dim)
        self.clipped_fraction = clipped / np.float64(max(rows, 1))
        if self.added is not None and len(self.added):
            yield padded(self.normalization.normalize(self.added), self.max_action_dim)

    def _normalized(self, block: _Chunks) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Normalise on several threads: NumPy lets go of the interpreter in its loops."""
        from vlaprep.dataset import thread_bound

        normal = np.empty(block.shape, self.normalization.normalizes_to(block.dtype))
        threads = thread_bound(self.num_threads) if block.size > _WORTH_A_THREAD else 1
        share = -(-len(block) // threads)
        parts = [slice(first, first + share) for first in range(0, len(block), share)]

        def normalize(part: slice) -> NDArray[np.int64]:
            _, counts = self.normalization.normalize_counting(block[part], out=normal[part])
            return counts

        if len(parts) == 1:
            return normal, normalize(parts[0])
        with ThreadPoolExecutor(len(parts)) as pool:
            counts = sum(pool.map(normalize, parts), start=np.int64(0))
        return normal, np.asarray(counts)


def padded(chunks: NDArray[Any], max_action_dim: int | None) -> NDArray[Any]:
    """Fill chunks (N, H, D) up to a number of dims with zeros; None: leave them."""
    more = 0 if max_action_dim is None else max_action_dim - chunks.shape[-1]
    return np.pad(chunks, ((0, 0), (0, 0), (0, more))) if more else chunks
