"""LeRobot datasets on disk or on the Hub: what they hold, and their rows.

`open_dataset` reads metadata and parquet footers only. What the rows say wins over metadata; where
the two disagree, `Dataset.check` says so.
"""

from __future__ import annotations

import functools
import logging
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vlaprep._native import Reader, episode_stream
from vlaprep.errors import DatasetFormatError, EpisodeSelectionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["Dataset", "DatasetInfo", "EpisodeTable", "Feature", "Finding", "open_dataset"]

logger = logging.getLogger(__name__)

_LARGEST_ID = np.iinfo(np.int64).max
_MOST_THREADS = 1024


class Feature(NamedTuple):
    """One column as ``meta/info.json`` describes it.

    Attributes
    ----------
    dtype : str
        As written, such as ``"float32"``; empty where nothing is written.
    shape : tuple of int
        Shape of one frame's value.
    names : list of str or None
        Names of the dims, where they are one flat list.
    """

    dtype: str
    shape: tuple[int, ...]
    names: list[str] | None


class DatasetInfo(NamedTuple):
    """What ``meta/info.json`` says; the counters are as written, and rows decide.

    Attributes
    ----------
    codebase_version : str
        Such as ``"v2.1"``.
    fps : float or None
        Frames per second.
    features : dict
        `Feature` by column.
    total_episodes, total_frames : int or None
        Counters as written.
    """

    codebase_version: str
    fps: float | None
    features: dict[str, Feature]
    total_episodes: int | None
    total_frames: int | None


class Finding(NamedTuple):
    """One thing a user should know about a dataset.

    Attributes
    ----------
    kind : str
        A fixed word such as ``"pointer"`` or ``"unresolved-task"``.
    message : str
        The whole sentence.
    """

    kind: str
    message: str


