"""The action chunks a tokenizer is fitted on: select episodes, draw, read, pass over NaN."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.dataset_types import episode_ids
from vlaprep.errors import DatasetFormatError, EpisodeSelectionError, NoChunksError
from vlaprep.fit_chunks import HELD_VALUES, ChunkReader, DrawnChunks
from vlaprep.fit_report import digest_arrays
from vlaprep.sampling import sample_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from vlaprep.dataset import Dataset
    from vlaprep.fit_cover import Cover

    _Windows = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]

__all__ = ["Sample", "draw_sample", "select_table", "selected_episodes"]

logger = logging.getLogger(__name__)

MAX_DRAWS_PER_CHUNK = 16
"""How often at most a window is drawn for each chunk wanted, before a dirty column is given up."""
MIN_DRAWS = 4096
"""That bound is at least this, so that small samples have a fair chance too."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Chunks drawn from a dataset.

    Parameters
    ----------
    drawn_chunks : DrawnChunks
        Raw, finite actions.
    shape : tuple of int
        ``(N, time_horizon, action_dim)``.
    content : str
        SHA-256 over the chunks.
    table : tuple of int64 arrays, shape (E,)
        Ids and lengths of the episodes that could be drawn from.
    drawn, skipped : int
        Windows drawn in all, and how many of them were left out for NaN, infinity or null.
    cover : Cover, optional
        Windows that are fitted on beside those drawn, so that all of the dataset can be encoded.
    """

    drawn_chunks: DrawnChunks
    shape: tuple[int, int, int]
    content: str
    table: tuple[NDArray[np.int64], NDArray[np.int64]]
    drawn: int
    skipped: int
    cover: Cover | None = None

    @property
    def episode_index(self) -> NDArray[np.int64]:
        """Episode of each chunk, shape (N,)."""
        return self.drawn_chunks.episode_index

    @property
    def start(self) -> NDArray[np.int64]:
        """First frame of each chunk within its episode, shape (N,)."""
        return self.drawn_chunks.start

    @property
    def chunks(self) -> NDArray[np.float32]:
        """All chunks in one array, as they were drawn."""
        return self.drawn_chunks.all()

    def digest(self) -> str:
        """SHA-256 over all that a fit sees of the data; the place it was read from is not in it."""
        arrays: list[NDArray[Any]] = [*self.table, self.episode_index, self.start]
        if (cover := self.cover) is not None:
            arrays += [cover.episode_index, cover.start, cover.chunks]
        return hashlib.sha256(f"{self.content}{digest_arrays(*arrays)}".encode()).hexdigest()

    def summary(self, chunk_size: int) -> dict[str, int]:
        """Count the draws, for the report."""
        _, lengths = self.table
        count, horizon, dim = self.shape
        return {
            "episodes": len(lengths),
            "episodes_too_short": int((lengths < chunk_size).sum()),
            "windows_drawn": self.drawn,
            "windows_skipped": self.skipped,
            "chunks": count,
            "time_horizon": horizon,
            "action_dim": dim,
        }

    def warn_of_skipped(self, wanted: int, label: str, action_key: str) -> None:
        """Tell once which share of the windows was left out, if any was."""
        if self.skipped:
            logger.warning(
                "%d of %d drawn windows (%.1f %%) hold NaN, infinity or null in column %r and were "
                "skipped; the fit uses %d of %d wanted chunks (dataset %s; nan='error' refuses "
                "such data)",
                self.skipped,
                self.drawn,
                100 * self.skipped / self.drawn,
                action_key,
                len(self.drawn_chunks),
                wanted,
                label,
            )


def selected_episodes(
    episodes: Iterable[int] | None, exclude_episodes: Iterable[int] | None
) -> tuple[list[int] | None, list[int]]:
    """Bring a selection to normal form: ascending ids to keep (None: all) and to leave out.

    An id in both is left out. Ids to leave out need not exist: one list may serve many revisions.
    """
    exclude = np.unique(episode_ids(exclude_episodes or ())).tolist()
    if episodes is None:
        return None, exclude
    keep = sorted(set(episode_ids(episodes).tolist()).difference(exclude))
    if not keep:
        raise EpisodeSelectionError(
            "no episodes are left: episodes= is empty or exclude_episodes= names all of them"
        )
    return keep, []


def draw_sample(
    dataset: Dataset,
    *,
    label: str,
    exclude: Iterable[int],
    action_key: str,
    chunk_size: int,
    n_samples: int,
    seed: int,
    nan: str,
) -> Sample:
    """Draw `n_samples` finite chunks from a dataset that messages call `label`.

    Windows that hold NaN, infinity or null are passed over, and the sequence of draws goes on, so
    the sample is the first `n_samples` finite windows of one endless, seeded sequence.

    Raises
    ------
    DatasetFormatError
        There is no such action column, or `nan` is ``"error"`` and a window is not finite.
    EpisodeSelectionError
        No episode is left.
    NoChunksError
        All episodes are too short, or none of the windows drawn is finite.
    """
    table = select_table(dataset, exclude, label, action_key)
    reader = ChunkReader(dataset, action_key, chunk_size)
    limit = max(MAX_DRAWS_PER_CHUNK * n_samples, MIN_DRAWS)
    want = {"chunk_size": chunk_size, "n_samples": n_samples, "seed": seed}
    seen = _Seen(reader, nan, label)
    drawn, batch = 0, n_samples
    while seen.finite < n_samples and drawn < limit:
        try:
            episode, start = sample_chunks(*table, **want, n_draws=drawn + batch)
        except NoChunksError as error:
            raise NoChunksError(f"{error} (dataset {label})") from error
        seen.look_at(episode[drawn:], start[drawn:], n_samples)
        drawn += batch
        # As many further draws as the share of finite windows so far suggests.
        suggested = (n_samples - seen.finite) * drawn // max(seen.finite, 1) + 1
        batch = min(suggested, limit - drawn, max(n_samples, MIN_DRAWS))
    if not seen.finite:
        raise NoChunksError(
            f"no action chunk can be drawn: all {drawn} windows of chunk_size={chunk_size} drawn "
            f"from column {action_key!r} of dataset {label} hold NaN, infinity or null; choose "
            "another column with action_key=, other episodes, or a smaller chunk_size"
        )
    return seen.sample(n_samples, table, drawn)


class _Seen:
    """What the windows read so far have shown."""

    def __init__(self, reader: ChunkReader, nan: str, label: str) -> None:
        self.reader, self.nan, self.label = reader, nan, label
        self.finite = 0
        self.shape: tuple[int, ...] = ()
        self.digest = hashlib.sha256()
        self.places: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self.held: list[NDArray[np.float32]] | None = []

    def look_at(self, episode: NDArray[np.int64], start: NDArray[np.int64], n_samples: int) -> None:
        """Read windows in the order in which they lie in files; keep them while they are few."""
        order = self.reader.in_file_order(episode, start)
        good = np.ones(len(order), dtype=np.bool_)
        blocks: list[NDArray[np.float32]] = []
        first = 0
        for block in self.reader.blocks(episode[order], start[order]):
            some = order[first : first + len(block)]
            fine = np.isfinite(block).all(axis=(1, 2))
            if self.nan == "error" and not fine.all():
                raise _not_finite(block, episode[some], start[some], self.reader, self.label)
            good[some] = fine
            block = block if fine.all() else block[fine]
            self.digest.update(np.ascontiguousarray(block, dtype="<f4").data)
            self.shape = block.shape[1:]
            if self.held is not None and n_samples * block[0:1].size <= HELD_VALUES:
                blocks.append(block)
            else:
                self.held = None
            first += len(some)
        self.places.append((episode[good], start[good]))
        self.finite += int(good.sum())
        if self.held is not None:
            # From the order of the files to that of the draws.
            back = np.argsort(order[good[order]], kind="stable")
            self.held.append(np.concatenate(blocks)[back])

    def sample(
        self, n_samples: int, table: tuple[NDArray[np.int64], NDArray[np.int64]], drawn: int
    ) -> Sample:
        """Give the first `n_samples` finite windows."""
        episode, start = (
            np.concatenate(parts)[:n_samples] for parts in zip(*self.places, strict=True)
        )
        held = None if self.held is None else np.concatenate(self.held)[:n_samples]
        horizon, dim = self.shape
        return Sample(
            DrawnChunks(self.reader, episode, start, held),
            (len(start), horizon, dim),
            self.digest.hexdigest(),
            table,
            drawn,
            drawn - self.finite,
        )


def select_table(
    dataset: Dataset, exclude: Iterable[int], label: str, action_key: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give ids and lengths of the episodes that are not left out, of a dataset with that column."""
    if action_key not in dataset.columns:
        raise DatasetFormatError(
            f"there is no action column {action_key!r} in dataset {label}; it has: "
            f"{', '.join(dataset.columns)}; choose one with action_key="
        )
    ids, lengths = dataset.episodes.episode_index, dataset.episodes.length
    keep = ~np.isin(ids, list(exclude))
    if len(ids) and not keep.any():
        raise EpisodeSelectionError(
            f"no episodes are left: exclude_episodes= names all {len(ids)} of dataset {label}"
        )
    return ids[keep], lengths[keep]


def _not_finite(
    chunks: NDArray[np.float32],
    episode: NDArray[np.int64],
    start: NDArray[np.int64],
    reader: ChunkReader,
    label: str,
) -> DatasetFormatError:
    chunk, row, dim = np.argwhere(~np.isfinite(chunks))[0]
    return DatasetFormatError(
        f"column {reader.action_key!r} holds NaN, infinity or null in episode {episode[chunk]}, "
        f"frame {start[chunk] + row}, dim {dim} of dataset {label}; nan='skip' leaves such windows "
        "out"
    )
