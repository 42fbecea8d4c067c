"""Every example runs, without a network, and says something."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
WANTED = {  # words that only a run which got to its end prints
    "dataloader": "2 workers by spawn: the same batches",
    "lerobot_action_tokenizer": "--policy.action_tokenizer_name=",
    "opentau_swap": "gives the same 48 labels in one call",
}


def run(path: Path, home: Path, *arguments: str) -> str:
    """Output of an example that is run from elsewhere, with an empty cache and no Hub."""
    offline = {"HF_HOME": str(home / "hf"), "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1"}
    ran = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", str(path), *arguments],
        cwd=home,
        env=os.environ | offline,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_each_example_is_known_here() -> None:
    assert [path.stem for path in EXAMPLES] == sorted(WANTED)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    said = run(path, tmp_path)
    assert WANTED[path.stem] in said
    assert 3 <= len(said.splitlines()) <= 40, "an example prints a short result"
    assert [p.name for p in tmp_path.iterdir() if p.name != "hf"] == [], "it leaves nothing behind"


def test_on_a_dataset_of_ones_own(golden: Path, tmp_path: Path) -> None:
    said = run(ROOT / "examples" / "opentau_swap.py", tmp_path, str(golden / "lerobot_v21"))
    assert "the same 30 labels" in said


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_what_one_learns(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert "What one learns:" in said
    assert f"python examples/{path.name} path/to/dataset" in said
