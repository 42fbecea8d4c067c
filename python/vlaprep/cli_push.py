"""The command that publishes a tokenizer, and its tables. Nothing here prints."""

from __future__ import annotations

import hashlib
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from vlaprep.cli_options import DebugOption, JsonOption  # noqa: TC001
from vlaprep.cli_session import session as open_session
from vlaprep.cli_tables import _facts, _heading, _note, _size, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from vlaprep.publish import Draft

__all__ = ["push", "push_tables"]


def push(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder of a fitted tokenizer, as fit gives it."),
    ],
    repo_id: Annotated[
        str,
        typer.Argument(
            metavar="REPO_ID", help="Model repository on the Hub: org/name. Made where absent."
        ),
    ],
    private: Annotated[
        bool | None,
        typer.Option(
            "--private/--public",
            help="Who may read it. Default: as the Hub has it. An existing one that is otherwise "
            "is refused.",
        ),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(metavar="BRANCH", help="Branch to commit to. Default: main. Made if absent."),
    ] = None,
    commit_message: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Default: the signature of the fit.")
    ] = None,
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Open a pull request instead.")
    ] = False,
    without_report: Annotated[
        bool,
        typer.Option(
            "--without-report",
            help="Accept a tokenizer without fit_report.json, of which nobody can tell what it "
            "was fitted to.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check it and show the card; ask nothing of the Hub.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Publish a fitted tokenizer on the Hub, with a model card, in one commit.

    The folder must be what the fit wrote; it is read once, checked, and stays as it is. The card
    tells the data, the shape, the normalisation and the errors of the fit, and how to load it; of
    a card that is there only that part is replaced.

    The token comes from HF_TOKEN or `hf auth login`, and has to have the right to write.

    \b
    Example: look first, then publish for your organisation alone.
      vlaprep push tokenizers/0123456789abcdef my-org/fold-towel-fast --dry-run
      vlaprep push tokenizers/0123456789abcdef my-org/fold-towel-fast --private
    """  # noqa: D301
    with open_session("push", as_json=as_json, debug=debug) as session:
        from vlaprep import publish

        session.say(f"checking {folder}")
        wanted = publish.draft(folder, repo_id, without_report=without_report)
        where: dict[str, Any] = {"commit": None, "url": None, "pull_request": None}
        if not dry_run:
            session.say(f"publishing as {repo_id}")
            made = publish.publish(
                wanted,
                private=private,
                revision=revision,
                commit_message=commit_message,
                create_pr=create_pr,
            )
            where = {"commit": made.commit, "url": made.url, "pull_request": made.pull_request}
        told = {**_told(wanted), "dry_run": dry_run, **where}
        session.finish(told, push_tables(told))


def push_tables(told: Mapping[str, Any]) -> RenderableType:
    """Show what was, or would be, published."""
    size = sum(file["bytes"] for file in told["files"].values())
    facts = {
        "repository": told["repo_id"],
        "folder": told["folder"],
        "fit": told["signature"] or "unknown: there is no report",
        "files": f"{', '.join(told['files'])} ({_size(size)})",
        "commit": told["commit"],
        "at": told["pull_request"] or told["url"],
    }
    parts: list[RenderableType] = [
        _heading("Would be published" if told["dry_run"] else "Published"),
        Text(""),
        _facts((key, value) for key, value in facts.items() if value),
    ]
    if told["dry_run"]:
        parts += [
            Text(""),
            _heading("Model card"),
            Text(""),
            Text(printable(told["card"]), no_wrap=True, overflow="ignore"),
        ]
    else:
        parts.append(_note("to load exactly this later, give the commit as revision="))
    return Group(*parts)


def _told(wanted: Draft) -> dict[str, Any]:
    return {
        "folder": str(wanted.folder),
        "repo_id": wanted.repo_id,
        "signature": wanted.signature,
        "files": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in sorted(wanted.files.items())
        },
        "card": wanted.card,
    }
