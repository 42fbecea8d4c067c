"""Every supported transformers saves a tokenizer, every one loads it, vlaprep installed nowhere.

    python tests/matrix/run_matrix.py [CACHE]     (default build/matrix)

Builds one environment per version under CACHE (kept for the next run), fits and saves the same
golden data in each, loads every saved folder in each, and compares ids, decoded actions and the
bytes on disk. Takes a few minutes and the network the first time. Exit code 1 when a cell fails.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
SOURCE = TESTS.parent / "python" / "vlaprep" / "processing_action_tokenizer.py"
GOLDEN = TESTS / "golden" / "fast" / "pusht"
WORKER = Path(__file__).with_name("worker.py")
VERSIONS = {  # name of the environment: what pip installs into it
    "transformers-4.57": "transformers==4.57.*",
    "transformers-5.0": "transformers==5.0.*",
    "transformers-5.5": "transformers==5.5.*",
    "transformers-5": "transformers>=5,<6",
}


def environment(cache: Path, name: str) -> Path:
    """The Python of the environment, built where it is not there yet."""
    folder = cache / name
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "numpy", VERSIONS[name]], check=True)
        ready.touch()
    return python


def run_worker(python: Path | str, scratch: Path, *arguments: str | Path) -> dict[str, Any]:
    """The worker's answer, from a process with empty caches and without the network."""
    with tempfile.TemporaryDirectory(dir=scratch) as home:
        env = {**os.environ, "HF_HOME": home, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
        env.pop("HF_MODULES_CACHE", None)
        command = [str(python), str(WORKER), *map(str, arguments)]
        ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if ran.returncode:
        raise AssertionError(f"{' '.join(command)} failed:\n{ran.stderr[-4000:]}")
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


def verify(answer: dict[str, Any], files: dict[str, str] | None = None) -> None:
    """Hold one cell against the golden answers and, where given, the digests of the files."""
    golden_bpe = json.loads((GOLDEN / "processor" / "tokenizer.json").read_text(encoding="utf-8"))
    assert answer["vocab"] == golden_bpe["model"]["vocab"]
    assert answer["ids"] == json.loads((GOLDEN / "tokens.json").read_text())["probe"]
    assert answer["decode_error"] < 1e-6
    assert answer["printed"] == ""
    assert files is None or answer["files"] == files


def main(cache: Path, scratch: Path) -> int:
    """Run all pairs and print a table; the number of cells that failed."""
    pythons = {name: environment(cache, name) for name in VERSIONS}
    arrays, failures = GOLDEN / "arrays.npz", 0
    files: dict[str, str] | None = None
    for saver, python in pythons.items():
        folder = scratch / saver
        answer = run_worker(python, scratch, "save", SOURCE, arrays, folder)
        verify(answer, files)
        files = answer["files"]  # the same bytes whoever saves
        print(f"saved by transformers {answer['transformers']}, tokenizers {answer['tokenizers']}")
        for loader, other in pythons.items():
            copied = scratch / f"{saver}-{loader}"
            failures += not load(other, scratch, folder, copied, files)
    return failures


def load(python: Path, scratch: Path, folder: Path, copied: Path, files: dict[str, str]) -> bool:
    """One cell: whether the folder loads there and answers as it should."""
    try:
        answer = run_worker(python, scratch, "load", folder, GOLDEN / "arrays.npz", copied)
        verify(answer, files)
    except AssertionError as error:
        print(f"  {python.parent.parent.name} FAILED: {error}")
        return False
    print(f"  loaded by transformers {answer['transformers']}: same ids, same bytes")
    return True


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else TESTS.parent / "build" / "matrix")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(1 if main(target.resolve(), Path(temporary)) else 0)
