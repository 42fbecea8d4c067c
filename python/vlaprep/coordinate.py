"""One process computes, the others wait: file locks, and one build for all.

A lock is ``flock`` on a hidden sidecar file. The operating system releases it when its holder
dies, however it dies, so a killed leader costs its followers one poll interval and nothing else.
Correctness never depends on ranks: whoever gets the lock first computes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import socket
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vlaprep.errors import FitFailedElsewhereError, WaitTimeoutError
from vlaprep.persist import (
    check_format_version,
    publish_folder,
    read_retrying,
    remove_leftovers,
    write_atomic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["compute_once", "file_lock"]

logger = logging.getLogger(__name__)

_MARKER_VERSION = 1
_BUSY = frozenset({errno.EAGAIN, errno.EACCES})
# What file systems without locking answer: no such call, not supported (NFS without a lock
# daemon, FUSE, some Lustre mounts), a descriptor that cannot be locked, no locks available.
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EBADF, errno.ENOLCK})
# A link at the sidecar's place would have us write over what it points to.
_LOCK_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_UNSUPPORTED_WARNED: set[str] = set()
# What a file system says of a folder that this process may not write to.
_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


@contextmanager
def file_lock(path: Path, timeout_s: float, poll_s: float = 0.05) -> Iterator[bool]:
    """Hold the lock that guards ``path``, across processes, threads and (where NFS locks) nodes.

    The lock lives on the sidecar ``.{name}.lock`` in the same folder, which is removed on release;
    one that a killed process left is harmless. It is not re-entrant.

    Parameters
    ----------
    path : pathlib.Path
        What the lock guards; it need not exist, its folder must.
    timeout_s : float
        How long to wait, in seconds.
    poll_s : float, default 0.05
        How often to look, in seconds.

    Yields
    ------
    bool
        True while the lock is held. False where the file system has no locks: the block then runs
        unguarded, and one warning per folder and process says so.

    Raises
    ------
    WaitTimeoutError
        Another process held the lock all the time.
    OSError
        The sidecar cannot be made: the folder is absent or read-only.
    """
    sidecar = path.with_name(f".{path.name}.lock")
    descriptor = _acquire(sidecar, timeout_s, poll_s)
    if descriptor is None:
        yield False
        return
    try:
        _describe_holder(descriptor)
        yield True
    finally:
        _release(descriptor, sidecar)


def compute_once(
    target: Path,
    *,
    is_complete: Callable[[Path], bool],
    build: Callable[[Path], None],
    wait_timeout_s: float,
    poll_s: float = 0.05,
) -> Path:
    """Return ``target``, built by one of all the processes that ask for it at the same time.

    Look, take the lock, look again, build aside, publish by rename. Processes on nodes that share
    no disk each build their own.

    A builder that raises leaves the marker ``.{name}.failed.json``. Those who were waiting at that
    moment take the lock in turn, find a marker that was not there when they came, and raise; a
    process that comes later removes the marker and tries afresh. A builder that is killed or
    interrupted (Ctrl-C) leaves no marker: the next in line builds.

    Parameters
    ----------
    target : pathlib.Path
        The folder to have. Its parents are made where they are missing.
    is_complete : callable
        Tells whether the folder at a path is whole; it may be absent or broken.
    build : callable
        Fills the empty folder it is given.
    wait_timeout_s : float
        How long to wait for another builder, in seconds.
    poll_s : float, default 0.05
        How often to look whether it is done, in seconds.

    Returns
    -------
    pathlib.Path
        ``target``. A whole one is returned at once, without a lock, from read-only disks too.

    Raises
    ------
    FitFailedElsewhereError
        Another process was building and failed; its message is repeated.
    WaitTimeoutError
        Another process was still building after ``wait_timeout_s``.
    OSError
        The folder cannot be written: it is read-only, and ``target`` is not whole. Whatever
        ``build`` raises passes through.
    """
    if is_complete(target):
        return target
    marker = target.with_name(f".{target.name}.failed.json")
    # Marks are told apart by their content (each holds a random id), not by time: clocks of
    # nodes that share a disk differ.
    old_failure = _read_or_none(marker)
    with contextlib.ExitStack() as stack:
        with _told_when_read_only(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            locked = stack.enter_context(file_lock(target, wait_timeout_s, poll_s))
        if is_complete(target):
            return target
        failure = _read_or_none(marker)
        if failure is not None and failure != old_failure:
            raise FitFailedElsewhereError(_tell_failure(failure, target, marker))
        # One that another user left may stay: only marks that are new say anything.
        with contextlib.suppress(PermissionError):
            marker.unlink(missing_ok=True)
        if locked:
            remove_leftovers(target)
        try:
            with _told_when_read_only(target):
                publish_folder(target, build, is_complete=is_complete)
        except Exception as error:  # of any kind: it goes on to the caller, the marker to the rest
            _leave_marker(marker, error)
            raise
    return target


@contextmanager
def _told_when_read_only(target: Path) -> Iterator[None]:
    """Say what a refusal to write beside ``target`` means, and the way out."""
    try:
        yield
    except OSError as error:
        folder = target.parent
        refused = Path(error.filename) if isinstance(error.filename, str) else None
        ours = refused is not None and (refused.parent == folder or refused in folder.parents)
        if error.errno not in _READ_ONLY or not (ours or refused == folder):
            raise  # not about this folder, but about something that is read or built
        raise type(error)(
            error.errno,
            f"cannot write to {folder} ({error.strerror}), and it holds no whole {target.name}; "
            "pass a folder that can be written, or have this built there once by someone who may "
            "write to it: a whole entry is then found without any writing",
        ) from error


def _acquire(sidecar: Path, timeout_s: float, poll_s: float) -> int | None:
    """Return a locked descriptor of the sidecar, or None where the file system has no locks."""
    deadline = time.monotonic() + timeout_s
    told = False
    while True:
        descriptor = _open_sidecar(sidecar)
        try:
            if _try_lock(descriptor) and _is_live(descriptor, sidecar):
                return descriptor
            holder = _holder(descriptor)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError) and error.errno in _UNSUPPORTED:
                _warn_unsupported(sidecar, error)
                return None
            raise
        os.close(descriptor)
        if time.monotonic() >= deadline:
            raise WaitTimeoutError(
                f"waited {timeout_s:g} s for the lock {sidecar}, held by {holder}; allow more "
                "time, or end that process: its lock ends with it"
            )
        if not told:
            logger.info("waiting for the lock %s, held by %s", sidecar, holder)
            told = True
        time.sleep(min(poll_s, max(0.0, deadline - time.monotonic())))


def _release(descriptor: int, sidecar: Path) -> None:
    try:
        # Removed while still locked: whoever opened it meanwhile sees that it is gone (_is_live).
        with contextlib.suppress(OSError):
            sidecar.unlink()
    finally:
        _unlock(descriptor)


def _unlock(descriptor: int) -> None:
    try:
        # Unlocked by hand, since a forked child may hold a copy of the descriptor open.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _open_sidecar(sidecar: Path) -> int:
    # Read and write, since NFS locks only what is open for writing.
    try:
        return os.open(sidecar, os.O_RDWR | os.O_CREAT | _LOCK_FLAGS, 0o666)
    except PermissionError:
        # A colleague's lock file that we may not write can still be locked on local disks.
        if not sidecar.exists():
            raise
        return os.open(sidecar, os.O_RDONLY | _LOCK_FLAGS)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _BUSY:
            raise
        return False
    return True


def _is_live(descriptor: int, sidecar: Path) -> bool:
    """Whether the locked file still is the one at its path: its last holder removes it."""
    try:
        ours, named = os.fstat(descriptor), sidecar.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        return False
    return ours.st_nlink > 0 and os.path.samestat(ours, named)


def _describe_holder(descriptor: int) -> None:
    """Write into the lock file who holds it; only messages read it, so a full disk is no matter."""
    text = f"process {os.getpid()} on {socket.gethostname()}"
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 500, 0).decode(errors="replace") or "a process that just took it"


def _warn_unsupported(sidecar: Path, error: OSError) -> None:
    with contextlib.suppress(OSError):
        sidecar.unlink()
    folder = str(sidecar.parent)
    if folder not in _UNSUPPORTED_WARNED:
        _UNSUPPORTED_WARNED.add(folder)
        logger.warning(
            "the file system of %s has no file locks (%s); going on without: processes that work "
            "here at the same time may repeat each other's work or drop rows that another adds. "
            "Let one process go first, or use a disk with locks",
            folder,
            error,
        )


def _read_or_none(path: Path) -> bytes | None:
    try:
        return read_retrying(path)
    except (FileNotFoundError, PermissionError):
        return None


def _leave_marker(marker: Path, error: Exception) -> None:
    content = {
        "format_version": _MARKER_VERSION,
        "id": uuid.uuid4().hex,
        "type": type(error).__name__,
        "message": str(error),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    try:
        write_atomic(marker, json.dumps(content, indent=2).encode())
    except OSError as trouble:
        # The error itself is on its way to the caller; others will run into it themselves.
        logger.warning("cannot leave the failure marker %s: %s", marker, trouble)


def _tell_failure(failure: bytes, target: Path, marker: Path) -> str:
    try:
        content = json.loads(failure)
        found = content["format_version"]
    except (ValueError, TypeError, KeyError):
        return (
            f"another process failed to build {target}; its failure marker {marker} cannot be "
            "read; look at that process's output, then try again"
        )
    check_format_version(
        found,
        supported=_MARKER_VERSION,
        what="another process failed; its failure marker",
        path=marker,
        error=FitFailedElsewhereError,
    )
    return (
        f"{content.get('type')}: {content.get('message')} (in process {content.get('pid')} on "
        f"{content.get('host')} at {content.get('time')}, which was building {target} for all; "
        f"recorded in {marker}); mend the cause and try again"
    )
