"""The percentile file: absent, found, behind, lacking tasks, broken, read-only, fought over."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reference
from kill_points import killed_at_every_step
from outcome import mode_bits_bind
from percentile_file import (
    HUNDRED,
    ODD,
    ONE,
    TWO,
    Load,
    file_in,
    messages,
    put,
    refuse,
    row,
    rows_in,
)
from vlaprep import coordinate, speed
from vlaprep.errors import EpisodeSelectionError, PercentileFileError
from vlaprep.ranks import Ranks

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("fresh_warnings")


class TestFileAbsent:
    def test_is_computed_and_written(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        load = Load({12: HUNDRED, 3: [42], 5: [10 * i for i in range(10)]})
        assert load(tmp_path) == load.answer
        text = file_in(tmp_path).read_text(encoding="utf-8")
        assert [json.loads(line) for line in text.splitlines()] == [
            {
                "task_index": task,
                "task": f"task {task} ✓ 拾う",
                "n_episodes": n,
                "percentiles": load.answer[task],
            }
            for task, n in ((3, 1), (5, 10), (12, 100))
        ]
        assert "✓ 拾う" in text
        assert text.endswith("]}\n")
        assert [path.name for path in (tmp_path / "meta").iterdir()] == ["speed_percentiles.jsonl"]
        assert load(str(tmp_path)) == load.answer  # type: ignore[arg-type]
        assert messages(caplog) == []

    def test_bits_survive_the_file(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(5)
        load = Load({t: rng.integers(1, 3000, 200).tolist() for t in range(20)})
        first, second = load(tmp_path), load(tmp_path)
        assert repr(first) == repr(second) == repr(load.answer)

    def test_no_task_no_file(self, tmp_path: Path) -> None:
        assert Load({})(tmp_path) == {}
        assert list(tmp_path.iterdir()) == []

    def test_unresolved_episodes_take_no_part(self, tmp_path: Path) -> None:
        load = Load({-1: HUNDRED, 0: HUNDRED})
        assert load(tmp_path) == {0: load.answer[0]}
        assert [r["task_index"] for r in rows_in(tmp_path)] == [0]

    def test_a_text_with_half_a_surrogate_pair(self, tmp_path: Path) -> None:
        load = Load({0: [1]})
        load.texts = {"\ud83d pick\n\u2028 up": 0}
        load(tmp_path)
        assert load(tmp_path) == {0: None}
        assert rows_in(tmp_path)[0]["task"] == "\ud83d pick\n\u2028 up"

    def test_a_task_without_text(self, tmp_path: Path) -> None:
        load = Load({4: [1]})
        load.texts = {}
        load(tmp_path)
        assert rows_in(tmp_path) == [row(4, 1, None)]

    def test_an_episode_without_length(self, tmp_path: Path) -> None:
        load = Load({0: HUNDRED})
        del load.lengths[41]
        with pytest.raises(EpisodeSelectionError, match="episode 41 has a task but no length"):
            load(tmp_path)

    def test_a_length_that_is_none(self, tmp_path: Path) -> None:
        load = Load({0: HUNDRED})
        load.lengths[3] = 7.5  # type: ignore[assignment]
        with pytest.raises(TypeError, match="episode lengths must be integers"):
            load(tmp_path)
        assert list(tmp_path.iterdir()) == []


class TestFilePresent:
    @pytest.mark.parametrize(
        ("n_episodes", "stale"), [(100, False), (990, False), (99, True), (None, True)]
    )
    def test_is_trusted_and_untouched(
        self,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        n_episodes: int | None,
        stale: bool,
    ) -> None:
        content = row(0, n_episodes or 0)
        if n_episodes is None:
            del content["n_episodes"]
        before, stamp = put(tmp_path, content), file_in(tmp_path).stat()
        for times in (1, 2):
            assert ONE(tmp_path) == {0: ODD}
            assert len(messages(caplog)) == times * stale
        assert file_in(tmp_path).read_bytes() == before
        now = file_in(tmp_path).stat()
        assert (now.st_ino, now.st_mtime_ns) == (stamp.st_ino, stamp.st_mtime_ns)
        if stale:
            text = messages(caplog)[0]
            for part in ("Stale", str(file_in(tmp_path)), f" {n_episodes or 0} ", " 100", "delete"):
                assert part in text

    def test_rows_of_other_tasks_come_too_and_the_last_duplicate_wins(self, tmp_path: Path) -> None:
        put(tmp_path, row(0, 1), row(7, 1, None), b"  ", row(0, 99, [2.0] * 10))
        assert ONE(tmp_path) == {0: [2.0] * 10, 7: None}

    def test_counts_of_duplicates_add_up(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        put(tmp_path, row(0, 50), row(0, 50))
        ONE(tmp_path)
        assert messages(caplog) == []

    def test_an_empty_file_is_a_file_without_rows(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        put(tmp_path)
        assert Load({})(tmp_path) == {}
        assert file_in(tmp_path).read_bytes() == b""
        assert ONE(tmp_path) == ONE.answer
        assert "Adding 1 missing task" in messages(caplog)[0]


class TestTasksMissing:
    @pytest.mark.parametrize("end", [b"\n", b"", b"\n\n", b"\r\n"])
    def test_are_appended(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, end: bytes
    ) -> None:
        kept = b'{"n_episodes":3, "task_index": 4,  "percentiles": null, "by": "hand"}'
        put(tmp_path)
        file_in(tmp_path).write_bytes(kept + end)
        load = Load({6: HUNDRED, 4: HUNDRED, 5: [1, 2]})
        assert load(tmp_path) == {4: None, 5: None, 6: load.answer[6]}
        lines = file_in(tmp_path).read_bytes().split(b"\n")
        assert lines[0].rstrip(b"\r") == kept
        assert [r["task_index"] for r in rows_in(tmp_path)] == [4, 5, 6]
        (text,) = messages(caplog)  # nothing about stale here
        for part in ("Adding 2 missing task", "[5, 6]", str(file_in(tmp_path))):
            assert part in text
        before = file_in(tmp_path).read_bytes()
        caplog.clear()
        load(tmp_path)
        assert file_in(tmp_path).read_bytes() == before
        assert not any("Adding" in text for text in messages(caplog))

    def test_the_reading_of_one_who_was_first_is_returned(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        real = speed.percentiles_by_task

        def meanwhile(*args: Any) -> Any:
            put(tmp_path, row(0), row(9))
            return real(*args)

        monkeypatch.setattr(speed, "percentiles_by_task", meanwhile)
        assert TWO(tmp_path) == {0: ODD, 9: ODD, 1: None}
        assert [r["task_index"] for r in rows_in(tmp_path)] == [0, 9, 1]
        assert "Adding 1 missing task(s) [1]" in messages(caplog)[0]

    def test_leftovers_of_the_dead_are_swept(self, tmp_path: Path) -> None:
        put(tmp_path, row(0))
        (tmp_path / "meta" / ".speed_percentiles.jsonl.1-ab.tmp").write_bytes(b"half")
        (tmp_path / "meta" / ".speed_percentiles.jsonl.lock").write_bytes(b"process 1 on moon")
        TWO(tmp_path)
        assert [path.name for path in (tmp_path / "meta").iterdir()] == ["speed_percentiles.jsonl"]


BROKEN = {
    "torn": b'{"task_index": 0, "task": "", "n_epi',
    "nul bytes": b"\0" * 40,
    "no utf-8": b'{"task_index": 0, "task": "\xff", "percentiles": null}',
    "no object": b"[1, 2]",
    "deep": b"[" * 100_000,
    "no task": b'{"percentiles": null}',
    "task as text": b'{"task_index": "0", "percentiles": null}',
    "task as truth": b'{"task_index": true, "percentiles": null}',
    "no percentiles": b'{"task_index": 0, "n_episodes": 3}',
    "a number": b'{"task_index": 0, "percentiles": 3.0}',
    "nine": json.dumps(row(0, 5, ODD[:9])).encode(),
    "nan": json.dumps(row(0, 5, [*ODD[:9], float("nan")])).encode(),
    "text inside": json.dumps(row(0, 5, [*ODD[:9], "10"])).encode(),
    "falling": json.dumps(row(0, 5, ODD[::-1])).encode(),
    "negative count": json.dumps(row(0, -5)).encode(),
    "count as text": json.dumps(row(0) | {"n_episodes": "5"}).encode(),
    "newer": json.dumps(row(0) | {"format_version": 2, "percentiles": [1.0]}).encode(),
    "no version": json.dumps(row(0) | {"format_version": "new"}).encode(),
}


class TestBrokenFile:
    @pytest.mark.parametrize("is_main", [True, False])
    @pytest.mark.parametrize("fault", BROKEN)
    def test_is_an_error_and_stays(self, tmp_path: Path, fault: str, is_main: bool) -> None:
        before = put(tmp_path, row(8), BROKEN[fault], row(9))
        for load in (ONE, Load({8: HUNDRED, 9: HUNDRED})):
            with pytest.raises(PercentileFileError) as caught:
                load(tmp_path, accelerator=Ranks(1 - is_main, 2, is_main))
            assert str(file_in(tmp_path)) in str(caught.value)
            assert "line 2" in str(caught.value)
            assert "delete the file" in str(caught.value)
        assert file_in(tmp_path).read_bytes() == before

    def test_version_1_is_fine(self, tmp_path: Path) -> None:
        put(tmp_path, row(0) | {"format_version": 1})
        assert ONE(tmp_path) == {0: ODD}

    def test_one_that_cannot_be_read(self, tmp_path: Path) -> None:
        put(tmp_path, row(0))
        file_in(tmp_path).chmod(0)
        with mode_bits_bind(), pytest.raises(PercentileFileError, match="Permission denied"):
            ONE(tmp_path)
        file_in(tmp_path).unlink()
        file_in(tmp_path).mkdir()
        with pytest.raises(PercentileFileError, match=r"cannot read .*Is a directory"):
            ONE(tmp_path)

    def test_breaking_between_the_looks_is_seen_under_the_lock(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = speed.percentiles_by_task

        def meanwhile(*args: Any) -> Any:
            put(tmp_path, b'{"task_')
            return real(*args)

        monkeypatch.setattr(speed, "percentiles_by_task", meanwhile)
        with pytest.raises(PercentileFileError, match="line 1"):
            ONE(tmp_path)
        assert file_in(tmp_path).read_bytes() == b'{"task_\n'


class TestReadOnly:
    def check(self, root: Path, caplog: pytest.LogCaptureFixture) -> None:
        present = list(root.rglob("*"))
        for _ in range(3):
            assert TWO(root) == TWO.answer
        (text,) = [t for t in messages(caplog) if "speed percentiles" in t]
        assert str(file_in(root)) in text
        assert list(root.rglob("*")) == present

    @pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC])
    @pytest.mark.parametrize("call", ["mkdir", "open", "write", "replace"])
    def test_any_refusal_of_the_disk(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        call: str,
        code: int,
    ) -> None:
        if call != "mkdir":
            (tmp_path / "meta").mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(os, call, refuse(code))
            self.check(tmp_path, caplog)

    def test_mode_bits(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "meta").mkdir()
        (tmp_path / "meta").chmod(0o555)
        with mode_bits_bind():
            self.check(tmp_path, caplog)

    def test_rows_that_are_there_still_count(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        put(tmp_path, row(0))
        monkeypatch.setattr(os, "open", refuse(errno.EROFS))
        assert TWO(tmp_path) == {0: ODD, 1: None}
        assert [t for t in messages(caplog) if "speed percentiles" in t] == messages(caplog)

    def test_a_lock_that_is_never_free(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        put(tmp_path, row(0))
        monkeypatch.setattr(speed, "_LOCK_TIMEOUT_S", 0.1)
        with coordinate.file_lock(file_in(tmp_path), 1):
            assert TWO(tmp_path) == {0: ODD, 1: None}
        assert "speed percentiles" in messages(caplog)[0]
        assert ".lock" in messages(caplog)[0]

    def test_each_root_is_warned_of(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(speed, "_atomic_write_jsonlines", refuse(errno.EACCES))
        for root in (tmp_path / "a", tmp_path / "b", tmp_path / "a"):
            ONE(root)
        assert len(messages(caplog)) == 2


APPEND = """
import sys
from pathlib import Path
from vlaprep import speed
root, task = Path(sys.argv[1]), int(sys.argv[2])
lengths = {e: 100 * task + e for e in range(20)}
speed.percentiles_by_task  # imported; now all start as near to each other as can be
(root / f"ready{task}").touch()
while not (root / "go").exists():
    pass
