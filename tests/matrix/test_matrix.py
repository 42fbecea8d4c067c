"""The transformers matrix: its one cell that is at hand in every run, and the whole by night."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from matrix import run_matrix

if TYPE_CHECKING:
    from pathlib import Path


def test_a_saved_folder_loads_without_vlaprep(tmp_path: Path) -> None:
    arrays = run_matrix.GOLDEN / "arrays.npz"
    # A folder name may hold the word that makes transformers take a class for a tokenizer.
    folder = tmp_path / "My.Tokenizer-1.0"
    saved = run_matrix.run_worker(
        sys.executable, tmp_path, "save", run_matrix.SOURCE, arrays, folder
    )
    run_matrix.verify(saved)
    loaded = run_matrix.run_worker(sys.executable, tmp_path, "load", folder, arrays, tmp_path / "b")
    run_matrix.verify(loaded, files=saved["files"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_version_loads_what_every_version_saves(
    project_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = project_root / "build" / "matrix"
    cache.mkdir(parents=True, exist_ok=True)
    failures = run_matrix.main(cache, tmp_path)
    assert failures == 0, capsys.readouterr().out
