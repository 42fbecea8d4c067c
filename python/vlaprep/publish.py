"""Publish a tokenizer as a model repository of the Hub, whole and in one commit.

A folder is read once. What was read is checked, and what was checked is uploaded: a folder that
changes meanwhile changes nothing. The commit names the one it follows, so a branch that moves is
looked at again, and a commit whose answer was lost is not made twice.
"""

from __future__ import annotations

import json
import logging
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlaprep._transfer import (
    Repo,
    hub_errors,
    is_any,
    is_commit,
    is_local,
    persevering,
    response_of,
    shortened,
    without_library_bars,
)
from vlaprep.errors import PublishError, TokenizerFormatError
from vlaprep.fit_report import EXAMPLES_NAME, REPORT_NAME, read_whole
from vlaprep.hub import is_repo_id
from vlaprep.model_card import merged_card, model_card

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

__all__ = ["Draft", "Published", "draft", "publish", "push_to_hub"]

logger = logging.getLogger(__name__)

_CARD = "README.md"
_CONFIG = "processor_config.json"
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_SAVED = (_CONFIG, *_TOKENIZER, *(f"bpe_tokenizer/{name}" for name in _TOKENIZER))
"""Files that the ``save_pretrained`` of a FAST processor writes, apart from its source."""
_MOVES = 5
"""How often a branch may move away under a push."""


@dataclass(frozen=True)
class Draft:
    """What is going to be published: read once, and checked."""

    repo_id: str
    folder: Path
    files: Mapping[str, bytes] = field(repr=False)
    report: Mapping[str, Any] | None = field(repr=False)
    card: str = field(repr=False)
    """Text of the model card for a repository that has none."""

    @property
    def signature(self) -> str | None:
        """Signature of the fit; None without a report."""
        return None if self.report is None else self.report["signature"]


@dataclass(frozen=True)
class Published:
    """Where a draft is now."""

    commit: str
    """40 hexadecimal digits, for ``revision=``."""
    url: str
    pull_request: str | None


def push_to_hub(
    folder: str | PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    token: str | bool | None = None,
    create_pr: bool = False,
    without_report: bool = False,
) -> str:
    """Publish a fitted tokenizer on the Hub, with a model card, in one commit.

    The folder must be what the fit wrote, by the digests of its report; it stays as it is, and what
    else lies in it is not uploaded. In the repository, files of a tokenizer that was there before
    and has no successor are deleted, and of a card only vlaprep's own part is replaced.

    Parameters
    ----------
    folder : path-like
        What `vlaprep.fit_fast_tokenizer` returned.
    repo_id : str
        ``organisation/name`` of a model repository; made where there is none.
    private : bool, optional
        Who may read a new repository; by default as the Hub has it for its owner. An existing one
        that is otherwise is refused.
    revision : str, optional
        Branch to commit to, made where there is none; the main branch by default.
    commit_message : str, optional
        By default the signature of the fit.
    token : str or bool, optional
        Access token with the right to write; by default the one `huggingface_hub` finds
        (``HF_TOKEN``, ``hf auth login``).
    create_pr : bool
        Open a pull request instead of committing to the branch.
    without_report : bool
        Accept a folder without ``fit_report.json``, as ``save_pretrained`` writes it, if it is a
        FAST tokenizer. Nobody can then tell what it was fitted to, or how actions are normalised.

    Returns
    -------
    str
        The commit, 40 hexadecimal digits, for ``revision=``. Where the repository has exactly this
        already, no commit is made and the one it is at is returned.

    Raises
    ------
    TokenizerFormatError
        The folder is torn, is not what the fit wrote, or has no report; nothing was asked of the
        Hub.
    PublishError
        No token, or one without the right to write; no answer; a public repository where a private
        one is asked for, or the other way round.
    ValueError
        `repo_id` is no id, or `revision` no branch.

    Notes
    -----
    Waits as the Hub asks for (``Retry-After``) and repeats after dropped connections, as downloads
    do. Where the answer to a pull request was lost, there can be a second one.

    Examples
    --------
    >>> import vlaprep
    >>> folder = vlaprep.fit_fast_tokenizer(
    ...     dataset_repo_id="org/data", cache_dir="tokenizers"
    ... )  # doctest: +SKIP
    >>> commit = vlaprep.push_to_hub(folder, "org/name", private=True)  # doctest: +SKIP
    >>> codec = vlaprep.ActionCodec.from_pretrained("org/name", revision=commit)  # doctest: +SKIP
    """
    wanted = draft(folder, repo_id, without_report=without_report)
    return publish(
        wanted,
        private=private,
        revision=revision,
        commit_message=commit_message,
        token=token,
        create_pr=create_pr,
    ).commit


