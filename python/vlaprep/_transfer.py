"""One commit of one Hub repository: resolve it, list it, fetch files of it, say what went wrong.

`huggingface_hub` does the transfers, the cache and the locks between processes. Added here, for all
its versions from 0.34 on: waits that the Hub asks for (``Retry-After``), repeats after dropped
connections, a look on disk after each download (offline, 0.36 hands out snapshots with holes in
silence), the file list of a commit kept beside its cached snapshot so that an offline job knows
what it needs, and errors that say what to do. `vlaprep.hub` decides which files a job needs.
"""

from __future__ import annotations

import json
import logging
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from vlaprep.errors import DatasetNotFoundError, TokenizerNotFoundError
from vlaprep.persist import write_atomic
from vlaprep.progress import progress

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "Repo",
    "Snapshot",
    "hub_errors",
    "is_any",
    "is_commit",
    "is_local",
    "persevering",
    "response_of",
    "shortened",
    "without_library_bars",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LISTING_VERSION = 1  # raised whenever a caller's idea of what is needed changes
_RATE_LIMIT_RESET = re.compile(r";\s*t\s*=\s*(\d+)")

_WORKERS = 8
_SHOWN = 10
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_BUSY_ATTEMPTS = 8
_DROPPED_ATTEMPTS = 3
# The Hub counts requests in windows of five minutes; whoever asks for more is not just busy.
_LONGEST_WAIT_S = 330


def is_commit(revision: str | None) -> bool:
    """Tell whether a revision is a full commit hash, which stands for itself for ever."""
    return re.fullmatch(r"[0-9a-f]{40}", revision or "") is not None


@dataclass(frozen=True)
class Repo:
    """A repository and the token that opens it.

    ``token`` None leaves the choice to `huggingface_hub` (``HF_TOKEN``, ``hf auth login``).
    """

    repo_id: str
    repo_type: str
    token: str | bool | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.repo_type} {self.repo_id}"

    @property
    def not_found(self) -> type[DatasetNotFoundError | TokenizerNotFoundError]:
        """Class of error for a repository of this type that cannot be had."""
        return DatasetNotFoundError if self.repo_type == "dataset" else TokenizerNotFoundError

    @property
    def storage(self) -> Path:
        """Folder of this repository in the Hub cache."""
        from huggingface_hub import constants
        from huggingface_hub.file_download import repo_folder_name

        name = repo_folder_name(repo_id=self.repo_id, repo_type=self.repo_type)
        return Path(constants.HF_HUB_CACHE) / str(name)

    def api(self) -> Any:
        """Client that sends the token with every call."""
        from huggingface_hub import HfApi

        return HfApi(token=self.token, library_name="vlaprep")

    def listing_note(self, commit: str) -> Path:
        """Where vlaprep keeps the needed files of a commit; the Hub's own tools pass it over."""
        return self.storage / "vlaprep" / f"{commit}.json"

    def resolve(self, revision: str | None) -> tuple[str, bool]:
        """Commit of a revision, and whether the Hub can be asked for more.

        Without an answer the commit is the one that the cache notes for the revision.
        """
        from huggingface_hub import constants

        revision = revision or "main"
        note = self.storage / "refs" / revision
        if is_commit(revision) and self.listing_note(revision).is_file():
            return revision, not constants.HF_HUB_OFFLINE
        try:
            info = persevering(
                lambda: self.api().repo_info(
                    self.repo_id, repo_type=self.repo_type, revision=revision, expand=["sha"]
                )
            )
        except hub_errors() as error:
            if not _is_outage(error):
                _raise_explained(error, self, f"revision {revision!r}")
            if is_commit(revision):
                return revision, False
            if not note.is_file():
                _raise_explained(error, self, f"revision {revision!r} is not in {self.storage}")
            commit = note.read_text(encoding="utf-8").strip()
            level = logging.INFO if constants.HF_HUB_OFFLINE else logging.WARNING
            logger.log(level, "%s: no answer from the Hub; using commit %s", self, commit)
            return commit, False
        if not is_commit(revision):
            _note(note, str(info.sha).encode())
        return str(info.sha), True


