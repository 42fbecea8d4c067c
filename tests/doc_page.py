"""The code of a documentation page: found, run in the order of the page, its output compared.

What a page may hold:

- ``python`` blocks share one namespace, as if typed one after the other;
- an ``output`` block right after one says, to the letter, what it prints;
- of ``bash`` blocks the lines that begin with ``vlaprep`` are run, and must succeed;
- ``<!-- not run: reason -->`` before a block leaves it out, and the reason is shown.

Run as a script, with a page and a folder to run in, it prints what it left out.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]*?) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>python|bash)\n(?P<code>.*?)^(?P=indent)```$"
    r"(?:\n\n?(?P=indent)```output\n(?P<output>.*?)^(?P=indent)```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    line: int
    """Number of its first line of code in the page, from 1."""
    code: str
    output: str | None
    not_run: str | None

    @property
    def commands(self) -> list[str]:
        """The lines of a ``bash`` block that call vlaprep; backslashes join lines."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.startswith("vlaprep ")]


def blocks_of(text: str) -> list[Block]:
    """All blocks of a page that are, or could be, run."""
    found = []
    for match in _BLOCK.finditer(text):
        indent = re.compile(f"^{match['indent']}", re.MULTILINE)
        output = match["output"]
        block = Block(
            match["language"],
            text.count("\n", 0, match.start("code")) + 1,
            indent.sub("", match["code"]),
            None if output is None else indent.sub("", output),
            match["reason"],
        )
        if block.language == "python" or block.commands:
            found.append(block)
    return found


def run_block(block: Block, page: Path, names: dict[str, Any]) -> None:
    """Run one block; an AssertionError or the block's own error says what is wrong."""
    if block.language == "bash":
        for command in block.commands:
            vlaprep = [sys.executable, "-m", "vlaprep"]
            subprocess.run([*vlaprep, *shlex.split(command)[1:]], check=True)
        return
    # Empty lines in front: a traceback then names the line of the page.
    code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    if block.output is not None:
        said = printed.getvalue()
        assert said == block.output, f"{page.name}:{block.line} printed:\n{said}"


def run_page(page: Path, folder: Path) -> None:
    """Run all blocks of a page in `folder`."""
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    os.chdir(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        if block.not_run:
            print(f"{page.name}:{block.line} not run: {block.not_run}")
        else:
            run_block(block, page, names)


if __name__ == "__main__":
    run_page(Path(sys.argv[1]), Path(sys.argv[2]))
