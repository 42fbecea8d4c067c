"""The command ``vlaprep fit``: how its options are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from command_line import SMALL_FIT, run_json
from lerobot_folder import make_rows, write_meta, write_v3

if TYPE_CHECKING:
    from pathlib import Path


def test_a_task_is_named_by_text_or_number(tmp_path: Path) -> None:
    root = write_v3(tmp_path / "data", make_rows({e: (e % 3, 20) for e in range(7)}))
    write_meta(root, tasks={0: "1", 1: "pour", 2: "pour"})
    arguments = ("fit", root, "--cache-dir", tmp_path / "cache", *SMALL_FIT, "--no-gate")
    for tasks, count in (("1", 3), ("2", 2), ("pour", 4)):
        assert run_json(*arguments, "--tasks", tasks)["draws"]["episodes"] == count
