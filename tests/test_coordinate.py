"""One computes, the rest wait: with real processes, killed and failing ones included."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from outcome import mode_bits_bind
from vlaprep import coordinate
from vlaprep.coordinate import compute_once, file_lock
from vlaprep.errors import FitFailedElsewhereError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# A process that asks for the folder "fit" when "go" appears. It touches NAME.building, and
# NAME.waiting when it says that it waits; what it got or met goes to stdout.
WORKER = """
import json, logging, sys, time
from pathlib import Path
from vlaprep.coordinate import compute_once

folder, name, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def await_file(name):
    while not (folder / name).exists():
        time.sleep(0.01)

class Tell(logging.Handler):
    def emit(self, record):
        if "waiting" in record.getMessage():
            (folder / f"{name}.waiting").touch()

def build(aside):
    (folder / f"{name}.building").touch()
    if mode == "hang":
        await_file("never")
    if mode == "fail":
        await_file("fail")
        raise ValueError("robot 7 sent no actions")
    time.sleep(0.3)
    (aside / "done").write_text(name)

logging.getLogger("vlaprep").addHandler(Tell())
logging.getLogger("vlaprep").setLevel("INFO")
(folder / f"{name}.ready").touch()
await_file("go")
try:
    target = compute_once(folder / "fit", is_complete=lambda p: (p / "done").exists(),
                          build=build, wait_timeout_s=60)
    print(json.dumps({"built_by": (target / "done").read_text()}))
except Exception as error:
    print(json.dumps({"error": type(error).__name__, "message": str(error)}))
"""


def is_complete(folder: Path) -> bool:
    return (folder / "done").exists()


def builds(name: str, log: list[str] | None = None) -> Callable[[Path], None]:
    def build(aside: Path) -> None:
        if log is not None:
            log.append(name)
        (aside / "done").write_text(name)

    return build


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


class Crew:
    """Worker processes around one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members: dict[str, subprocess.Popen[str]] = {}

    def hire(self, *names: str, mode: str = "build") -> None:
        for name in names:
            command = [sys.executable, "-c", WORKER, str(self.folder), name, mode]
            self.members[name] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        wait_for(lambda: set(names) <= self.that_are("ready"))

    def go(self) -> None:
        (self.folder / "go").touch()

    def that_are(self, state: str) -> set[str]:
        return {path.stem for path in self.folder.glob(f"*.{state}")}

    def report(self, name: str) -> dict[str, str]:
        out, _ = self.members[name].communicate(timeout=60)
        answer: dict[str, str] = json.loads(out)
        return answer

    def dismiss(self) -> None:
        for member in self.members.values():
            member.kill()
            member.wait()
            if member.stdout:
                member.stdout.close()


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path)
    yield crew
    crew.dismiss()