@dataclass(frozen=True)
class Snapshot:
    """The files of one commit, in the Hub cache or in a folder of the caller's (``is_own``)."""

    repo: Repo
    commit: str
    folder: Path
    is_own: bool
    is_online: bool

    @classmethod
    def at(
        cls, repo: Repo, revision: str | None, root: str | os.PathLike[str] | None = None
    ) -> Snapshot:
        """Pin `revision` to the commit it names now."""
        commit, is_online = repo.resolve(revision)
        own = None if root is None else Path(root).expanduser()
        folder = own or repo.storage / "snapshots" / commit
        return cls(repo, commit, folder, is_own=own is not None, is_online=is_online)

    def __str__(self) -> str:
        return f"{self.repo} at {self.commit[:12]}"

    def listing(self, is_needed: Callable[[str], bool]) -> list[str] | None:
        """Needed files of the commit, from the note of an earlier call or from the Hub.

        None when there is neither: offline, and never listed by vlaprep.
        """
        note = self.repo.listing_note(self.commit)
        if (known := _noted_listing(note)) is not None:
            return known
        if not self.is_online:
            return None
        try:
            names = persevering(self._list_now)
        except hub_errors() as error:
            if _is_outage(error):
                return None
            _raise_explained(error, self.repo, f"commit {self.commit}")
        names = sorted(name for name in names if is_needed(name))
        content = {"format_version": _LISTING_VERSION, "files": names}
        _note(note, json.dumps(content).encode())
        return names

    def _list_now(self) -> list[str]:
        from huggingface_hub.hf_api import RepoFile

        entries = self.repo.api().list_repo_tree(
            self.repo.repo_id, recursive=True, revision=self.commit, repo_type=self.repo.repo_type
        )
        return [entry.path for entry in entries if isinstance(entry, RepoFile)]

    def holds(self, name: str) -> bool:
        """Tell whether a file is there, and not known to be of another commit."""
        if not (self.folder / name).is_file():
            return False
        if not self.is_own:
            return True
        # huggingface_hub's own note beside a file in a caller's folder: commit, etag, time.
        note = self.folder / ".cache" / "huggingface" / "download" / f"{name}.metadata"
        try:
            return note.read_text(encoding="utf-8").split("\n", 1)[0] == self.commit
        except FileNotFoundError:
            return True

    def fetch(self, names: Sequence[str]) -> None:
        """Have these files in the folder, or raise an error that lists those that are not."""
        if not self.is_online:
            self.require([name for name in names if not self.holds(name)])
            return
        # A caller's folder may hold files of no known origin: huggingface_hub compares those.
        wanted = [name for name in names if self.is_own or not self.holds(name)]
        try:
            self._fetch_all(wanted)
        except hub_errors() as error:
            missing = [name for name in names if not self.holds(name)]
            what = f"{len(missing)} files are missing in {self.folder}: {shortened(missing)}"
            _raise_explained(error, self.repo, what)

    def require(self, missing: Sequence[str], detail: str = "") -> None:
        """Raise the error of an incomplete cache if anything is missing."""
        if not missing:
            return
        detail = f" ({detail})" if detail else ""
        or_old = " or of another commit" if self.is_own else ""
        raise self.repo.not_found(
            f"{self} is incomplete in {self.folder}{detail} and the Hub is switched off or out of "
            f"reach; missing{or_old}: {shortened(missing)}. "
            "Fetch it once with network (without HF_HUB_OFFLINE), then run again"
        )

    def _fetch_all(self, names: Sequence[str]) -> None:
        if not names:
            return
        with (
            without_library_bars() as are_off,
            progress(len(names), str(self), unit="file", hidden=are_off) as advance,
            ThreadPoolExecutor(_WORKERS) as workers,
        ):
            for _ in workers.map(self._fetch_one, names):
                advance("")

    def _fetch_one(self, name: str) -> None:
        from huggingface_hub import hf_hub_download

        def download() -> None:
            hf_hub_download(
                self.repo.repo_id,
                name,
                repo_type=self.repo.repo_type,
                revision=self.commit,
                local_dir=self.folder if self.is_own else None,
                token=self.repo.token,
                library_name="vlaprep",
            )
            if not self.holds(name):
                # With local_dir, huggingface_hub keeps an old file when the Hub does not answer.
                raise ConnectionError(f"{name} of {self.commit} did not arrive")

        persevering(download)


