"""Which windows of a dataset a tokenizer cannot encode exactly.

A tokenizer knows the quantised coefficients between its smallest and its largest one whose bytes
its vocabulary holds. Any other is moved or lost in encoding, and the chunk comes back as another
motion, or not at all.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field, replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.action_space import ActionSpace, column_width
from vlaprep.codec import ActionCodec
from vlaprep.errors import DatasetFormatError, NoChunksError, TokenizerFormatError
from vlaprep.fit_chunks import ChunkReader, RowBlocks
from vlaprep.fit_options import Draws
from vlaprep.fit_report import REPORT_NAME, read_report
from vlaprep.fit_sample import draw_sample, select_table
from vlaprep.fit_source import Selection
from vlaprep.normalization import Normalization
from vlaprep.sweep import Symbols, Windows

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from numpy.typing import NDArray

    from vlaprep.dataset import Dataset
    from vlaprep.fit_sample import Table


__all__ = ["Audit", "EpisodeAudit", "audit_tokenizer", "encodable_symbols"]

logger = logging.getLogger(__name__)

NORMALIZATIONS = ("auto", "stored", "sample", "none")
_CONFIG = "processor_config.json"


@dataclass(frozen=True)
class EpisodeAudit:
    """An episode with windows that cannot be encoded exactly.

    Parameters
    ----------
    episode_index : int
        Its id.
    windows : int
        Its windows, those that are not finite among them.
    unencodable : int
        How many of them cannot be encoded.
    first_start : int
        First frame of the first one.
    """

    episode_index: int
    windows: int
    unencodable: int
    first_start: int


@dataclass(frozen=True)
class Audit:
    """What a tokenizer can encode of a dataset.

    Parameters
    ----------
    tokenizer, dataset : str
        What was looked at.
    chunk_size, action_dim : int
        Shape of the windows.
    scale : float
        Quantisation steps per unit of a coefficient.
    min_token, max_token : int
        Smallest and largest coefficient that the tokenizer can encode.
    normalization : {"stored", "sample", "none", "given"}
        Where the normalisation comes from.
    episodes, episodes_too_short : int
        Episodes selected, and those without any window.
    windows, windows_skipped : int
        Windows of finite values, and those left out for NaN, infinity or null.
    unencodable : int
        Windows that hold a coefficient which the tokenizer cannot encode.
    missing : dict of int to tuple of int
        These coefficients, ascending, each with episode and first frame of the first window that
        holds it. Of those beyond ±65,536 only the lowest and the highest.
    by_episode : tuple of EpisodeAudit
        Episodes with such windows, in the order of the dataset.
    runs : int64 array, shape (N, 3)
        These windows, as runs: episode, first start, start behind the last.
    """

    tokenizer: str
    dataset: str
    chunk_size: int
    action_dim: int
    scale: float
    min_token: int
    max_token: int
    normalization: str
    episodes: int
    episodes_too_short: int
    windows: int
    windows_skipped: int
    unencodable: int
    missing: dict[int, tuple[int, int]]
    by_episode: tuple[EpisodeAudit, ...]
    runs: NDArray[np.int64] = field(repr=False, compare=False)

    @property
    def share(self) -> float:
        """Share of the windows that cannot be encoded exactly, in [0, 1]."""
        return self.unencodable / self.windows if self.windows else 0.0

    @property
    def ok(self) -> bool:
        """Whether every window is encoded exactly."""
        return not self.unencodable

    def to_dict(self) -> dict[str, Any]:
        """Everything but `runs` as JSON types."""
        fields = asdict(self)
        del fields["runs"]
        fields["missing"] = [
            {"coefficient": coefficient, "episode_index": episode, "start": start}
            for coefficient, (episode, start) in self.missing.items()
        ]
        fields["by_episode"] = [asdict(episode) for episode in self.by_episode]
        return {**fields, "share": self.share}


def encodable_symbols(folder: str | PathLike[str]) -> tuple[ActionCodec, Symbols]:
    """Load a saved tokenizer, and tell the coefficients that it encodes exactly.

    Those from its smallest to its largest one whose bytes are in the vocabulary; the published
    class saves no largest one and encodes whatever its vocabulary can spell.

    Raises
    ------
    TokenizerFormatError
        It cannot be loaded, or can encode nothing.
    """
    codec = ActionCodec.from_pretrained(Path(folder))
    spells = codec._engine.spells()
    if _config(Path(folder)).get("max_token") is not None and codec.max_token is not None:
        spells = spells[: codec.max_token - codec.min_token + 1]
    if not spells.any():
        raise TokenizerFormatError(f"the vocabulary of {folder} can spell no coefficient at all")
    return codec, Symbols(codec.min_token, spells)


def audit_tokenizer(
    tokenizer: str | PathLike[str],
    dataset: str | PathLike[str],
    *,
    chunk_size: int | None = None,
    action_key: str | None = None,
    episodes: Iterable[int] | None = None,
    exclude_episodes: Iterable[int] | None = None,
    normalization: str | Normalization = "auto",
    n_samples: int = 1024,
    seed: int = 42,
    revision: str | None = None,
    num_threads: int | None = None,
) -> Audit:
    """Find the windows of a dataset that a tokenizer cannot encode exactly.

    Looks at every window, one frame apart, so it reads all actions once; what is in memory does not
    grow with the dataset.

    Parameters
    ----------
    tokenizer : path-like or str
        Folder that vlaprep, LeRobot or the published FAST class saved, or its id on the Hub.
    dataset : path-like or str
        Folder of a LeRobot dataset, or its id on the Hub.
    chunk_size : int, optional
        Frames of a window. By default the tokenizer's own time horizon.
    action_key : str, optional
        Column of the actions. By default that of the fit, else ``"action"``.
    episodes, exclude_episodes : iterable of int, optional
        Episodes to look at, all by default, and episodes to leave out, which wins.
    normalization : {"auto", "stored", "sample", "none"} or Normalization
        How actions are normalised: as stored beside the tokenizer; by the statistics of a sample,
        as a fit does, in the stored convention if there is one; not at all. ``"auto"`` is as stored
        if it is, else by a sample. Dims, relative actions and tails are as stored in any case.
    n_samples, seed : int
        Size of such a sample, and seed of its draws.
    revision : str, optional
        Branch, tag or commit of the dataset on the Hub.
    num_threads : int, optional
        Bound on threads; by default VLAPREP_NUM_THREADS, else what the machine or container allows.
        It does not change the answer.

    Returns
    -------
    Audit

    Raises
    ------
    TokenizerFormatError
        The tokenizer cannot be loaded, or has no stored normalisation where that is asked for.
    DatasetNotFoundError, DatasetFormatError, EpisodeSelectionError
        The dataset is absent, cannot be read, or has no such column or episodes.
    NoChunksError
        There is no window to look at.
    ValueError
        No chunk size is known; or the actions have another width than the tokenizer was fitted to.

    Examples
    --------
    >>> import vlaprep
    >>> audit = vlaprep.audit_tokenizer(
    ...     "tests/golden/fast/arm7/processor", "datasets/pusht", chunk_size=50
    ... )  # doctest: +SKIP
    >>> audit.share  # doctest: +SKIP
    0.0
    """
    from vlaprep.dataset import open_dataset
    from vlaprep.hub import tokenizer_folder

    if isinstance(normalization, str) and normalization not in NORMALIZATIONS:
        names = ", ".join(NORMALIZATIONS)
        raise ValueError(f"normalization must be one of {names}, got {normalization!r}")
    selection = Selection.of(episodes, exclude_episodes)
    folder = tokenizer_folder(tokenizer)
    codec, known = encodable_symbols(folder)
    horizon = codec.time_horizon if chunk_size is None else index(chunk_size)
    if horizon is None:
        raise ValueError(f"{tokenizer} does not say its time horizon: pass chunk_size=")
    if horizon < 1:
        raise ValueError(f"chunk_size must be at least 1, got {horizon}")
    keep = selection.episodes
    opened = open_dataset(dataset, revision=revision, episodes=keep, num_threads=num_threads)
    label = str(dataset)
    stored, space, fitted = _stored(normalization, folder)
    if action_key is not None:
        space = replace(space, action_key=action_key)
    table = select_table(opened, selection, label, space.action_key)
    if len(table):
        _check_space(space, opened, f"dataset {label}", f"tokenizer {tokenizer}")
    reader = ChunkReader(opened, space, horizon)
    usable = table.usable(reader)
    if not len(usable):
        raise NoChunksError(
            f"there is no window of chunk_size={horizon}: the longest of {len(table)} episodes "
            f"has {max(table.length.tolist(), default=0)} frames (dataset {label})"
        )
    width = reader.read(usable.episode_index[:1], np.zeros(1, dtype=np.int64)).shape[2]
    if space.max_action_dim is None:  # what a codec has is then no padding
        fitted = codec.action_dim
    if fitted not in (None, width):
        raise ValueError(
            f"column {space.action_key!r} of dataset {label} has {width} dims, but tokenizer "
            f"{tokenizer} was fitted to {fitted}: pad or cut as in the fit, or fit anew"
        )
    draws = Draws(index(n_samples), horizon, index(seed), per="episode", replace=True, nan="skip")
    origin, norm = _normalization(normalization, stored, reader, table, draws, label)
    swept = Windows(reader, table.episode_index, table.length, num_threads).sweep(
        scale=codec.scale, known=known, normalization=norm
    )
    if not swept.windows:
        raise NoChunksError(
            f"all {swept.skipped} windows of chunk_size={horizon} in column {space.action_key!r} "
            f"of dataset {label} hold NaN, infinity or null"
        )
    ends = [known.first + place for place in np.flatnonzero(known.known)[[0, -1]].tolist()]
    return Audit(
        tokenizer=str(tokenizer),
        dataset=label,
        chunk_size=horizon,
        action_dim=width,
        scale=codec.scale,
        min_token=ends[0],
        max_token=ends[1],
        normalization=origin,
        episodes=len(table),
        episodes_too_short=len(table) - len(usable),
        windows=swept.windows,
        windows_skipped=swept.skipped,
        unencodable=swept.windows_outside,
        missing={symbol: (episode, start) for symbol, episode, start in swept.symbols.tolist()},
        by_episode=_by_episode(swept.outside, usable, 1 if space.tail == "clamp" else horizon),
        runs=swept.outside,
    )


def _stored(
    wanted: str | Normalization, folder: Path
) -> tuple[Normalization | None, ActionSpace, int | None]:
    """Read what the fit wrote, or a processor saved elsewhere since.

    Beside the normalisation this says what a chunk is, however it is to be scaled, and how many of
    its dims are none of padding.
    """
    plain = ActionSpace("action")
    if (folder / REPORT_NAME).exists():
        report = read_report(folder)
        told = report.get("actions")
        space = plain if told is None else ActionSpace.from_dict(told)
        return Normalization.from_report(report), space, report["draws"]["action_dim"]
    stored = _config(folder).get("normalization")
    if stored is not None:
        try:
            norm = Normalization.from_dict(stored)
        except (TokenizerFormatError, AttributeError) as error:  # AttributeError: it is no object
            raise TokenizerFormatError(f"cannot read {folder / _CONFIG}: {error}") from error
        relative = tuple(dim for dim, given in enumerate(norm.relative or ()) if given)
        state_key = "observation.state" if relative else None
        return norm, replace(plain, relative=relative, state_key=state_key), norm.action_dim
    if wanted == "stored":
        raise TokenizerFormatError(
            f"no normalization is stored in {folder}, neither in {REPORT_NAME} nor in {_CONFIG}; "
            "take that of a sample (normalization='sample'), or pass one"
        )
    return None, plain, None


def _check_space(space: ActionSpace, dataset: Dataset, where: str, tokenizer: str) -> None:
    """Refuse a dataset that lacks dims of the fit; tell of dims that have other names.

    Raises
    ------
    DatasetFormatError
        It does, or it has no state that they are relative to.
    """
    width = column_width(dataset, space.action_key)
    dims = range(width) if space.dims is None else space.dims
    for column, used in ((space.action_key, dims), (space.state_key, space.relative)):
        if column is None or not used:
            continue
        if column not in dataset.columns:
            raise DatasetFormatError(
                f"there is no column {column!r} in {where}, which relative actions of {tokenizer} "
                f"start from; it has: {', '.join(dataset.columns)}"
            )
        width = column_width(dataset, column)
        if max(used) >= width:
            raise DatasetFormatError(
                f"{tokenizer} was fitted to dim {max(used)} of column {column!r}, which has "
                f"{width} dims in {where}: look at another dataset, or fit anew"
            )
    names = dataset.feature_names(space.action_key)
    if names is None or space.names is None or max(dims) >= len(names):
        return
    here = [names[dim] for dim in dims]
    if here != list(space.names):
        logger.warning(
            "dims of column %r are called %s in %s, and were called %s in the fit of %s: they are "
            "compared by their places",
            space.action_key,
            ", ".join(here),
            where,
            ", ".join(space.names),
            tokenizer,
        )


def _normalization(
    wanted: str | Normalization,
    stored: Normalization | None,
    reader: ChunkReader,
    table: Table,
    draws: Draws,
    label: str,
) -> tuple[str, Normalization | None]:
    """Find the normalisation, and say where it comes from."""
    if isinstance(wanted, Normalization):
        return "given", wanted
    if wanted == "none":
        return wanted, None
    if stored is not None and wanted != "sample":
        return "stored", stored
    sample = draw_sample(reader, table, draws, label)
    rule = {} if stored is None else {"convention": stored.convention, "mode": stored.mode}
    return "sample", Normalization.fit_blocks(RowBlocks(sample.drawn_chunks), **rule)


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder.expanduser() / _CONFIG).read_text("utf-8"))
    return config


def _by_episode(runs: NDArray[np.int64], table: Table, shortest: int) -> tuple[EpisodeAudit, ...]:
    """Sum up runs, which are in the order of the dataset, by episode."""
    first = np.flatnonzero(np.r_[True, np.diff(runs[:, 0]) != 0][: len(runs)])
    if not len(first):
        return ()
    counts = np.add.reduceat(runs[:, 2] - runs[:, 1], first).tolist()
    ids, windows_of = table.episode_index.tolist(), (table.length - shortest + 1).tolist()
    windows = dict(zip(ids, windows_of, strict=True))
    return tuple(
        EpisodeAudit(episode, windows[episode], count, start)
        for (episode, start, _), count in zip(runs[first].tolist(), counts, strict=True)
    )
