"""LeRobot datasets on disk or on the Hub: what they hold, and their rows.

`open_dataset` reads metadata and parquet footers only. What the rows say wins over metadata; where
the two disagree, `Dataset.check` says so.
"""

from __future__ import annotations

import functools
import logging
import os
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep._native import Reader
from vlaprep.dataset_types import (
    LARGEST_ID,
    ColumnStats,
    DatasetInfo,
    EpisodeTable,
    Feature,
    Finding,
    episode_ids,
)
from vlaprep.errors import DatasetFormatError, EpisodeSelectionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "ColumnStats",
    "Dataset",
    "DatasetInfo",
    "EpisodeTable",
    "Feature",
    "Finding",
    "open_dataset",
]

logger = logging.getLogger(__name__)

_MOST_THREADS = 1024
_DEFAULT_STATS = ("action", "observation.state")


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
        names = _names(columns)
        read = self._reader.read(names, self._positions(episodes))
        return dict(zip(names, read, strict=True))

    def stats(
        self,
        columns: str | Sequence[str] | None = None,
        q: Sequence[float] = (0.01, 0.1, 0.5, 0.9, 0.99),
        episodes: ArrayLike | None = None,
    ) -> dict[str, ColumnStats]:
        """Take statistics of whole columns, of which no more than a few hundredths are in memory.

        Each column is read once, after a sample of its rows; again only where the sample misled
        about where a quantile lies. The answer is exact either way, for any number of threads.

        Parameters
        ----------
        columns : str or sequence of str, optional
            Numeric columns; ``"action"`` and ``"observation.state"``, as far as they are there, by
            default.
        q : sequence of float
            Quantiles to take, each in [0, 1].
        episodes : array_like of int64, shape (N,), optional
            Ids; all by default.

        Returns
        -------
        dict of str to ColumnStats

        Raises
        ------
        ValueError
            If a quantile does not lie in [0, 1].
        DatasetFormatError
            If a file lacks the column, cannot be read, or has rows that are no vectors of one
            width.
        EpisodeSelectionError
            If there is no such episode.

        Examples
        --------
        >>> from vlaprep import open_dataset
        >>> dataset = open_dataset("tests/golden/lerobot_v30")
        >>> stats = dataset.stats("action", q=(0.01, 0.99))["action"]
        >>> stats.count, stats.quantiles.shape
        (3638, (2, 6))
        """
        if columns is None:
            columns = [name for name in _DEFAULT_STATS if name in self.columns]
        names = _names(columns)
        wanted = tuple(float(value) for value in q)
        taken = self._reader.stats(names, self._positions(episodes), wanted)
        return {
            name: ColumnStats(count, low, high, mean, std, wanted, quantiles)
            for name, (count, low, high, mean, std, quantiles) in zip(names, taken, strict=True)
        }

    def _positions(self, episodes: ArrayLike | None) -> NDArray[np.int64]:
        table = self.episodes
        if episodes is None:
            return np.arange(len(table))
        return np.unique(table.positions(episodes))

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
        if not 1 <= chunk_size <= LARGEST_ID:
            raise ValueError(f"chunk_size must be 1 or more, in 64 bits, got {chunk_size}")
        return self._reader.read_chunks(column, episode_index, start, chunk_size)


def _names(columns: str | Sequence[str]) -> list[str]:
    return list(dict.fromkeys([columns] if isinstance(columns, str) else columns))


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


def _threads(num_threads: int | None) -> int:
    """Give the bound asked for, else the environment's; 0 is what the machine allows."""
    if num_threads is not None:
        whole = isinstance(num_threads, Integral) and not isinstance(num_threads, bool)
        if not (whole and 1 <= num_threads <= _MOST_THREADS):
            raise ValueError(f"num_threads must be 1 to {_MOST_THREADS}, got {num_threads!r}")
        return num_threads
    text = os.environ.get("VLAPREP_NUM_THREADS") or "0"
    if not text.isdecimal() or int(text) > _MOST_THREADS:
        raise ValueError(f"VLAPREP_NUM_THREADS must be 0 to {_MOST_THREADS}, got {text!r}")
    return int(text)


def thread_bound(num_threads: int | None) -> int:
    """Give the number of threads for work in Python, which gains little from many."""
    return min(_threads(num_threads) or len(os.sched_getaffinity(0)), 8)