class TestComputeOnce:
    def test_eight_processes_ask_and_one_computes(self, crew: Crew, tmp_path: Path) -> None:
        names = [f"w{i}" for i in range(8)]
        crew.hire(*names)
        crew.go()
        reports = [crew.report(name) for name in names]
        (leader,) = crew.that_are("building")
        assert reports == [{"built_by": leader}] * 8
        assert not list(tmp_path.glob(".fit*"))

    def test_a_killed_leader_is_followed_at_once(self, crew: Crew, tmp_path: Path) -> None:
        crew.hire("leader", mode="hang")
        crew.go()
        wait_for(lambda: crew.that_are("building") == {"leader"})
        crew.hire("follower", mode="build")
        wait_for(lambda: crew.that_are("waiting") == {"follower"})
        killed = time.monotonic()
        crew.members["leader"].kill()
        assert crew.report("follower") == {"built_by": "follower"}
        assert time.monotonic() - killed < 2
        assert not list(tmp_path.glob(".fit*"))  # the dead leader's half-built folder is gone too

    def test_a_failing_leader_fails_all_who_wait(self, crew: Crew, tmp_path: Path) -> None:
        crew.hire("leader", mode="fail")
        crew.go()
        wait_for(lambda: crew.that_are("building") == {"leader"})
        names = ["w0", "w1", "w2"]
        crew.hire(*names)
        wait_for(lambda: crew.that_are("waiting") == set(names))
        failed = time.monotonic()
        (tmp_path / "fail").touch()
        for name in names:
            report = crew.report(name)
            assert report["error"] == "FitFailedElsewhereError"
            assert report["message"].startswith("ValueError: robot 7 sent no actions")
            assert str(crew.members["leader"].pid) in report["message"]
        assert time.monotonic() - failed < 5
        assert crew.report("leader")["error"] == "ValueError"
        assert crew.that_are("building") == {"leader"}
        crew.hire("late")  # comes after the failure, so it tries afresh and clears the marker
        assert crew.report("late") == {"built_by": "late"}
        assert not list(tmp_path.glob(".fit*"))

    def test_a_whole_target_on_a_read_only_disk_needs_no_lock(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "fit").mkdir()
        builds("early")(tmp_path / "fit")

        def forbidden(*args: Any) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr(os, "open", forbidden)
        monkeypatch.setattr(os, "mkdir", forbidden)
        target = tmp_path / "fit"
        options: Any = {"is_complete": is_complete, "build": builds("x"), "wait_timeout_s": 1}
        assert compute_once(target, **options) == target
        with pytest.raises(OSError, match="Read-only"):
            compute_once(tmp_path / "other", **options)

    def test_own_failure_passes_through_and_does_not_block_a_second_try(
        self, tmp_path: Path
    ) -> None:
        def fail(aside: Path) -> None:
            (aside / "part").touch()
            raise KeyError("no column action")

        target = tmp_path / "cache" / "fit"
        for _ in range(2):
            with pytest.raises(KeyError, match="no column action"):
                compute_once(target, is_complete=is_complete, build=fail, wait_timeout_s=1)
            marker = json.loads((tmp_path / "cache" / ".fit.failed.json").read_text())
            assert marker["format_version"] == 1
            assert (marker["type"], marker["pid"]) == ("KeyError", os.getpid())
            assert {path.name for path in target.parent.iterdir()} == {".fit.failed.json"}
        compute_once(target, is_complete=is_complete, build=builds("me"), wait_timeout_s=1)
        assert {path.name for path in target.parent.iterdir()} == {"fit"}

    def test_an_interrupted_leader_leaves_no_marker(self, tmp_path: Path) -> None:
        def interrupted(aside: Path) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            compute_once(
                tmp_path / "fit", is_complete=is_complete, build=interrupted, wait_timeout_s=1
            )
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("content", "message"),
        [("{ torn", "cannot be read"), ("[1]", "cannot be read"), ("{}", "cannot be read"),
         ('{"format_version": 2}', "upgrade vlaprep")],
    )  # fmt: skip
    def test_a_marker_that_says_nothing_still_says_that_it_failed(
        self, tmp_path: Path, content: str, message: str
    ) -> None:
        target = tmp_path / "fit"
        with file_lock(target, 1):
            failing = threading.Thread(target=self.expect_failure, args=(target, message))
            failing.start()
            time.sleep(0.2)
            (tmp_path / ".fit.failed.json").write_text(content)
        failing.join(10)
        assert not failing.is_alive()
        assert self.met == [message]

    met: list[str]

    def expect_failure(self, target: Path, message: str) -> None:
        self.met = []
        with pytest.raises(FitFailedElsewhereError, match=message):
            compute_once(target, is_complete=is_complete, build=builds("x"), wait_timeout_s=9)
        self.met.append(message)

    def test_without_file_locks_everybody_computes_and_the_first_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        no_locks(monkeypatch, errno.ENOSYS)
        log: list[str] = []

        def build(aside: Path) -> None:
            builds("slow", log)(aside)
            if len(log) == 1:  # while we build, another does too and is done first
                compute_once(
                    tmp_path / "fit",
                    is_complete=is_complete,
                    build=builds("fast", log),
                    wait_timeout_s=1,
                )

        compute_once(tmp_path / "fit", is_complete=is_complete, build=build, wait_timeout_s=1)
        assert log == ["slow", "fast"]
        assert (tmp_path / "fit" / "done").read_text() == "fast"
        assert len(caplog.records) == 1


