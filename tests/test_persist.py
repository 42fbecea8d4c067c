"""Files and folders appear whole or not at all, whatever happens on the way."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from kill_points import killed_at_every_step
from vlaprep import persist


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def fill(text: str) -> Any:
    def build(folder: Path) -> None:
        (folder / "part").mkdir()
        (folder / "part" / "a.json").write_text(text)
        (folder / "b.json").write_text(text)

    return build


def content(folder: Path) -> str | None:
    """What `fill` wrote, None where nothing stands; a mixture or a part fails."""
    if not folder.exists():
        return None
    texts = {(folder / "part" / "a.json").read_text(), (folder / "b.json").read_text()}
    assert len(texts) == 1
    return texts.pop()


def is_whole(folder: Path) -> bool:
    return (folder / "b.json").is_file()


class TestWriteAtomic:
    def test_writes_and_replaces_and_leaves_nothing_beside(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        for data in (b"", b"one\n", os.urandom(100_000)):
            persist.write_atomic(path, data)
            assert path.read_bytes() == data
        assert names(tmp_path) == {"rows.jsonl"}

    def test_mode_bits_follow_the_umask(self, tmp_path: Path) -> None:
        before = os.umask(0o027)
        try:
            persist.write_atomic(tmp_path / "f", b"x")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640

    def test_a_link_is_replaced_and_its_target_kept(self, tmp_path: Path) -> None:
        blob, link = tmp_path / "blob", tmp_path / "link"
        blob.write_bytes(b"old")
        link.symlink_to(blob)
        persist.write_atomic(link, b"new")
        assert (blob.read_bytes(), link.read_bytes()) == (b"old", b"new")

    @pytest.mark.parametrize("call", ["write", "fsync", "replace"])
    def test_a_failing_disk_leaves_the_old_file_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        path = tmp_path / "f"
        path.write_bytes(b"old")

        def full(*args: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, call, full)
        with pytest.raises(OSError, match="No space"):
            persist.write_atomic(path, b"new")
        assert path.read_bytes() == b"old"
        assert names(tmp_path) == {"f"}

    def test_killed_at_any_step_leaves_old_or_new(self, tmp_path: Path) -> None:
        path, old, new = tmp_path / "f", b"old row\n" * 9, b"new row\n" * 99
        path.write_bytes(old)
        seen = []
        for _ in killed_at_every_step(lambda: persist.write_atomic(path, new)):
            seen.append(path.read_bytes())
            persist.remove_leftovers(path)
            assert names(tmp_path) == {"f"}
            path.write_bytes(old)
        assert len(seen) > 10
        assert set(seen) == {old, new}
        assert path.read_bytes() == new  # the child that got through

    def test_a_folder_that_cannot_be_synced_is_no_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.fsync

        def fsync(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "Invalid argument")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        persist.write_atomic(tmp_path / "f", b"x")
        assert (tmp_path / "f").read_bytes() == b"x"

    def test_readers_see_whole_contents_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # 1,000 of them take seconds
        path = tmp_path / "f"
        allowed = {bytes([65 + i]) * (1 + 9000 * i) for i in range(5)}
        ring = sorted(allowed)
        persist.write_atomic(path, ring[0])
        done, seen = threading.Event(), set()

        def read() -> None:
            while not done.is_set():
                seen.add(persist.read_retrying(path))

        reader = threading.Thread(target=read)
        reader.start()
        for i in range(1000):
            persist.write_atomic(path, ring[i % 5])
        done.set()
        reader.join()
        assert seen <= allowed
        assert len(seen) > 1


class TestReadRetrying:
    def failing_reads(
        self, monkeypatch: pytest.MonkeyPatch, code: int, times: int, pauses: list[float]
    ) -> None:
        real, left = Path.read_bytes, times

        def read_bytes(path: Path) -> bytes:
            nonlocal left
            left -= 1
            if left >= 0:
                raise OSError(code, os.strerror(code), str(path))
            return real(path)

        monkeypatch.setattr(Path, "read_bytes", read_bytes)
        monkeypatch.setattr(persist.time, "sleep", pauses.append)

    @pytest.mark.parametrize("code", [errno.ESTALE, errno.ENOENT])
    def test_what_passes_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        (tmp_path / "f").write_bytes(b"x")
        pauses: list[float] = []
        self.failing_reads(monkeypatch, code, 3, pauses)
        assert persist.read_retrying(tmp_path / "f") == b"x"
        assert len(pauses) == 3

    def test_but_not_for_ever(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pauses: list[float] = []
        self.failing_reads(monkeypatch, errno.ESTALE, 1000, pauses)
        with pytest.raises(OSError, match=str(tmp_path)) as caught:
            persist.read_retrying(tmp_path / "f")
        assert caught.value.errno == errno.ESTALE
        assert sum(pauses) < 2

    @pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
    def test_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        (tmp_path / "f").write_bytes(b"x")
        pauses: list[float] = []
        self.failing_reads(monkeypatch, code, 1, pauses)
        with pytest.raises(OSError, match=os.strerror(code)):
            persist.read_retrying(tmp_path / "f")
        assert pauses == []

    def test_an_absent_file_is_absent_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pauses: list[float] = []
        monkeypatch.setattr(persist.time, "sleep", pauses.append)
        with pytest.raises(FileNotFoundError):
            persist.read_retrying(tmp_path / "absent")
        assert pauses == []


class TestPublishFolder:
    def test_publishes_and_makes_parents(self, tmp_path: Path) -> None:
        target = tmp_path / "cache" / "deep" / "fit"
        persist.publish_folder(target, fill("one"))
        assert content(target) == "one"
        assert names(target.parent) == {"fit"}

    def test_replaces_what_is_broken(self, tmp_path: Path) -> None:
        target = tmp_path / "fit"
        target.mkdir()
        (target / "half.json").write_text("{")
        persist.publish_folder(target, fill("one"), is_complete=is_whole)
        assert content(target) == "one"
        assert not (target / "half.json").exists()
        target = tmp_path / "file"
        target.write_text("not even a folder")
        persist.publish_folder(target, fill("two"), is_complete=is_whole)
        assert content(target) == "two"
        assert names(tmp_path) == {"fit", "file"}

    def test_keeps_a_whole_one_that_another_published_meanwhile(self, tmp_path: Path) -> None:
        target = tmp_path / "fit"

        def build(folder: Path) -> None:
            fill("ours")(folder)
            persist.publish_folder(target, fill("theirs"))

        persist.publish_folder(target, build, is_complete=is_whole)
        assert content(target) == "theirs"
        assert names(tmp_path) == {"fit"}

    def test_a_failing_build_leaves_nothing_new(self, tmp_path: Path) -> None:
        target = tmp_path / "fit"
        persist.publish_folder(target, fill("old"))

        def build(folder: Path) -> None:
            fill("new")(folder)
            raise ValueError("out of chunks")

        with pytest.raises(ValueError, match="out of chunks"):
            persist.publish_folder(target, build)
        assert content(target) == "old"
        assert names(tmp_path) == {"fit"}

    def test_killed_at_any_step_leaves_nothing_or_all(self, tmp_path: Path) -> None:
        target, seen = tmp_path / "fit", []
        for _ in killed_at_every_step(lambda: persist.publish_folder(target, fill("new"))):
            seen.append(content(target))
            persist.remove_leftovers(target)
            assert names(tmp_path) <= {"fit"}
            if seen[-1]:
                shutil.rmtree(target)
        assert len(seen) > 15
        assert set(seen) == {None, "new"}
        assert content(target) == "new"

    def test_others_leftovers_are_not_ours(self, tmp_path: Path) -> None:
        kept = {"fit", ".fit.lock", ".fit2.1-ab.tmp", "fit.1-ab.tmp"}
        for name in kept | {".fit.1-ab.tmp"}:
            (tmp_path / name).mkdir()
        persist.remove_leftovers(tmp_path / "fit")
        assert names(tmp_path) == kept


@pytest.mark.parametrize("found", [2, 99, 0, -1, "1", 1.0, True, None])
def test_unknown_versions_are_refused(found: object) -> None:
    with pytest.raises(LookupError, match=r"report r\.json: format_version") as caught:
        persist.check_format_version(
            found, supported=1, what="report", path=Path("r.json"), error=LookupError
        )
    newer = type(found) is int and found > 1
    assert ("upgrade vlaprep" in str(caught.value)) is newer


def test_known_versions_pass() -> None:
    for version in (1, 2, 3):
        assert version == persist.check_format_version(
            version, supported=3, what="report", path=Path("r.json"), error=ValueError
        )
