"""Many processes ask for one fit: one computes, whatever becomes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import vlaprep
from lerobot_folder import make_rows, write_v3
from vlaprep import fit_report

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60

# A process that fits with a build of its own making: it notes that it began, then does what the
# file `order` says. What it logs goes to stderr, the folder or the error to stdout.
CHILD = """
import logging, os, sys, time
from pathlib import Path
import vlaprep.fit
from vlaprep import fit_report

root, work, order = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
logging.basicConfig(level=logging.INFO)

def build(folder, *args, inputs, **kwargs):
    (folder / "tokenizer.json").write_text("{}")
    (work / f"began-{os.getpid()}").touch()
    while order != "go" and not (work / "release").exists():
        time.sleep(0.01)
    if order == "fail":
        raise ValueError("the vocabulary is full of eels")
    fit_report.write_report(folder, inputs, {"validation": None})

vlaprep.fit.build_tokenizer = build
(work / f"ready-{os.getpid()}").touch()
while order == "go" and not (work / "start").exists():
    time.sleep(0.005)
try:
    print(vlaprep.fit.fit_fast_tokenizer(
        dataset_root=root, cache_dir=work / "cache", n_samples=20, chunk_size=5, wait_timeout_s=60,
        gate=False,
    ))
except Exception as error:
    print(type(error).__name__, error)
    sys.exit(1)
"""


class Crew:
    """Processes that ask for the same fit, in one working folder."""

    def __init__(self, work: Path) -> None:
        self.work, self.members = work, []
        rows = make_rows(dict.fromkeys(range(4), (0, 12)))
        self.root = write_v3(work / "data", rows)

    def hire(self, order: str) -> subprocess.Popen[str]:
        log = (self.work / f"log-{len(self.members)}").open("w")
        arguments = [sys.executable, "-c", CHILD, str(self.root), str(self.work), order]
        child = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        self.members.append(child)
        return child

    def began(self) -> list[Path]:
        return sorted(self.work.glob("began-*"))

    def logs(self) -> list[str]:
        return [path.read_text() for path in sorted(self.work.glob("log-*"))]

    def until(self, condition: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.005)

    def until_waiting(self, count: int) -> None:
        self.until(lambda: sum("waiting for the lock" in log for log in self.logs()) == count)

    def left(self) -> set[str]:
        """What is in the cache, visible or not."""
        return {path.name for path in (self.work / "cache").iterdir()}


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path)
    yield crew
    for member in crew.members:
        member.kill()
        member.communicate()


def answer(child: subprocess.Popen[str]) -> str:
    return child.communicate(timeout=PATIENCE_S)[0].strip()


def test_of_eight_processes_one_computes(crew: Crew) -> None:
    children = [crew.hire("go") for _ in range(8)]
    crew.until(lambda: len(list(crew.work.glob("ready-*"))) == 8)
    (crew.work / "start").touch()
    folders = {answer(child) for child in children}
    assert len(folders) == 1, crew.logs()
    folder = Path(folders.pop())
    assert fit_report.defect(folder, folder.name) is None
    assert len(crew.began()) == 1
    assert crew.left() == {folder.name}


def test_when_the_leader_is_killed_another_takes_over(crew: Crew) -> None:
    leader = crew.hire("hold")
    crew.until(crew.began)
    followers = [crew.hire("go") for _ in range(2)]
    (crew.work / "start").touch()
    crew.until_waiting(2)
    os.kill(leader.pid, signal.SIGKILL)
    killed = time.monotonic()
    folders = {answer(child) for child in followers}
    assert time.monotonic() - killed < 2
    assert len(folders) == 1, crew.logs()
    assert len(crew.began()) == 2
    assert crew.left() == {Path(folders.pop()).name}  # the half-built folder is gone too


def test_when_the_leader_raises_the_others_say_why(crew: Crew) -> None:
    leader = crew.hire("fail")
    crew.until(crew.began)
    followers = [crew.hire("go") for _ in range(3)]
    (crew.work / "start").touch()
    crew.until_waiting(3)
    (crew.work / "release").touch()
    raised = time.monotonic()
    assert answer(leader) == "ValueError the vocabulary is full of eels"
    for child in followers:
        told = answer(child)
        assert told.startswith("FitFailedElsewhereError ValueError: the vocabulary is full of eels")
        assert f"process {leader.pid}" in told
        assert child.returncode == 1
    assert time.monotonic() - raised < 5
    assert len(crew.began()) == 1
    assert not [path for path in (crew.work / "cache").iterdir() if path.is_dir()]

    late = crew.hire("go")  # whoever comes later tries afresh
    folder = Path(answer(late))
    assert fit_report.defect(folder, folder.name) is None
    assert crew.left() == {folder.name}


def test_ctrl_c_leaves_nothing_behind(crew: Crew) -> None:
    child = crew.hire("hold")
    crew.until(crew.began)
    child.send_signal(signal.SIGINT)
    answer(child)
    assert child.returncode != 0
    assert crew.left() == set()


def test_real_fits_at_once_give_one_folder(crew: Crew, tmp_path: Path) -> None:
    code = (
        "import sys, vlaprep; print(vlaprep.fit_fast_tokenizer(dataset_root=sys.argv[1], "
        "cache_dir=sys.argv[2], n_samples=20, chunk_size=5))"
    )
    arguments = [sys.executable, "-c", code, str(crew.root), str(tmp_path / "cache")]
    crew.members = [
        subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    folders = {answer(child) for child in crew.members}
    assert len(folders) == 1
    processor = vlaprep.FastActionProcessor.from_pretrained(folders.pop())
    assert processor.time_horizon == 5
