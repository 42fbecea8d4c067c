"""The rows of ``meta/speed_percentiles.jsonl``: one JSON object a line, UTF-8.

``{"task_index": int, "task": str, "n_episodes": int, "percentiles": [10 floats] | null}`` is
OpenTau's schema. It knows no version, and none is written; a row that bears a ``format_version``
newer than 1 is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vlaprep.errors import PercentileFileError
from vlaprep.persist import check_format_version, read_retrying
from vlaprep.speed_buckets import boundaries_fault

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FORMAT_VERSION = 1
_LARGEST = 2**63 - 1

SPEED_PERCENTILES_PATH = "meta/speed_percentiles.jsonl"
"""The file, relative to the dataset root."""


@dataclass(frozen=True)
class Row:
    """One line of the file: its bytes, and what they say."""

    raw: bytes
    task_index: int
    n_episodes: int
    percentiles: list[float] | None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Row:
        """Make the row of a new line."""
        return cls(encode_row(content), **_facts(content))


def encode_row(row: Mapping[str, Any]) -> bytes:
    """Return the line of a row, without its end; every float comes back with the same bits."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair has no UTF-8 form, but a JSON escape
        return json.dumps(row, allow_nan=False).encode()


def read_rows(path: Path) -> list[Row] | None:
    """Return the rows of the file in order, duplicates included, or None where there is no file."""
    try:
        content = read_retrying(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PercentileFileError(
            f"cannot read {path}: {error.strerror or error}; make it readable, or remove it to "
            "have it computed again"
        ) from error
    return [
        _parse_line(line, path, number)
        for number, line in enumerate(content.split(b"\n"), start=1)
        if line.strip()
    ]


def _parse_line(line: bytes, path: Path, number: int) -> Row:
    try:
        row = json.loads(line.decode())
        if isinstance(row, dict) and "format_version" in row:  # first: the rest may differ then
            _check_version(row["format_version"], path, number)
        return Row(line, **_facts(row))
    except PercentileFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise PercentileFileError(
            f"torn or malformed row: {path}, line {number}: {error}; mend the line, or delete the "
            "file to have it computed again"
        ) from error


def _check_version(found: object, path: Path, number: int) -> None:
    check_format_version(
        found,
        supported=_FORMAT_VERSION,
        what=f"line {number} of",
        path=path,
        error=PercentileFileError,
    )


def _facts(row: object) -> dict[str, Any]:
    """Return what a row says, or raise ValueError that says what is wrong with it."""
    if not isinstance(row, dict):
        raise ValueError(f"it holds {type(row).__name__}, not an object")  # noqa: TRY004
    task_index, n_episodes = row.get("task_index"), row.get("n_episodes", 0)
    if type(task_index) is not int or abs(task_index) > _LARGEST:
        raise ValueError(f"task_index is {task_index!r}, not an integer of 64 bits")
    if type(n_episodes) is not int or not 0 <= n_episodes <= _LARGEST:
        raise ValueError(f"n_episodes is {n_episodes!r}, not a count")
    if "percentiles" not in row:
        raise ValueError("it has no percentiles")
    percentiles = row["percentiles"]
    if percentiles is not None:
        if not isinstance(percentiles, list):
            raise ValueError(f"percentiles is {percentiles!r}, neither a list nor null")
        if fault := boundaries_fault(percentiles):
            raise ValueError(f"percentiles {fault}, wanted are 10 non-decreasing finite numbers")
    return {"task_index": task_index, "n_episodes": n_episodes, "percentiles": percentiles}