for part in (task, task + 16):
    speed.load_or_compute_speed_percentiles(root, lengths, dict.fromkeys(lengths, part), {})
"""


def test_sixteen_processes_append_different_tasks_and_no_row_is_lost(tmp_path: Path) -> None:
    before = put(tmp_path, row(99), row(98, 3, None))
    command = [sys.executable, "-c", APPEND, str(tmp_path)]
    writers = [
        subprocess.Popen([*command, str(task)], stderr=subprocess.PIPE) for task in range(16)
    ]
    while len(list(tmp_path.glob("ready*"))) < 16 and all(w.poll() is None for w in writers):
        pass
    (tmp_path / "go").touch()
    for writer in writers:
        _, problems = writer.communicate(timeout=120)
        assert writer.returncode == 0, problems.decode()
    assert file_in(tmp_path).read_bytes().startswith(before)
    rows = {r["task_index"]: r for r in rows_in(tmp_path)[2:]}
    assert sorted(rows) == list(range(32))
    assert len(rows_in(tmp_path)) == 34
    for task, content in rows.items():
        lengths = [100 * (task % 16) + e for e in range(20)]
        assert content["percentiles"] == reference.percentiles(lengths)


def test_killed_at_any_step_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    old, seen = put(tmp_path, row(0)), []
    for _ in killed_at_every_step(lambda: TWO(tmp_path)):
        seen.append(file_in(tmp_path).read_bytes())
        file_in(tmp_path).write_bytes(old)
    new = file_in(tmp_path).read_bytes()
    assert len(seen) > 20
    assert set(seen) == {old, new}
    assert new.startswith(old)
    # The child that got through swept away what all the dead had left.
    assert [path.name for path in (tmp_path / "meta").iterdir()] == ["speed_percentiles.jsonl"]