def no_locks(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(coordinate, "_UNSUPPORTED_WARNED", set())


class TestFileLock:
    def test_excludes_and_cleans_up(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        with file_lock(path, 1) as locked:
            assert locked is True
            with pytest.raises(WaitTimeoutError), file_lock(path, 0.1):
                pass
        assert list(tmp_path.iterdir()) == []
        with file_lock(path, 0):
            pass

    def test_the_message_of_a_time_out_names_lock_and_holder(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        with (
            file_lock(tmp_path / "f", 1),
            pytest.raises(WaitTimeoutError) as caught,
            file_lock(tmp_path / "f", 0.3, poll_s=0.01),
        ):
            pass
        text = str(caught.value)
        assert str(tmp_path / ".f.lock") in text
        assert f"process {os.getpid()} on" in text
        told = [r for r in caplog.records if r.getMessage().startswith("waiting for the lock")]
        assert len(told) == 1
        assert told[0].levelname == "INFO"
        assert f"process {os.getpid()} on" in told[0].getMessage()

    def test_no_two_hold_it_though_every_holder_removes_it(self, tmp_path: Path) -> None:
        path, inside, counter = tmp_path / "n", [0], [0]

        def work() -> None:
            for _ in range(25):
                with file_lock(path, 60, poll_s=0.0005):
                    inside[0] += 1
                    assert inside[0] == 1
                    before = counter[0]
                    time.sleep(0.0002)
                    counter[0] = before + 1
                    inside[0] -= 1

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counter == [200]

    @pytest.mark.parametrize("code", [38, 95, 9, errno.ENOLCK])
    def test_without_support_it_warns_once_and_goes_on(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        code: int,
    ) -> None:
        no_locks(monkeypatch, code)
        for name in ("a", "b"):
            with file_lock(tmp_path / name, 1) as locked:
                assert locked is False
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert "has no file locks" in record.getMessage()
        assert str(tmp_path) in record.getMessage()
        assert list(tmp_path.iterdir()) == []

    def test_an_error_in_the_block_is_the_callers_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unsupported = OSError(errno.ENOSYS, "of the block, not of the lock")
        with pytest.raises(OSError, match="of the block"), file_lock(tmp_path / "f", 1):
            raise unsupported
        no_locks(monkeypatch, errno.EBADF)
        with pytest.raises(OSError, match="of the block"), file_lock(tmp_path / "f", 1):
            raise unsupported
        assert list(tmp_path.iterdir()) == []

    def test_other_lock_errors_are_errors(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        no_locks(monkeypatch, errno.EIO)
        with pytest.raises(OSError, match="Input/output"), file_lock(tmp_path / "f", 1):
            pass

    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o555)
        try:
            with mode_bits_bind(), pytest.raises(PermissionError), file_lock(tmp_path / "f", 1):
                pass
        finally:
            tmp_path.chmod(0o755)

    def test_a_lock_file_of_someone_else_can_be_taken(self, tmp_path: Path) -> None:
        sidecar = tmp_path / ".f.lock"
        sidecar.touch()
        sidecar.chmod(0o444)
        with mode_bits_bind(), file_lock(tmp_path / "f", 1) as locked:
            assert locked is True

    def test_a_forked_child_does_not_keep_it(self, tmp_path: Path) -> None:
        code = (
            "import os, sys, time; from pathlib import Path\n"
            "from vlaprep.coordinate import file_lock\n"
            "path = Path(sys.argv[1])\n"
            "with file_lock(path, 1):\n"
            "    child = os.fork()\n"
            "    if child == 0: time.sleep(60); os._exit(0)\n"
            "with file_lock(path, 1): print('again')\n"
            "os.kill(child, 9); os.waitpid(child, 0)\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "f")],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert ran.stdout == "again\n", ran.stderr
