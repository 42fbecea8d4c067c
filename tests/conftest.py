"""What every test may lean on: hypothesis profiles, the golden files, the built case folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import filelock
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"

# `pytest --hypothesis-profile=deep` looks longer and elsewhere; `ci` sees the same examples on
# every machine, so a red run can be repeated.
_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "ci", derandomize=True, max_examples=50, deadline=None, suppress_health_check=_SLOW_IS_FINE
)
settings.register_profile(
    "deep", max_examples=2000, deadline=None, suppress_health_check=_SLOW_IS_FINE
)
settings.load_profile("ci")


@pytest.fixture(scope="session")
def project_root() -> Path:
    """Folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def golden() -> Path:
    """``tests/golden``: inputs and answers made by the references."""
    folder = TESTS / "golden"
    wanted = ["speed.json", "quantile.npz", "sampling.json", "fast"]
    wanted += [f"lerobot_{v}{part}" for v in ("v21", "v30") for part in ("", "_expected.json")]
    missing = [name for name in wanted if not (folder / name).exists()]
    if missing:
        pytest.fail(f"golden files are missing in {folder}: {', '.join(missing)}; check them out")
    return folder


@pytest.fixture(scope="session")
def cases_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of ``tests/cases/make_cases.py``, built once a run; read, never write, here."""
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent  # all workers of a run share this parent
    out, done = shared / "cases", shared / "cases.done"
    with filelock.FileLock(shared / "cases.lock"):
        if not done.exists():
            build = [sys.executable, str(TESTS / "cases" / "make_cases.py"), str(out)]
            ran = subprocess.run(build, capture_output=True, text=True, check=False)
            if ran.returncode:
                pytest.fail(f"make_cases.py failed:\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}")
            done.touch()
    return out


@pytest.fixture(scope="session")
def cases(cases_root: Path) -> dict[str, dict[str, Any]]:
    """``cases.json`` by case id."""
    entries = json.loads((cases_root / "cases.json").read_text(encoding="utf-8"))
    return {entry["id"]: entry for entry in entries}


@pytest.fixture(scope="session")
def demo_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dataset of made-up teleoperation; read, never write, here."""
    from vlaprep.demo import write_demo_dataset

    return write_demo_dataset(tmp_path_factory.mktemp("demo") / "dataset", episodes=40)


@pytest.fixture
def root(demo_root: Path, tmp_path: Path) -> Path:
    """Own copy of that dataset."""
    return Path(shutil.copytree(demo_root, tmp_path / "dataset"))


@pytest.fixture
def case(
    request: pytest.FixtureRequest, cases: dict[str, Any], cases_root: Path, tmp_path: Path
) -> tuple[Path, dict[str, Any]]:
    """Own copy of the folder of the case that the parameter names, and what is expected of it."""
    own = tmp_path / request.param
    shutil.copytree(cases_root / request.param, own)
    return own, cases[request.param]["expected"]


@pytest.fixture(params=["native", "pure"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test of the processor as it is here, and as it is where vlaprep is not installed."""
    if request.param == "pure":
        monkeypatch.setattr("vlaprep.processing_action_tokenizer.Codec", None)
        monkeypatch.setattr("vlaprep.processing_action_tokenizer.fit_bpe", None)
    return request.param


@pytest.fixture
def fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: nothing has been warned of yet."""
    from vlaprep import coordinate, speed

    monkeypatch.setattr(speed, "_READONLY_WARNED", set())
    monkeypatch.setattr(speed, "_UNKNOWN_TASK_INDEX_WARNED", set())
    monkeypatch.setattr(coordinate, "_UNSUPPORTED_WARNED", set())
