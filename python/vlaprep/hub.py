"""Fetch from the Hub what a job needs, at one commit, and nothing more.

A revision is resolved to its commit once; every later request names that commit. Of a dataset only
``meta/`` and the Parquet files below ``data/`` are asked for, never videos or images. Whatever is
handed out was looked for on disk first: a cache with holes is an error that lists them.
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from vlaprep._transfer import Repo, Snapshot, is_commit, shortened
from vlaprep.errors import DatasetFormatError, DatasetNotFoundError, TokenizerFormatError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "download_dataset",
    "download_tokenizer",
    "is_repo_id",
    "resolve_revision",
    "tokenizer_folder",
]

logger = logging.getLogger(__name__)

_INFO = "meta/info.json"
_V2_EPISODES, _V2_TASKS = "meta/episodes.jsonl", "meta/tasks.jsonl"
_V3_EPISODES, _V3_TASKS = "meta/episodes", "meta/tasks.parquet"
_V2_DATA_PATH = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
_V3_DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_V3_POINTERS = ("data/chunk_index", "data/file_index")

_NAME = r"(?!\S*(?:--|\.\.))[A-Za-z0-9_](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_REPO_ID = re.compile(f"{_NAME}/{_NAME}", re.ASCII)


def is_repo_id(text: str) -> bool:
    """Tell whether ``text`` has the form of a Hub id, ``organisation/name``.

    Nothing is asked of the Hub or the disk. A relative path of two parts has that form too, so look
    for a folder of that name first.

    Examples
    --------
    >>> [is_repo_id(text) for text in ("lerobot/pusht", "pusht", "./data/pusht", "/data/pusht")]
    [True, False, False, False]
    """
    return _REPO_ID.fullmatch(text) is not None


def resolve_revision(
    repo_id: str,
    revision: str | None = None,
    *,
    repo_type: str = "dataset",
    token: str | bool | None = None,
) -> str:
    """Give the commit that a branch, tag or commit name stands for now.

    The answer is noted in the Hub cache; when the Hub is switched off (``HF_HUB_OFFLINE=1``) or out
    of reach, the commit noted last is given instead.

    Parameters
    ----------
    repo_id : str
        ``organisation/name``.
    revision : str, optional
        Branch, tag or commit; the main branch by default. A full commit hash comes back as it is,
        without a request.
    repo_type : {"dataset", "model"}
        What kind of repository this is.
    token : str or bool, optional
        Access token; by default the one `huggingface_hub` finds (``HF_TOKEN``, ``hf auth login``).

    Returns
    -------
    str
        40 hexadecimal digits.

    Raises
    ------
    DatasetNotFoundError, TokenizerNotFoundError
        The repository, of a dataset or a model, or the revision is absent, private or gated, or the
        Hub cannot be reached and the cache does not know the revision.

    Examples
    --------
    >>> resolve_revision("lerobot/pusht", "0123456789abcdef0123456789abcdef01234567")
    '0123456789abcdef0123456789abcdef01234567'
    """
    if revision is not None and is_commit(revision):
        return revision
    return Repo(repo_id, repo_type, token).resolve(revision)[0]


def download_dataset(
    repo_id: str,
    *,
    revision: str | None = None,
    root: str | os.PathLike[str] | None = None,
    episodes: Iterable[int] | None = None,
    token: str | bool | None = None,
) -> tuple[Path, str]:
    """Bring ``meta/`` and the needed data files of a LeRobot dataset to this machine.

    Parameters
    ----------
    repo_id : str
        ``organisation/name`` of the dataset.
    revision : str, optional
        Branch, tag or commit; the main branch by default.
    root : path-like, optional
        Folder to put the files into; by default the shared cache of `huggingface_hub`.
    episodes : iterable of int, optional
        Fetch only the data files that the dataset's metadata names for these episodes. Where it
        does not name an existing file for each of them, all data files are fetched. Published
        metadata is wrong in places: if the rows then lack an episode, call again without this.
    token : str or bool, optional
        Access token; by default the one `huggingface_hub` finds (``HF_TOKEN``, ``hf auth login``).

    Returns
    -------
    root : pathlib.Path
        Folder that holds ``meta/`` and ``data/``.
    commit : str
        Commit that the files belong to.

    Raises
    ------
    DatasetNotFoundError
        The repository or revision is absent, private or gated, is no LeRobot dataset, the Hub
        cannot be reached or keeps refusing, or the cache is incomplete (the message lists what is
        missing) and the Hub is switched off.
    DatasetFormatError
        Metadata that is needed to choose files cannot be read, or ``root`` holds data files of
        another commit.

    Examples
    --------
    >>> root, commit = download_dataset("lerobot/pusht", episodes=[0, 1])  # doctest: +SKIP
    """
    chosen = None if episodes is None else tuple(int(episode) for episode in episodes)
    snapshot = Snapshot.at(Repo(repo_id, "dataset", token), revision, root)
    names = snapshot.listing(_dataset_needs)
    if names is None:
        snapshot.require(*_holes_by_metadata(snapshot, chosen))
    elif _INFO not in names:
        raise DatasetNotFoundError(
            f"{snapshot} is no LeRobot dataset: it has no {_INFO}. Check the name and the revision"
        )
    elif chosen is None:
        snapshot.fetch(names)
    else:
        data = [name for name in names if name.startswith("data/")]
        snapshot.fetch([name for name in names if not name.startswith("data/")])
        snapshot.fetch(_data_of_episodes(snapshot, data, chosen))
    if root is not None and names is not None:
        _refuse_strangers(snapshot, names)
    return snapshot.folder, snapshot.commit


def download_tokenizer(
    repo_id: str, *, revision: str | None = None, token: str | bool | None = None
) -> tuple[Path, str]:
    """Bring the tokenizer and processor files of a model repository to this machine.

    Only ``.json``, ``.py`` and ``.txt`` files are asked for, never weights. All are of one commit,
    so what is read from the folder, such as a codec and its normalisation, belongs together.
    Arguments and results are those of `download_dataset`.

    Raises
    ------
    TokenizerNotFoundError
        Where `download_dataset` raises a DatasetNotFoundError.

    Examples
    --------
    >>> import vlaprep
    >>> folder, commit = download_tokenizer("org/name")  # doctest: +SKIP
    >>> codec = vlaprep.ActionCodec.from_pretrained(folder)  # doctest: +SKIP
    >>> normalization = vlaprep.Normalization.from_pretrained(folder)  # doctest: +SKIP
    """
    snapshot = Snapshot.at(Repo(repo_id, "model", token), revision, None)
    names = snapshot.listing(_tokenizer_needs)
    if names is None:
        held = [path.name for path in snapshot.folder.glob("*.json")]
        snapshot.require([] if held else ["tokenizer.json"])
    else:
        snapshot.fetch(names)
    return snapshot.folder, snapshot.commit


def tokenizer_folder(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    token: str | bool | None = None,
) -> Path:
    """Find the folder of a tokenizer: `source` itself, or a snapshot of the repository it names.

    Raises
    ------
    TokenizerNotFoundError
        As `download_tokenizer`.
    TokenizerFormatError
        `source` is neither a folder nor has it the form of a Hub id.
    ValueError
        A revision of a local folder.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise ValueError(
                f"revision={revision!r} is of no use with the local folder {folder}: leave it out"
            )
        return folder
    if isinstance(source, str) and is_repo_id(source) and not folder.exists():
        return download_tokenizer(source, revision=revision, token=token)[0]
    raise TokenizerFormatError(f"{source} is neither a folder nor a Hub id like 'org/name'")


