"""Caches that cannot be written: what is whole there is found, what is absent is a clear error."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vlaprep
from lerobot_folder import make_rows, write_v3
from outcome import mode_bits_bind
from vlaprep.coordinate import compute_once

SMALL: dict[str, Any] = {"n_samples": 20, "chunk_size": 5}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_v3(tmp_path / "data", make_rows(dict.fromkeys(range(4), (0, 12))))


@pytest.fixture
def fitted(root: Path, tmp_path: Path) -> Path:
    """A whole entry in its cache."""
    return Path(vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=tmp_path / "c", **SMALL))


def stamps(cache: Path) -> dict[str, tuple[int, ...]]:
    """What any write, rename or lock file leaves a trace in."""
    paths = [cache, *sorted(cache.rglob("*"))]
    stats = {str(path.relative_to(cache)): path.stat() for path in paths}
    return {
        name: (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        for name, stat in stats.items()
    }


def lock_up(cache: Path) -> None:
    for path in (cache, *cache.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)


def test_a_hit_writes_nothing(root: Path, fitted: Path) -> None:
    before = stamps(fitted.parent)
    again = vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=fitted.parent, **SMALL)
    assert Path(again) == fitted
    assert stamps(fitted.parent) == before


def test_a_hit_needs_no_right_to_write(root: Path, fitted: Path) -> None:
    lock_up(fitted.parent)
    before = stamps(fitted.parent)
    try:
        with mode_bits_bind():
            again = vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=fitted.parent, **SMALL)
            vlaprep.verify_ranks(again)
            vlaprep.FastActionProcessor.from_pretrained(again)
        assert Path(again) == fitted
        assert stamps(fitted.parent) == before
    finally:
        for path in (fitted.parent, fitted):
            path.chmod(0o755)


def test_without_an_entry_it_is_an_error_that_knows_a_way_out(root: Path, fitted: Path) -> None:
    cache = fitted.parent
    lock_up(cache)
    before = stamps(cache)
    try:
        with mode_bits_bind(), pytest.raises(PermissionError) as caught:
            vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=cache, **SMALL, seed=1)
        assert stamps(cache) == before
    finally:
        for path in (cache, fitted):
            path.chmod(0o755)
    told = str(caught.value)
    assert f"cannot write to {cache} (Permission denied), and it holds no whole " in told
    assert "pass a folder that can be written, or have this built there once" in told


def test_so_is_a_cache_that_cannot_be_made(root: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(0o555)
    cache = closed / "a" / "b"
    with mode_bits_bind(), pytest.raises(PermissionError, match=f"cannot write to {cache} "):
        vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=cache, **SMALL)
    assert list(closed.iterdir()) == []


def test_a_lock_file_that_someone_left_there_does_not_hide_it(tmp_path: Path) -> None:
    """The lock of a colleague can be taken, so it is the build that is refused."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / ".fit.lock").touch()
    lock_up(cache)
    options: Any = {"is_complete": Path.exists, "build": Path.touch, "wait_timeout_s": 1}
    with mode_bits_bind(), pytest.raises(PermissionError, match=f"cannot write to {cache} "):
        compute_once(cache / "fit", **options)
    cache.chmod(0o755)


def test_a_refusal_of_something_else_is_left_alone(tmp_path: Path) -> None:
    def build(aside: Path) -> None:
        raise PermissionError(13, "Permission denied", "/dataset/meta/info.json")

    options: Any = {"is_complete": Path.exists, "build": build, "wait_timeout_s": 1}
    with pytest.raises(PermissionError, match="/dataset/meta/info"):
        compute_once(tmp_path / "fit", **options)


MOUNTED = """
import json, subprocess, sys
import vlaprep

root, cache = sys.argv[1:]
mount = [["mount", "--bind", cache, cache], ["mount", "-o", "remount,bind,ro", cache]]
for command in mount:
    subprocess.run(command, check=True, capture_output=True)
options = {"dataset_root": root, "cache_dir": cache, "n_samples": 20, "chunk_size": 5}
folder = vlaprep.fit_fast_tokenizer(**options)
try:
    vlaprep.fit_fast_tokenizer(**options, seed=1)
except OSError as error:
    print(json.dumps([folder, error.errno, str(error)]))
"""


def may_mount() -> bool:
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("mount"):
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="no right to mount here: permissions stand in for it")
def test_on_a_disk_that_is_mounted_read_only(root: Path, fitted: Path) -> None:

    before = stamps(fitted.parent)
    command = ["unshare", "--mount", sys.executable, "-c", MOUNTED, str(root), str(fitted.parent)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    folder, code, told = json.loads(ran.stdout)
    assert (Path(folder), code) == (fitted, errno.EROFS)
    assert f"cannot write to {fitted.parent} (Read-only file system), and it holds no" in told
    assert stamps(fitted.parent) == before
