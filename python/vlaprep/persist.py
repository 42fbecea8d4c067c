"""Files and folders that appear whole or not at all.

A file is written under a temporary name beside its target, forced to disk, renamed over the target,
and the folder entry is forced to disk too. A folder is built aside and renamed in one step. Whoever
reads the published name, on this machine or after a power cut, finds the old content or the new.

Temporary names are hidden and unique to their writer: ``.{name}.{pid}-{random}.tmp``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "check_format_version",
    "publish_folder",
    "read_retrying",
    "remove_leftovers",
    "write_atomic",
]

_READ_ATTEMPTS = 6
_READ_PAUSE_S = 0.02
# Network file systems that cannot force a folder entry to disk say so with one of these.
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF})
_TARGET_IN_THE_WAY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})


def write_atomic(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that readers see the old file or the new one, never a part.

    The mode bits are those of any new file (``0o666`` less the umask). A symbolic link at ``path``
    is replaced; what it points to stays as it is.

    Parameters
    ----------
    path : pathlib.Path
        The file to write. Its folder must exist.
    data : bytes
        The whole content.

    Raises
    ------
    OSError
        The folder cannot be written or the disk is full. The old file is untouched and nothing is
        left beside it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "answer.txt"
    ...     write_atomic(path, b"42")
    ...     read_retrying(path)
    b'42'
    """
    temporary = _temporary_sibling(path)
    try:
        # 0o666 here, not tempfile's 0o600: colleagues who share the folder must be able to read.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def read_retrying(path: Path) -> bytes:
    """Read a file that others may be replacing at this moment.

    On a network file system a reader can hold the handle of a file that has just been replaced
    (ESTALE), or be told that a name which exists is absent. Both pass; they are tried a few times.

    Parameters
    ----------
    path : pathlib.Path
        The file to read.

    Returns
    -------
    bytes
        The whole content.

    Raises
    ------
    FileNotFoundError
        The file does not exist (at once, without a wait).
    OSError
        Any other failure, or one of the passing ones that did not pass.
    """
    for attempt in range(_READ_ATTEMPTS):
        try:
            return path.read_bytes()
        except OSError as error:
            passing = error.errno == errno.ESTALE or (
                error.errno == errno.ENOENT and os.path.lexists(path)
            )
            if not passing or attempt == _READ_ATTEMPTS - 1:
                raise
        time.sleep(_READ_PAUSE_S * 2**attempt)
    raise AssertionError("unreachable: the last attempt returns or raises")


def publish_folder(
    target: Path,
    build: Callable[[Path], None],
    *,
    is_complete: Callable[[Path], bool] | None = None,
) -> None:
    """Build a folder aside and publish it under its name in one step.

    What stands at ``target`` is replaced: the caller has looked and found it absent or broken.

    Parameters
    ----------
    target : pathlib.Path
        The folder to publish. Its parents are made where they are missing.
    build : callable
        Fills the empty folder it is given.
    is_complete : callable, optional
        Tells whether a folder is whole. A whole ``target`` that another process published during
        the build is kept, since readers may have it open, and ours is dropped.

    Raises
    ------
    OSError
        The parent folder cannot be written. Whatever ``build`` raises passes through. In both
        cases nothing is left behind and ``target`` is as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = _temporary_sibling(target)
    try:
        aside.mkdir()  # in here: an interrupt right behind it is to leave nothing, too
        build(aside)
        _sync_tree(aside)
        if is_complete is not None and is_complete(target):
            return
        _rename_over(aside, target)
        _sync_folder(target.parent)
    finally:
        _remove(aside)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files and folders that killed writers of ``path`` left beside it.

    Call it only while holding the lock that every writer of ``path`` takes: then no writer is
    alive, and whatever bears a temporary name is garbage.

    Parameters
    ----------
    path : pathlib.Path
        The published name; it need not exist.
    """
    # Two dots lead the temporary names of what is hidden itself, such as a failure marker.
    mine = (f".{path.name}.", f"..{path.name}.")
    for sibling in path.parent.iterdir():
        if sibling.name.startswith(mine) and sibling.name.endswith(".tmp"):
            _remove(sibling)


def check_format_version(
    found: object, *, supported: int, what: str, path: Path, error: type[Exception]
) -> int:
    """Refuse a file of a version this vlaprep does not know.

    Parameters
    ----------
    found : object
        The ``format_version`` that the file holds.
    supported : int
        The newest version this code reads; every version from 1 up to it is accepted.
    what : str
        What the file is, for the message; it begins the sentence.
    path : pathlib.Path
        The file, for the message.
    error : type of Exception
        The class to raise.

    Returns
    -------
    int
        The version.

    Raises
    ------
    Exception
        ``error``, when the version is newer than ``supported`` or is no version at all.

    Examples
    --------
    >>> from pathlib import Path
    >>> check_format_version(1, supported=1, what="report", path=Path("r.json"), error=ValueError)
    1
    """
    if type(found) is not int or found < 1:
        raise error(
            f"{what} {path}: format_version is {found!r}, not a positive integer; "
            "delete the file to have it made again"
        )
    if found > supported:
        raise error(
            f"{what} {path}: format_version {found} is newer than {supported}, the newest that "
            "this vlaprep reads; upgrade vlaprep, or delete the file to have it made again"
        )
    return found


def _temporary_sibling(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:12]}.tmp")


def _rename_over(aside: Path, target: Path) -> None:
    """Rename a folder to ``target``; a file or filled folder there is moved away and removed."""
    try:
        aside.rename(target)
    except OSError as error:
        if error.errno not in _TARGET_IN_THE_WAY:
            raise
        broken = _temporary_sibling(target)
        target.rename(broken)
        try:
            aside.rename(target)
        except OSError:
            broken.rename(target)
            raise
        _remove(broken)


def _remove(path: Path) -> None:
    """Remove a file or folder that is of no use to anybody; what resists may stay."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _sync_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            _sync(os.path.join(parent, name))  # noqa: PTH118 (os.walk speaks str)
        _sync_folder(parent)


def _sync_folder(folder: Path | str) -> None:
    try:
        _sync(folder)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def _sync(path: Path | str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