# --- what is needed ------------------------------------------------------------------------------


def _dataset_needs(name: str) -> bool:
    path = PurePosixPath(name)
    if any(part.startswith(".") for part in path.parts):
        return False
    if path.parts[0] == "meta":
        return path.suffix in {".json", ".jsonl", ".parquet"}
    return path.parts[0] == "data" and path.suffix == ".parquet"


def _tokenizer_needs(name: str) -> bool:
    return PurePosixPath(name).suffix in {".json", ".py", ".txt"}


def _data_of_episodes(
    snapshot: Snapshot, data: Sequence[str], episodes: tuple[int, ...]
) -> list[str]:
    by_episode, _ = _files_by_metadata(snapshot.folder)
    known = set(data)
    unknown = [episode for episode in episodes if by_episode.get(episode) not in known]
    if not unknown:
        return sorted(known.intersection(by_episode[episode] for episode in episodes))
    logger.warning(
        "%s: metadata names no data file for %s; all data files are fetched",
        snapshot,
        shortened([f"episode {e}" for e in unknown]),
    )
    return list(data)


def _holes_by_metadata(
    snapshot: Snapshot, episodes: tuple[int, ...] | None
) -> tuple[list[str], str]:
    """Files that a snapshot of unknown extent lacks, judged by its own metadata.

    Metadata may name files that never were, so an absent one counts only while rows are missing.
    """
    is_v2 = snapshot.holds(_V2_EPISODES)
    meta = [_INFO, _V2_EPISODES, _V2_TASKS] if is_v2 else [_INFO, _V3_TASKS]
    holes = [name for name in meta if not snapshot.holds(name)]
    if not is_v2 and not any(_parquet_below(snapshot.folder / _V3_EPISODES)):
        holes.append(f"{_V3_EPISODES}/*.parquet")
    if holes:
        return holes, ""
    by_episode, frames = _files_by_metadata(snapshot.folder)
    named = {by_episode.get(e) for e in (by_episode if episodes is None else episodes)}
    holes = sorted(name for name in named if name is not None and not snapshot.holds(name))
    if not holes and None not in named:
        return [], ""
    rows = sum(_rows(path) for path in _parquet_below(snapshot.folder / "data"))
    if rows >= frames:
        return [], ""
    return holes or ["data/*.parquet"], f"{rows} of {frames} frames are there"