@dataclass(frozen=True, eq=False)
class EpisodeTable:
    """The episodes of a dataset, as its rows tell them. All arrays are int64 and read-only.

    Hand it to anything that speaks the Arrow PyCapsule interface, such as ``pyarrow.table(table)``
    or ``polars.from_arrow(table)``.

    Parameters
    ----------
    episode_index : numpy.ndarray
        Shape (E,): ids, ascending, not necessarily dense.
    length : numpy.ndarray
        Shape (E,), in frames.
    task_index : numpy.ndarray
        Shape (E,): task of the first frame; -1 where it has none, or one that the dataset does not
        define.
    span_offsets : numpy.ndarray
        Shape (E + 1,): the spans of episode ``i`` are ``span_offsets[i] : span_offsets[i + 1]``.
    span_file, span_first_row, span_rows : numpy.ndarray
        Shape (S,): position in `Dataset.files`, first row in that file, number of rows.
    """

    episode_index: NDArray[np.int64]
    length: NDArray[np.int64]
    task_index: NDArray[np.int64]
    span_offsets: NDArray[np.int64]
    span_file: NDArray[np.int64]
    span_first_row: NDArray[np.int64]
    span_rows: NDArray[np.int64]

    def __post_init__(self) -> None:
        for column in vars(self).values():
            column.flags.writeable = False

    def __reduce__(self) -> tuple[type[EpisodeTable], tuple[NDArray[np.int64], ...]]:
        return EpisodeTable, tuple(vars(self).values())

    def __len__(self) -> int:
        return len(self.episode_index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EpisodeTable):
            return NotImplemented
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(np.array_equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        frames, tasks = int(self.length.sum()), len(np.unique(self.task_index))
        return f"<EpisodeTable: {len(self)} episodes, {frames} frames, {tasks} tasks>"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export as an Arrow stream of one batch (PyCapsule interface)."""
        return episode_stream(*vars(self).values())

    def positions(self, episodes: ArrayLike) -> NDArray[np.int64]:
        """Positions of the ids `episodes` in this table.

        Parameters
        ----------
        episodes : array_like of int64, shape (N,)
            Ids.

        Returns
        -------
        numpy.ndarray
            int64, shape (N,).

        Raises
        ------
        EpisodeSelectionError
            If an id is not in the table; the message names it.
        """
        ids = episode_ids(episodes)
        found = np.searchsorted(self.episode_index, ids)
        inside = np.minimum(found, len(self) - 1)
        unknown = ids[self.episode_index[inside] != ids]
        if unknown.size:
            raise EpisodeSelectionError(
                f"no such episode: {', '.join(map(str, unknown[:20]))}; the dataset has "
                f"{len(self)} episodes from {self.episode_index[0]} to {self.episode_index[-1]}"
            )
        return inside


class Dataset:
    """An open LeRobot dataset. It cannot be changed, and pickles as the place it was opened from.

    Made by `open_dataset`.

    Parameters
    ----------
    root : pathlib.Path
        The folder that holds ``meta`` and ``data``.
    episodes : tuple of int, optional
        Ids to keep.
    repo_id, revision : str, optional
        For Hub data: the repository, and the commit that was resolved.
    num_threads : int, optional
        Bound on threads; a copy that is pickled elsewhere takes what holds there.
    """

    def __init__(
        self,
        root: Path,
        episodes: tuple[int, ...] | None = None,
        *,
        repo_id: str | None = None,
        revision: str | None = None,
        num_threads: int | None = None,
    ) -> None:
        # Absolute, so that neither a change of folder nor another process moves it.
        place = root.absolute()
        vars(self).update(
            _reader=Reader(place, episodes, num_threads=_threads(num_threads)),
            _reopen=functools.partial(
                Dataset,
                place,
                episodes,
                repo_id=repo_id,
                revision=revision,
                num_threads=num_threads,
            ),
            root=root,
            repo_id=repo_id,
            revision=revision,
        )

    root: Path
    repo_id: str | None
    revision: str | None
    _reader: Reader
    _reopen: Callable[[], Dataset]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Dataset cannot be changed (asked to set {name})")

    def __reduce__(self) -> tuple[Callable[[], Dataset], tuple[()]]:
        return self._reopen, ()

    def __repr__(self) -> str:
        table, name = self.episodes, self.repo_id or self.root
        return f"<Dataset {name}: {len(table)} episodes, {int(table.length.sum())} frames>"

    @cached_property
    def info(self) -> DatasetInfo:
        """What ``meta/info.json`` says."""
        reader = self._reader
        features = {
            name: Feature(dtype, tuple(shape), names)
            for name, (dtype, shape, names) in reader.features.items()
        }
        return DatasetInfo(
            reader.codebase_version,
            reader.fps,
            features,
            reader.total_episodes,
            reader.total_frames,
        )

    @cached_property
    def tasks(self) -> dict[int, str]:
        """Task texts by ``task_index``; an empty text where none can be told."""
        return self._reader.tasks

    @cached_property
    def episodes(self) -> EpisodeTable:
        """The episodes, as the rows tell them."""
        return EpisodeTable(*self._reader.episodes())

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Data files relative to `root`, in the order of the numbers in their names."""
        return tuple(self._reader.files)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns of the data files."""
        return tuple(self._reader.columns)

    def check(self) -> list[Finding]:
        """Say where metadata and rows disagree, and what else is worth knowing.

        Returns
        -------
        list of Finding
            Sorted by kind; empty where all is well.
        """
        return [Finding(kind, message) for kind, message, _ in self._reader.findings]

    def feature_names(self, column: str) -> list[str] | None:
        """Names of the dims of `column`, where ``meta/info.json`` has them."""
        feature = self.info.features.get(column)
        return feature.names if feature else None

    def read(
        self, columns: str | Sequence[str], episodes: ArrayLike | None = None
    ) -> dict[str, NDArray[Any]]:
        """Read whole columns.

        Parameters
        ----------
        columns : str or sequence of str
            Numeric columns.
        episodes : array_like of int64, shape (N,), optional
            Ids; all by default.

        Returns
        -------
        dict of str to numpy.ndarray
            The frames in the order of episode and frame: int64, shape (R,), for a column of
            integers; float32, shape (R,), for single floats and (R, D) for vectors. A null vector
            or value is NaN.

        Raises
        ------
        DatasetFormatError
            If a file lacks the column, cannot be read, or has rows that are no vectors of one
            width.
        EpisodeSelectionError
            If there is no such episode.
        """
        table = self.episodes
        positions = np.arange(len(table))
        if episodes is not None:
            positions = np.unique(table.positions(episodes))
        names = list(dict.fromkeys([columns] if isinstance(columns, str) else columns))
        return dict(zip(names, self._reader.read(names, positions), strict=True))

    def read_chunks(
        self,
        episode_index: ArrayLike,
        start: ArrayLike,
        chunk_size: int,
        column: str = "action",
    ) -> NDArray[np.float32]:
        """Read action chunks, and only the row groups that hold them.

        Parameters
        ----------
        episode_index : array_like of int64, shape (N,)
            Id of each chunk's episode.
        start : array_like of int64, shape (N,)
            First frame within the episode.
        chunk_size : int
            Frames of a chunk (the time horizon H).
        column : str, default "action"
            A numeric column.

        Returns
        -------
        numpy.ndarray
            float32, shape (N, H, D), in the dataset's own units. A null row or value is NaN.

        Raises
        ------
        ValueError
            If a chunk does not lie within its episode.
        DatasetFormatError
            If a file lacks the column, cannot be read, or has rows that are no vectors of one
            width.
        """
        if not 1 <= chunk_size <= _LARGEST_ID:
            raise ValueError(f"chunk_size must be 1 or more, in 64 bits, got {chunk_size}")
        return self._reader.read_chunks(column, episode_index, start, chunk_size)


def open_dataset(
    path_or_repo_id: str | os.PathLike[str],
    *,
    revision: str | None = None,
    root: str | os.PathLike[str] | None = None,
    episodes: Iterable[int] | None = None,
    num_threads: int | None = None,
) -> Dataset:
    """Open a LeRobot dataset (v2.0, v2.1 or v3.0) from a folder or the Hub.

    Only metadata, footers and, where footers cannot tell, the id columns are read. A repository of
    the Hub is pinned to the commit that `revision` names now; ``meta/`` and the data files are
    downloaded, videos and images never.

    Parameters
    ----------
    path_or_repo_id : str or path
        A folder, or a repository id such as ``"lerobot/pusht"`` where there is no such folder.
    revision : str, optional
        Branch, tag or commit of the repository.
    root : str or path, optional
        Where to put downloaded files; the shared cache by default.
    episodes : iterable of int, optional
        Ids to keep; all by default.
    num_threads : int, optional
        Bound on threads; by default VLAPREP_NUM_THREADS, else what the machine or container allows.

    Returns
    -------
    Dataset

    Raises
    ------
    DatasetNotFoundError
        If there is no such folder or repository, or it holds no dataset.
    DatasetFormatError
        If files are broken (all are named), or metadata lists episodes of which no row is left.
    EpisodeSelectionError
        If a selected episode does not exist.

    Examples
    --------
    >>> from vlaprep import open_dataset
    >>> dataset = open_dataset("tests/golden/lerobot_v30")
    >>> dataset
    <Dataset tests/golden/lerobot_v30: 48 episodes, 3638 frames>
    >>> dataset.read_chunks([0, 5], [10, 0], chunk_size=8).shape
    (2, 8, 6)
    """
    selection = None if episodes is None else tuple(episode_ids(episodes).tolist())
    path = Path(path_or_repo_id).expanduser()
    if _is_local(path_or_repo_id):
        dataset = Dataset(path, selection, num_threads=num_threads)
    else:
        dataset = _open_from_hub(str(path_or_repo_id), revision, root, selection, num_threads)
    for _, message, is_warning in dataset._reader.findings:
        if is_warning:
            logger.warning("%s: %s", dataset.repo_id or path, message)
    return dataset


def _open_from_hub(
    repo_id: str,
    revision: str | None,
    root: str | os.PathLike[str] | None,
    selection: tuple[int, ...] | None,
    num_threads: int | None,
) -> Dataset:
    from vlaprep.hub import download_dataset

    folder, commit = download_dataset(repo_id, revision=revision, root=root, episodes=selection)
    name: dict[str, Any] = {"repo_id": repo_id, "revision": commit}
    try:
        return Dataset(folder, selection, **name, num_threads=num_threads)
    except (DatasetFormatError, EpisodeSelectionError):
        if selection is None:
            raise
        # Metadata named the files of the selected episodes, and was wrong: ask the rows.
        folder, _ = download_dataset(repo_id, revision=commit, root=root)
        return Dataset(folder, selection, **name, num_threads=num_threads)


def _is_local(path_or_repo_id: str | os.PathLike[str]) -> bool:
    from vlaprep.hub import is_repo_id

    text = os.fspath(path_or_repo_id)
    return not isinstance(path_or_repo_id, str) or Path(text).exists() or not is_repo_id(text)


def episode_ids(episodes: Any) -> NDArray[np.int64]:
    """Episode ids of any iterable as an int64 array; what is no integer is refused, not rounded."""
    ids = np.asarray(episodes if isinstance(episodes, np.ndarray) else list(episodes)).ravel()
    if not ids.size:
        return np.zeros(0, np.int64)
    if ids.dtype.kind not in "iu":
        raise EpisodeSelectionError(f"episode ids must be integers, got {ids.dtype}: {ids[:5]}")
    if ids.max() > _LARGEST_ID:
        raise EpisodeSelectionError(f"no such episode: {ids.max()}; ids end at {_LARGEST_ID}")
    return ids.astype(np.int64)


def _threads(num_threads: int | None) -> int:
    """Give the bound asked for, else the environment's; 0 is what the machine allows."""
    if num_threads is not None:
        if not 1 <= num_threads <= _MOST_THREADS:
            raise ValueError(f"num_threads must be 1 to {_MOST_THREADS}, got {num_threads}")
        return num_threads
    text = os.environ.get("VLAPREP_NUM_THREADS") or "0"
    if not text.isdecimal() or int(text) > _MOST_THREADS:
        raise ValueError(f"VLAPREP_NUM_THREADS must be 0 to {_MOST_THREADS}, got {text!r}")
    return int(text)
