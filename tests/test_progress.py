"""The bar is for people: where none is looking, nothing of it exists."""

from __future__ import annotations

import io
import sys

import pytest

from vlaprep.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def steps(**options: bool) -> None:
    with progress(2, "counting", **options) as advance:
        advance("first")
        advance()


@pytest.mark.parametrize("stderr", [None, io.StringIO()])
def test_nothing_is_made_where_nobody_looks(
    stderr: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setitem(sys.modules, "tqdm", None)  # importing it would fail
    steps()
    assert stderr is None or stderr.getvalue() == ""


def test_a_terminal_sees_the_bar_and_may_be_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    for hidden in (False, True):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        steps(hidden=hidden)
        assert ("counting" in terminal.getvalue()) is not hidden


def test_the_bar_has_a_lock_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import tqdm

    monkeypatch.setattr(sys, "stderr", Terminal())
    with tqdm.tqdm.get_lock():  # as a killed process leaves it to all forked beside it
        steps()
