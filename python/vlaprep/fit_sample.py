"""The action chunks a tokenizer is fitted on: select episodes, draw, read, pass over NaN."""

from __future__ import annotations

import hashlib
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vlaprep.errors import DatasetFormatError, EpisodeSelectionError, NoChunksError
from vlaprep.fit_chunks import HELD_VALUES, ChunkReader, DrawnChunks
from vlaprep.fit_report import digest_arrays
from vlaprep.sampling import sample_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from vlaprep.dataset import Dataset
    from vlaprep.fit_options import Draws
    from vlaprep.fit_source import Selection

__all__ = ["Sample", "Table", "draw_sample", "hold_out", "select_table"]

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
    table : Table
        The episodes that could be drawn from.
    drawn, skipped : int
        Windows drawn in all, and how many of them were left out for NaN, infinity or null.
    """

    drawn_chunks: DrawnChunks
    shape: tuple[int, int, int]
    content: str
    table: Table
    drawn: int
    skipped: int

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
        table = self.table
        places = digest_arrays(table.episode_index, table.length, self.episode_index, self.start)
        return hashlib.sha256(f"{self.content}{places}".encode()).hexdigest()

    def summary(self) -> dict[str, int]:
        """Count the draws, for the report."""
        count, horizon, dim = self.shape
        usable = self.table.usable(self.drawn_chunks.reader)
        return {
            "episodes": len(self.table),
            "episodes_too_short": len(self.table) - len(usable),
            "windows_drawn": self.drawn,
            "windows_skipped": self.skipped,
            "chunks": count,
            "time_horizon": horizon,
            "action_dim": dim,
        }

    def warn_of_skipped(self, wanted: int, label: str) -> None:
        """Tell once which share of the windows was left out, if any was."""
        if self.skipped:
            logger.warning(
                "%d of %d drawn windows (%.1f %%) hold NaN, infinity or null in column %s and were "
                "skipped; the fit uses %d of %d wanted chunks (dataset %s; nan='error' refuses "
                "such data)",
                self.skipped,
                self.drawn,
                100 * self.skipped / self.drawn,
                self.drawn_chunks.reader.space.columns,
                len(self.drawn_chunks),
                wanted,
                label,
            )


@dataclass(frozen=True, eq=False)
class Table:
    """Episodes to draw from: int64 arrays of shape (E,), in the order of the dataset."""

    episode_index: NDArray[np.int64]
    length: NDArray[np.int64]
    task_index: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.episode_index)

    def only(self, keep: NDArray[np.bool_]) -> Table:
        """Give the episodes that a mask keeps."""
        return Table(self.episode_index[keep], self.length[keep], self.task_index[keep])

    def without(self, ids: NDArray[np.int64]) -> Table:
        """Give the episodes that are not named."""
        return self.only(~np.isin(self.episode_index, ids))

    def usable(self, reader: ChunkReader) -> Table:
        """Give the episodes that hold a window."""
        shortest = 1 if reader.space.tail == "clamp" else reader.chunk_size
        return self.only(self.length >= shortest)


def select_table(dataset: Dataset, selection: Selection, label: str, action_key: str) -> Table:
    """Give the selected episodes of a dataset that has such a column.

    Raises
    ------
    DatasetFormatError
        There is no such action column.
    EpisodeSelectionError
        An episode or task is not there, or none is left.
    """
    if action_key not in dataset.columns:
        raise DatasetFormatError(
            f"there is no action column {action_key!r} in dataset {label}; it has: "
            f"{', '.join(dataset.columns)}; choose one with action_key="
        )
    found = dataset.episodes
    table = Table(found.episode_index, found.length, found.task_index)
    missing = np.setdiff1d(selection.exclude, table.episode_index)
    if len(missing):
        raise EpisodeSelectionError(
            f"exclude_episodes= names episode {missing[0]}, which is not in dataset {label}; it "
            f"has {len(table)} episodes"
        )
    kept = table.without(np.array(selection.exclude, dtype=np.int64))
    if len(table) and not len(kept):
        raise EpisodeSelectionError(
            f"no episodes are left: exclude_episodes= names all {len(table)} of dataset {label}"
        )
    if selection.tasks is None:
        return kept
    of_tasks = kept.only(np.isin(kept.task_index, _tasks(dataset, selection.tasks, label)))
    if not len(of_tasks):
        raise EpisodeSelectionError(
            f"no episodes are left: none of those selected of dataset {label} has a task of "
            f"{selection.tasks}"
        )
    return of_tasks


def _tasks(dataset: Dataset, wanted: Iterable[int | str], label: str) -> list[int]:
    """Give the numbers of tasks; a text that is there is a text, whatever it looks like."""
    by_text: dict[str, list[int]] = {}
    for number, text in dataset.tasks.items():
        by_text.setdefault(text, []).append(number)
    found: list[int] = []
    for task in wanted:
        if isinstance(task, str) and task in by_text:
            found += by_text[task]
        elif not isinstance(task, str) and task in dataset.tasks:
            found.append(task)
        elif isinstance(task, str) and task.isdecimal() and int(task) in dataset.tasks:
            found.append(int(task))
        else:
            known = [f"{number} {text!r}" for number, text in list(dataset.tasks.items())[:20]]
            raise EpisodeSelectionError(
                f"there is no task {task!r} in dataset {label}; there are: {', '.join(known)}"
                f"{', …' if len(dataset.tasks) > len(known) else ''}"
            )
    return found


def hold_out(
    table: Table,
    episodes: float | tuple[int, ...] | None,
    draws: Draws,
    reader: ChunkReader,
    label: str,
) -> tuple[Table, Table | None]:
    """Set episodes aside: those to fit on, and those to try the tokenizer on.

    Parameters
    ----------
    table : Table
        All selected ones.
    episodes : float or tuple of int, optional
        Share of those that hold a window, rounded up, or their ids. None: none is set aside.
    draws : Draws
        Its seed says which.

    Raises
    ------
    EpisodeSelectionError
        An id is not there, or there are too few to set any aside.
    """
    if episodes is None:
        return table, None
    usable = table.usable(reader)
    if isinstance(episodes, float):
        count = math.ceil(episodes * len(usable))
        rng = np.random.default_rng([draws.seed, 2])
        held = np.sort(usable.episode_index)[rng.permutation(len(usable))[:count]]
    else:
        held = np.array(episodes, dtype=np.int64)
        missing = np.setdiff1d(held, table.episode_index)
        if len(missing):
            raise EpisodeSelectionError(
                f"validation_episodes= names episode {missing[0]}, which is not among those "
                f"selected of dataset {label}"
            )
    aside = usable.only(np.isin(usable.episode_index, held))
    fitted = table.without(held)
    if not len(aside) or not len(fitted.usable(reader)):
        raise EpisodeSelectionError(
            f"validation_episodes={episodes} leaves {len(fitted.usable(reader))} episodes to fit "
            f"on and {len(aside)} to try the tokenizer on, of {len(usable)} in dataset {label} "
            f"that hold a window of chunk_size={draws.chunk_size}; both need one"
        )
    return fitted, aside


def draw_sample(reader: ChunkReader, table: Table, draws: Draws, label: str) -> Sample:
    """Draw finite chunks from a dataset that messages call `label`.

    Windows that hold NaN, infinity or null are passed over, and the sequence of draws goes on, so
    the sample is the first `n_samples` finite windows of one endless, seeded sequence; it ends
    where each window is drawn once only.

    Raises
    ------
    DatasetFormatError
        A window is not finite, and that is an error.
    NoChunksError
        All episodes are too short, or none of the windows drawn is finite.
    """
    wanted = draws.n_samples
    limit = max(MAX_DRAWS_PER_CHUNK * wanted, MIN_DRAWS)
    seen = _Seen(reader, draws.nan, label)
    drawn, batch = 0, wanted
    while seen.finite < wanted and drawn < limit:
        try:
            episode, start = sample_chunks(
                table.episode_index,
                table.length,
                task_index=table.task_index if draws.per == "task" else None,
                chunk_size=draws.chunk_size,
                n_samples=wanted,
                seed=draws.seed,
                per=draws.per,
                replace=draws.replace,
                tail=reader.space.tail,
                n_draws=drawn + batch,
            )
        except NoChunksError as error:
            raise NoChunksError(f"{error} (dataset {label})") from error
        if len(start) == drawn:  # every window has been drawn
            break
        seen.look_at(episode[drawn:], start[drawn:], wanted)
        drawn = len(start)
        # As many further draws as the share of finite windows so far suggests.
        suggested = (wanted - seen.finite) * drawn // max(seen.finite, 1) + 1
        batch = min(suggested, limit - drawn, max(wanted, MIN_DRAWS))
    if not seen.finite:
        raise NoChunksError(
            f"no action chunk can be drawn: all {drawn} windows of chunk_size={draws.chunk_size} "
            f"drawn from column {reader.space.columns} of dataset {label} hold NaN, infinity "
            "or null; choose another column with action_key=, other episodes, or a smaller "
            "chunk_size"
        )
    return seen.sample(wanted, table, drawn)


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

    def sample(self, n_samples: int, table: Table, drawn: int) -> Sample:
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


def _not_finite(
    chunks: NDArray[np.float32],
    episode: NDArray[np.int64],
    start: NDArray[np.int64],
    reader: ChunkReader,
    label: str,
) -> DatasetFormatError:
    """Say where in the dataset the first value lies that is not finite."""
    chunk, row, place = np.argwhere(~np.isfinite(chunks))[0].tolist()
    space, first = reader.space, int(start[chunk])
    dim = place if space.dims is None else space.dims[place]
    column, frame = space.action_key, first + row
    of_episode = reader.dataset.episodes.episode_index == episode[chunk]
    frame = min(frame, int(reader.dataset.episodes.length[of_episode][0]) - 1)  # tail="clamp"
    if space.state_key is not None and dim in space.relative:
        state = reader.dataset.read_chunks(episode[chunk : chunk + 1], [first], 1, space.state_key)
        if not np.isfinite(state[0, 0, dim]):
            column, frame = space.state_key, first
    return DatasetFormatError(
        f"column {column!r} holds NaN, infinity or null in episode {episode[chunk]}, frame "
        f"{frame}, dim {dim} of dataset {label}; nan='skip' leaves such windows out"
    )
