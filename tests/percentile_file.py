"""Loads of a dataset, and the percentile file they find, for the tests of speed labels."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

import reference
from vlaprep import speed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

ODD = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]
"""Boundaries that no computation here gives."""


class Load:
    """The three mappings of a load: ``tasks`` gives the lengths of each task's episodes."""

    def __init__(self, tasks: dict[int, list[int]]) -> None:
        pairs = [(task, length) for task, lengths in tasks.items() for length in lengths]
        self.lengths = {episode: length for episode, (_, length) in enumerate(pairs)}
        self.task_of = {episode: task for episode, (task, _) in enumerate(pairs)}
        self.texts = {f"task {task} ✓ 拾う": task for task in tasks}
        self.answer = {task: reference.percentiles(lengths) for task, lengths in tasks.items()}

    def __call__(self, root: Path, **options: Any) -> dict[int, list[float] | None]:
        return speed.load_or_compute_speed_percentiles(
            root, self.lengths, self.task_of, self.texts, **options
        )


HUNDRED = list(range(100, 200))
ONE = Load({0: HUNDRED})
TWO = Load({0: HUNDRED, 1: [7, 8]})


def row(task: int, n_episodes: int = 100, percentiles: Any = ODD) -> dict[str, Any]:
    return {"task_index": task, "task": "", "n_episodes": n_episodes, "percentiles": percentiles}


def file_in(root: Path) -> Path:
    return root / speed.SPEED_PERCENTILES_PATH


def put(root: Path, *rows: dict[str, Any] | bytes) -> bytes:
    lines = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in rows]
    file_in(root).parent.mkdir(exist_ok=True)
    file_in(root).write_bytes(data := b"".join(line + b"\n" for line in lines))
    return data


def rows_in(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file_in(root).read_bytes().decode().split("\n") if line]


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def refuse(code: int) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return call
