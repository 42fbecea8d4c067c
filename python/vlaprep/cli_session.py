"""What a command says, where, in which form, and how it ends.

``--json`` puts one object on stdout; all that people read goes to stderr.
"""

from __future__ import annotations

import json
import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

from vlaprep.cli_tables import printable
from vlaprep.errors import VlaprepError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

__all__ = ["FAILED", "FOUND", "INTERRUPTED", "JSON_VERSION", "TOLD_BY_INFO", "Session", "session"]

FAILED, FOUND, INTERRUPTED = 1, 3, 130
JSON_VERSION = 1
"""``format_version`` of what ``--json`` prints; raised when a key goes or changes its meaning."""
TOLD_BY_INFO = ("vlaprep.coordinate", "vlaprep._transfer")
"""Loggers whose information people get too: waiting for others, trying again."""


class Session:
    """What one command says, where, and in which form."""

    def __init__(self, command: str, *, as_json: bool) -> None:
        self.command, self.as_json = command, as_json
        self.warnings: list[str] = []
        self.in_tables = ""
        """Logger whose warnings the tables show as well, so that people read them once."""
        # Texts are data: what looks like markup, a number or an emoji in them is none.
        self.console = Console(stderr=True, markup=False, emoji=False, highlight=False)

    def say(self, text: str) -> None:
        """Tell what goes on."""
        if not self.as_json:
            self._line("", text, "dim")

    def warn(self, text: str) -> None:
        """Tell something a user should know, once."""
        if text not in self.warnings:
            self.warnings.append(text)
            self._line("warning: ", text, "yellow")

    def fail(self, text: str) -> None:
        """Tell why there is no result."""
        self._line("error: ", text, "bold red")

    def show(self, *tables: RenderableType) -> None:
        """Show what is known so far."""
        if not self.as_json and tables:
            self.console.print("", *tables, sep="\n", crop=False)

    def finish(self, result: dict[str, Any], *tables: RenderableType) -> None:
        """Show the result: tables, or with --json an object."""
        self.show(*tables)
        if not self.as_json:
            return
        head = {"format_version": JSON_VERSION, "command": self.command}
        if sys.stdout is None:
            raise OSError("stdout is closed, and --json has nowhere to print to")
        text = json.dumps(head | result | {"warnings": self.warnings}, indent=2, allow_nan=False)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def _line(self, label: str, text: str, style: str) -> None:
        # Unwrapped, so that a message in a log file is one line that can be searched for.
        styles = (label, style), (printable(text), style if not label else "")
        self.console.print(Text.assemble(*styles), soft_wrap=True)


class _Relay(logging.Handler):
    """Hands what the library logs to the session."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == self._session.in_tables and not self._session.as_json:
            return
        tell = self._session.warn if record.levelno >= logging.WARNING else self._session.say
        tell(record.getMessage())


@contextmanager
def _relayed(session: Session) -> Iterator[None]:
    """Let a session tell what the library logs, and Python's own warnings."""
    relay = _Relay(session)
    loggers = [logging.getLogger(name) for name in ("vlaprep", "py.warnings")]
    levels = {name: logging.getLogger(name).level for name in TOLD_BY_INFO}
    for logger in loggers:
        logger.addHandler(relay)
    for name in levels:
        logging.getLogger(name).setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        for logger in loggers:
            logger.removeHandler(relay)


@contextmanager
def session(command: str, *, as_json: bool, debug: bool) -> Iterator[Session]:
    """Give a command its session, and turn what it raises into a message and an exit code."""
    told = Session(command, as_json=as_json)
    try:
        with _relayed(told):
            yield told
    except KeyboardInterrupt:
        told.fail("interrupted; nothing half-written is left")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise  # whoever reads our output has gone; typer exits quietly
    # Bad data, a bad argument, a file that cannot be read or written, a package that is absent.
    # Anything else is a fault of ours, and its traceback is wanted.
    except (VlaprepError, ValueError, OSError, ImportError) as error:
        if debug:
            raise
        told.fail(str(error) or type(error).__name__)
        if not isinstance(error, VlaprepError):
            told.say("--debug shows where it comes from")
        raise typer.Exit(FAILED) from None