def _files_by_metadata(folder: Path) -> tuple[dict[int, str | None], int]:
    """Give the data file of each episode, None where metadata does not tell, and all frames."""
    info = _parsed(folder / _INFO, (folder / _INFO).read_bytes())
    jsonl = folder / _V2_EPISODES
    files: dict[int, str | None] = {}
    fields: dict[str, int | None]
    frames = 0
    for row in _v2_rows(jsonl) if jsonl.is_file() else _v3_rows(folder / _V3_EPISODES):
        episode = _whole(row.get("episode_index"))
        if episode is None:
            continue
        frames += _whole(row.get("length")) or 0
        if jsonl.is_file():
            chunk = episode // (_whole(info.get("chunks_size")) or 1000)
            template = info.get("data_path") or _V2_DATA_PATH
            fields = {"episode_chunk": chunk, "episode_index": episode}
        else:
            template = info.get("data_path") or _V3_DATA_PATH
            fields = {p.removeprefix("data/"): _whole(row.get(p)) for p in _V3_POINTERS}
        files[episode] = _filled(template, fields)
    return files, frames


def _v2_rows(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            yield _parsed(f"{path}, line {number}", line)


def _v3_rows(folder: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    wanted = ("episode_index", "length", *_V3_POINTERS)
    for path in _parquet_below(folder):
        with _readable(path):
            file = pq.ParquetFile(path)
            yield from file.read([c for c in wanted if c in file.schema_arrow.names]).to_pylist()


def _rows(path: Path) -> int:
    import pyarrow.parquet as pq

    with _readable(path):
        return int(pq.read_metadata(path).num_rows)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        raise DatasetFormatError(
            f"no readable Parquet file: {path} ({error}). Delete it and fetch it again"
        ) from error


def _parsed(where: Path | str, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:  # not JSON, or not UTF-8
        raise DatasetFormatError(f"broken JSON: {where} ({error})") from error
    if not isinstance(value, dict):
        raise DatasetFormatError(f"expected a JSON object: {where}")
    return value


def _whole(value: Any) -> int | None:
    """Integer that a loose file may spell 3, 3.0, null or NaN."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def _filled(template: str, fields: dict[str, int | None]) -> str | None:
    if None in fields.values():
        return None
    try:
        return template.format(**fields)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None  # a foreign template: the caller then takes all data files


def _parquet_below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.parquet")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.is_file():
            yield path


def _refuse_strangers(snapshot: Snapshot, names: Sequence[str]) -> None:
    """Refuse a target folder whose data would mix two commits."""
    known = set(names)
    found = (
        p.relative_to(snapshot.folder).as_posix() for p in _parquet_below(snapshot.folder / "data")
    )
    if strangers := [name for name in found if name not in known]:
        raise DatasetFormatError(
            f"{snapshot.folder} holds data files that {snapshot} does not have: "
            f"{shortened(strangers)}. Choose an empty folder, or remove them"
        )