def shortened(names: Sequence[str]) -> str:
    """Name the first few, and say how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _noted_listing(note: Path) -> list[str] | None:
    """Read a note of our own; one that cannot be read, or is newer than this code, is made anew."""
    try:
        content = json.loads(note.read_bytes())
    except (OSError, ValueError):
        return None
    if content.get("format_version") != _LISTING_VERSION:
        return None
    return [str(name) for name in content["files"]]


def _note(path: Path, content: bytes) -> None:
    """Write into the Hub cache if that can be written; everything also works without."""
    try:
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
    except OSError as error:
        logger.info("not noted for offline use: %s (%s)", path, error)


@contextmanager
def without_library_bars() -> Iterator[bool]:
    """One bar over all files instead of one a file; gives whether the user wants none at all."""
    from huggingface_hub import constants, utils

    are_off = bool(utils.are_progress_bars_disabled())
    if are_off or constants.HF_HUB_DISABLE_PROGRESS_BARS is not None:
        yield are_off
        return
    utils.disable_progress_bars()
    try:
        yield False
    finally:
        utils.enable_progress_bars()


# --- what can go wrong ---------------------------------------------------------------------------


def hub_errors() -> tuple[type[BaseException], ...]:
    """Give what a call to the Hub may raise, whatever HTTP client and proxies lie between."""
    from huggingface_hub.errors import HfHubHTTPError

    return (OSError, json.JSONDecodeError, *HfHubHTTPError.__bases__)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def response_of(error: BaseException) -> Any:
    """HTTP response that lies behind an error; None when no answer came."""
    answers = (getattr(cause, "response", None) for cause in _causes(error))
    return next((answer for answer in answers if answer is not None), None)


def is_local(error: BaseException) -> bool:
    """Tell a full disk or a folder without rights from trouble with the Hub."""
    from_network = isinstance(error, (ConnectionError, TimeoutError))
    return isinstance(error, OSError) and error.errno is not None and not from_network


def is_any(error: BaseException, kind: type[BaseException]) -> bool:
    """Tell whether an error, or one that it was raised from, is of a kind."""
    return any(isinstance(cause, kind) for cause in _causes(error))


def _is_outage(error: BaseException) -> bool:
    """No answer, or none for now: the cache may answer instead."""
    response = response_of(error)
    return not is_local(error) if response is None else response.status_code in _BUSY


def persevering(call: Callable[[], T]) -> T:
    """Call again while the Hub is busy or the connection drops, a bounded number of times."""
    for attempt in range(_BUSY_ATTEMPTS):
        try:
            return call()
        except hub_errors() as error:  # noqa: PERF203 - the loop is about the error
            wait_s = _wait_s(error, attempt)
            if wait_s is None:
                raise
            logger.info("trying again in %g s: %s", wait_s, str(error).split("\n", 1)[0])
            time.sleep(wait_s)
    return call()


def _wait_s(error: BaseException, attempt: int) -> float | None:
    """Give the seconds before the next attempt; None where another attempt is no use."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    backoff_s = min(0.5 * 2.0**attempt, 60.0)
    response = response_of(error)
    if response is None:
        is_final = is_local(error) or is_any(error, OfflineModeIsEnabled)
        return None if is_final or attempt + 1 >= _DROPPED_ATTEMPTS else backoff_s
    if response.status_code not in _BUSY:
        return None
    asked = response.headers.get("Retry-After", "")
    if not asked.isdigit():  # the Hub's other way to say it: RateLimit: "api";r=0;t=55
        found = _RATE_LIMIT_RESET.search(response.headers.get("RateLimit", ""))
        asked = found[1] if found else ""
    if not asked:
        return backoff_s
    return float(asked) if int(asked) <= _LONGEST_WAIT_S else None


def _raise_explained(error: BaseException, repo: Repo, what: str) -> NoReturn:
    """Raise what a user can act on; an error that has nothing to do with the Hub stays itself."""
    if is_local(error):
        raise error
    raise repo.not_found(_explanation(error, repo, what)) from error


def _explanation(error: BaseException, repo: Repo, what: str) -> str:
    from huggingface_hub import constants, errors, get_token

    hub = constants.ENDPOINT
    status = getattr(response_of(error), "status_code", None)
    key = "the token does not open it" if repo.token or get_token() else "no token was given"
    way_in = "pass token=, set HF_TOKEN or run `hf auth login` with an account that may read it"

    if is_any(error, errors.GatedRepoError):
        return f"{repo} is gated and {key} ({what}). Accept its conditions on {hub}, then {way_in}"
    if is_any(error, errors.RevisionNotFoundError):
        return (
            f"{repo} exists on {hub}, but not {what}. Check the name of the branch, tag or commit"
        )
    if status in {401, 403, 404}:
        return (
            f"{repo} is absent from {hub}, or private and {key} ({what}). "
            f"Check the name, or {way_in}"
        )
    if is_any(error, errors.OfflineModeIsEnabled):
        return f"HF_HUB_OFFLINE is set, and of {repo} {what}. Fetch it once with network"
    if status is not None:
        why = "its rate limit is reached" if status == 429 else f"it answers {status}"
        return f"{hub} refuses {repo} for now, {why}: {what}. Try again later; what came is kept"
    reason = str(error).split("\n", 1)[0]
    return (
        f"{hub} cannot be reached ({reason}), and of {repo} {what}. "
        "Check the network and HF_ENDPOINT, or fetch it on a machine that has network"
    )
