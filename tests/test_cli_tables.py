"""Tables that fit the terminal, and texts that do it no harm."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from command_line import CLEAN, COMMAND, SMALL_FIT, run, run_json
from lerobot_folder import make_rows, write_meta, write_v3

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def awkward(tmp_path: Path) -> Path:
    """A dataset whose texts are long, wide, dangerous or absent, and whose tasks are many."""
    rows = make_rows({e: (e % 60, 10 + e % 37) for e in range(600)})
    texts = dict.fromkeys(range(60), "turn the left knob of the stove all the way to the right")
    texts |= {
        0: "把红色的积木放到架子上的盒子里然后回到原来的位置",
        1: "\x1b[2Jclear",
        2: "",
        3: "a[b]c",
    }
    return write_meta(write_v3(tmp_path / "awkward", rows), tasks=texts)


@pytest.mark.parametrize("columns", ["80", "100"])
def test_tables_fit_the_terminal(columns: str, awkward: Path, root: Path, tmp_path: Path) -> None:
    from rich.cells import cell_len

    outputs = [
        run("speed", awkward, COLUMNS=columns).stderr,
        run("fit", root, *SMALL_FIT, "--cache-dir", tmp_path / "cache", COLUMNS=columns).stderr,
    ]
    for text in outputs:
        # Messages and paths are left in one piece.
        table = [line for line in text[text.index("\n\n") :].splitlines() if "/" not in line]
        assert len(table) > 10
        assert [line for line in table if cell_len(line) > int(columns)] == []


def test_texts_are_shown_as_they_are_but_for_what_a_terminal_obeys(awkward: Path) -> None:
    text = run("speed", awkward, COLUMNS="200").stderr
    assert "\x1b" not in text
    assert "�[2Jclear" in text
    assert "a[b]c" in text
    assert "turn the left knob of the stove all the way to the right" in text
    assert "and 20 tasks of fewer episodes" in text
    assert len(run_json("speed", awkward)["tasks"]) == 60


def test_a_narrow_terminal_does_no_harm(root: Path) -> None:
    assert run("speed", root, COLUMNS="30").exit_code == 0


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_for_terminals_that_want_it(
    env: dict[str, str], coloured: bool, tmp_path: Path
) -> None:
    ours, theirs = os.openpty()
    command = [*COMMAND, "speed", str(tmp_path / "nowhere")]
    with subprocess.Popen(command, env=CLEAN | {"TERM": "xterm"} | env, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            seen += piece
    os.close(ours)
    assert process.returncode == 1
    assert b"error:" in seen
    assert (b"31m" in seen) is coloured
