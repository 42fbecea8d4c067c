"""The command line, run in this process or as the real executable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from vlaprep import cli, cli_session

SCRIPT = Path(sys.executable).with_name("vlaprep")
COMMAND = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "vlaprep"]
SMALL_FIT = ("--n-samples", "64", "--chunk-size", "20", "--vocab-size", "512")
CLEAN = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}


def run(*arguments: object, **env: str) -> Any:
    """Run a command in this process; anything but an exit is an error of the test."""
    result = CliRunner().invoke(cli.app, [str(a) for a in arguments], env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run_json(*arguments: object) -> dict[str, Any]:
    """Run a command with --json and give what it prints."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["format_version"] == cli_session.JSON_VERSION
    assert answer["command"] == arguments[0]
    return answer


def execute(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the real executable."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=CLEAN | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