def draft(folder: str | PathLike[str], repo_id: str, *, without_report: bool = False) -> Draft:
    """Read and check what `push_to_hub` would publish, without asking anything of the Hub."""
    if not is_repo_id(repo_id):
        raise ValueError(f"{repo_id!r} is no Hub id like 'org/name'")
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise TokenizerFormatError(f"{folder} is no folder: fit a tokenizer first")
    if (folder / REPORT_NAME).exists():
        try:
            report, files = read_whole(folder)
        except TokenizerFormatError as error:
            raise TokenizerFormatError(
                f"{folder} is not what a fit wrote: {error}. Nothing is published; fit again"
            ) from error
    elif without_report:
        report, files = None, _saved_files(folder)
    else:
        raise TokenizerFormatError(
            f"there is no {REPORT_NAME} in {folder}: whether it is whole, what it was fitted to "
            "and how actions are normalised, nobody can tell. Publish what fit_fast_tokenizer "
            "returned, or pass without_report=True (--without-report)"
        )
    config = _json(folder, files, _CONFIG)
    return Draft(repo_id, folder, files, report, model_card(repo_id, config, report))


def publish(
    wanted: Draft,
    *,
    private: bool | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    token: str | bool | None = None,
    create_pr: bool = False,
) -> Published:
    """Upload a draft; arguments and errors are those of `push_to_hub`."""
    if is_commit(revision):
        raise ValueError(f"revision={revision!r} is a commit: push to a branch")
    repo = Repo(wanted.repo_id, "model", token)
    api = repo.api()
    with without_library_bars(), _explained(repo):
        persevering(
            lambda: api.create_repo(
                repo.repo_id, repo_type=repo.repo_type, private=private, exist_ok=True
            )
        )
        for _ in range(_MOVES):
            parent = _head(repo, revision, private, may_branch=not create_pr)
            try:
                made = _commit(repo, wanted, parent, revision, commit_message, create_pr)
            except hub_errors() as error:
                if getattr(response_of(error), "status_code", None) not in {409, 412}:
                    raise
                logger.info("%s moved on from %s; looking again", repo, parent)
                continue
            logger.info("published %s as %s", wanted.folder, made.url)
            return made
    raise PublishError(
        f"{repo} changed {_MOVES} times while {wanted.folder} was being published; nothing of it "
        "was. Try again"
    )


# ------------------------------------------------------------------------------- the local side


def _saved_files(folder: Path) -> dict[str, bytes]:
    """Files of a tokenizer that has no report, if they are a FAST tokenizer that can be loaded."""
    from vlaprep.codec import ActionCodec

    found = [name for name in _SAVED if (folder / name).is_file()]
    files = {name: (folder / name).read_bytes() for name in found}
    for reference in _json(folder, files, _CONFIG).get("auto_map", {}).values():
        name = f"{str(reference).split('--')[-1].split('.')[0]}.py"
        if not (folder / name).is_file():
            raise TokenizerFormatError(
                f"{folder} has no {name}, the source that its {_CONFIG} names. Save it again"
            )
        files[name] = (folder / name).read_bytes()
    with tempfile.TemporaryDirectory(prefix="vlaprep-") as copy:
        for name, data in files.items():
            path = Path(copy) / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        try:
            ActionCodec.from_pretrained(Path(copy))
        except TokenizerFormatError as error:
            reason = str(error).replace(copy, str(folder))
            raise TokenizerFormatError(f"{reason}. Nothing is published") from error
    return files


