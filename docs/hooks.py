"""What pages take from elsewhere when the site is built, so that it cannot go stale.

``<!-- help: COMMAND -->`` becomes the help text of a command (empty: of vlaprep itself);
``<!-- readme: NAME -->`` the part of README.md between ``NAME:begin`` and ``NAME:end``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parent.parent / "README.md"


def help_of(command: str) -> str:
    """Help of a command, as a terminal of 88 columns shows it."""
    plain = {"COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUTF8": "1"}
    call = ["-m", "vlaprep", *command.split(), "--help"]
    ran = subprocess.run(  # noqa: S603
        [sys.executable, *call], env=os.environ | plain, capture_output=True, check=True
    )
    text = ran.stdout.decode().strip("\n")
    return "```text\n" + "\n".join(line.rstrip() for line in text.splitlines()) + "\n```"


def part_of_readme(name: str) -> str:
    """Text between two markers of the README."""
    text = README.read_text(encoding="utf-8")
    return text.split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill a page in (called by mkdocs)."""
    markdown = re.sub(r"<!-- help:(.*?)-->", lambda m: help_of(m[1].strip()), markdown)
    return re.sub(r"<!-- readme: (\w+) -->", lambda m: part_of_readme(m[1]), markdown)
