"""Ranks under the real torchrun, torch.distributed and accelerate; without torch it is skipped."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from other_python import environment, other_python
from rank_steps import PATIENCE_S, STEPS, WORLD_SIZE, Answers, Steps, prepare, read_answers
from vlaprep import fit_report

if TYPE_CHECKING:
    from other_python import OtherPython

pytestmark = pytest.mark.interop

WORKER = Path(__file__).with_name("rank_worker.py")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORLD_SIZE}")


@pytest.fixture(scope="module")
def torch_python() -> OtherPython:
    return other_python("torch")


@pytest.fixture(scope="module", params=["gloo", "accelerate"])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What three processes of torchrun answer, their group initialised by hand or by accelerate."""
    packages, steps = ("torch",), STEPS
    if request.param == "accelerate":
        packages, steps = ("torch", "accelerate"), ["accelerate", *STEPS]
    python = other_python(*packages)
    work = prepare(tmp_path_factory.mktemp("ranks"))
    python.run(*TORCHRUN, WORKER, work, *steps, home=work, timeout=PATIENCE_S)
    return read_answers(work)


class TestTorchrun(Steps):
    """The steps of all."""


def test_a_job_that_is_killed_in_its_fit_can_be_started_again(
    torch_python: OtherPython, tmp_path: Path
) -> None:
    """When one process is killed torchrun ends the others, whatever they wait for."""
    work = prepare(tmp_path)
    command = (*TORCHRUN, WORKER, work, "killed")
    ran = torch_python.run(*command, home=work, timeout=PATIENCE_S, check=False)
    assert ran.returncode != 0
    assert "exitcode  : -9" in ran.stderr
    assert not list((work / "killed").glob("[!.]*"))
    torch_python.run(*command, home=work, timeout=PATIENCE_S)
    folders = {answer["killed"]["folder"] for answer in read_answers(work)}
    assert len(folders) == 1
    check_cache(work, folders.pop())


def test_without_a_restart_nobody_hangs(torch_python: OtherPython, tmp_path: Path) -> None:
    """The fit is taken over; the barrier, which the dead cannot reach, is an error at once."""
    work = prepare(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = environment(work) | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [torch_python.path, str(WORKER), str(work), "killed"]
    crew = [
        subprocess.Popen(
            command, env=env | {"RANK": str(rank), "WORLD_SIZE": "3"}, stderr=subprocess.DEVNULL
        )
        for rank in range(WORLD_SIZE)
    ]
    try:
        assert crew[1].wait(PATIENCE_S) == -9
        killed = time.monotonic()
        for rank in (0, 2):
            assert crew[rank].wait(PATIENCE_S) == 0
        assert time.monotonic() - killed < 30
    finally:
        for member in crew:
            member.kill()
    for rank in (0, 2):
        answer = json.loads((work / f"answers-{rank}.json").read_text())["killed"]
        assert answer["error"] in ("RuntimeError", "DistBackendError", "DistNetworkError"), answer
    (folder,) = (work / "killed").iterdir()
    check_cache(work, str(folder))


def check_cache(work: Path, folder: str) -> None:
    """Only the whole entry is left."""
    assert [path.name for path in (work / "killed").iterdir()] == [Path(folder).name]
    assert fit_report.defect(Path(folder), Path(folder).name) is None


def test_torch_that_is_imported_but_not_initialised_is_one_process(
    torch_python: OtherPython, tmp_path: Path
) -> None:
    code = (
        "import torch.distributed\nfrom vlaprep.ranks import Ranks\n"
        "print(Ranks.detect(), Ranks.detect().gather('me'))"
    )
    ran = torch_python.run("-c", code, home=tmp_path)
    assert ran.stdout.strip() == "Ranks(rank=0, world_size=1, is_main=True) ['me']"