def _json(folder: Path, files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    if name not in files:
        raise TokenizerFormatError(f"there is no {name} in {folder}")
    try:
        value = json.loads(files[name])
    except (ValueError, RecursionError) as error:
        raise TokenizerFormatError(f"{folder / name} is torn: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerFormatError(f"{folder / name} is no JSON object")
    return value


# --------------------------------------------------------------------------------- the far side


def _head(repo: Repo, revision: str | None, private: bool | None, *, may_branch: bool) -> str:
    """Commit that a branch is at; a branch that is absent is made."""
    from huggingface_hub.errors import RevisionNotFoundError

    api = repo.api()

    def look() -> Any:
        expand = ["sha", "private"]
        return api.repo_info(
            repo.repo_id, repo_type=repo.repo_type, revision=revision, expand=expand
        )

    try:
        info = persevering(look)
    except RevisionNotFoundError:
        if revision is None or not may_branch:
            raise
        persevering(lambda: api.create_branch(repo.repo_id, branch=revision, exist_ok=True))
        info = persevering(look)
    if private is not None and bool(info.private) != private:
        is_, asked = ("private", "public") if info.private else ("public", "private")
        raise PublishError(
            f"{repo} is {is_}, but a {asked} one is asked for; nothing was uploaded. Change its "
            "visibility on the Hub, choose another name, or leave private= out"
        )
    return str(info.sha)


def _commit(
    repo: Repo,
    wanted: Draft,
    parent: str,
    revision: str | None,
    message: str | None,
    create_pr: bool,
) -> Published:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    api = repo.api()
    held = persevering(lambda: set(api.list_repo_files(repo.repo_id, revision=parent)))
    files = {**wanted.files, _CARD: _card(repo, wanted, parent, held)}
    stale = sorted(held.intersection({*_SAVED, REPORT_NAME, EXAMPLES_NAME}) - files.keys())
    if stale:
        logger.info("%s: deleting what is of an earlier tokenizer: %s", repo, shortened(stale))

    def commit() -> Any:
        # Made anew for each attempt: huggingface_hub notes in them how far it came.
        operations = [
            *(CommitOperationAdd(name, data) for name, data in sorted(files.items())),
            *(CommitOperationDelete(name) for name in stale),
        ]
        try:
            return api.create_commit(
                repo.repo_id,
                operations,
                commit_message=message or _message(wanted),
                repo_type=repo.repo_type,
                revision=revision,
                create_pr=create_pr,
                parent_commit=parent,
            )
        except RuntimeError as error:  # of the storage for large files, around the cause
            raise ConnectionError(f"an upload failed ({error})") from error

    made = persevering(commit)
    return Published(str(made.oid), str(made.commit_url), made.pr_url)


def _message(wanted: Draft) -> str:
    fit = f" {wanted.signature}" if wanted.signature else ""
    return f"Publish FAST tokenizer{fit}"


def _card(repo: Repo, wanted: Draft, parent: str, held: set[str]) -> bytes:
    if _CARD not in held:
        return wanted.card.encode()
    api = repo.api()
    path = persevering(lambda: api.hf_hub_download(repo.repo_id, _CARD, revision=parent))
    try:
        return merged_card(wanted.card, Path(path).read_text(encoding="utf-8-sig")).encode()
    except ValueError as error:
        raise PublishError(
            f"the {_CARD} that {repo} has cannot be read ({error}); nothing was uploaded. Mend or "
            "delete it on the Hub"
        ) from error


@contextmanager
def _explained(repo: Repo) -> Iterator[None]:
    """Make an error that a user can act on of whatever a call to the Hub raises."""
    try:
        yield
    except PublishError:
        raise
    except hub_errors() as error:
        if is_local(error):
            raise
        raise PublishError(_explanation(error, repo)) from error


def _explanation(error: BaseException, repo: Repo) -> str:
    from huggingface_hub import constants, errors, get_token

    hub = constants.ENDPOINT
    response = response_of(error)
    status = getattr(response, "status_code", None)
    said = str(error).strip().split("\n")[-1]
    has_token = isinstance(repo.token, str) or (repo.token is not False and get_token())
    way_in = "pass token=, set HF_TOKEN or run `hf auth login` with a token that may write"

    if is_any(error, errors.OfflineModeIsEnabled):
        return f"HF_HUB_OFFLINE is set, and {repo} cannot be published without network"
    if status in {401, 403} and not has_token:
        return f"{repo} cannot be published: no token was given. To publish, {way_in}"
    if status == 401:
        return f"{repo} cannot be published: {hub} does not know the token. To publish, {way_in}"
    if status == 403:
        return (
            f"{repo} cannot be published: the token may not write there ({said}). "
            f"Check the name, {way_in}, or propose it with create_pr=True (--create-pr)"
        )
    if is_any(error, errors.RevisionNotFoundError):
        return f"{repo} has no such branch to open a pull request against ({said})"
    if status == 404:
        other = _other_type(repo)
        found = f", which is a {other} there" if other else ""
        return f"{hub} has no {repo}{found}, or the token does not open it. Choose another name"
    if status is None:
        reason = str(error).split("\n", 1)[0]
        return f"{hub} cannot be reached ({reason}); {repo} is as it was. Try again later"
    why = "its rate limit is reached" if status == 429 else f"it answers {status}: {said}"
    return f"{hub} refuses {repo}, {why}. Nothing was published; try again later"


def _other_type(repo: Repo) -> str | None:
    """Type of the repository that has the name, if it is no model."""
    try:
        kinds = ("dataset", "space")
        return next((k for k in kinds if repo.api().repo_exists(repo.repo_id, repo_type=k)), None)
    except hub_errors():
        return None
