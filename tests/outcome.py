"""What a call did, and whether that is one of the outcomes a case allows."""

from __future__ import annotations

import ctypes
import logging
import os
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

MAY_ANSWER = {"ok", "ok_warn", "ok_or_error", "warn_or_error"}
MUST_WARN = {"ok_warn", "warn_or_error"}
MAY_FAIL = {"error", "ok_or_error", "warn_or_error"}
NOT_ORDINARY = (AttributeError, ImportError, MemoryError, UnicodeError)


@dataclass(frozen=True)
class Seen:
    """The answer of a call, or its error, and every warning on the way."""

    answer: Any
    error: Exception | None
    warnings: tuple[str, ...]

    def warnings_with(self, *texts: str) -> list[str]:
        """Warnings that mention every one of `texts`, upper or lower case."""
        wanted = [text.casefold() for text in texts]
        return [line for line in self.warnings if all(w in line.casefold() for w in wanted)]

    def hold(self, expected: dict[str, Any]) -> bool:
        """Assert that this is an allowed outcome; True where there is an answer to check."""
        word, mentions = expected["outcome"], expected.get("mentions", [])
        if self.error is not None:
            text = str(self.error).casefold()
            assert word in MAY_FAIL, f"{word} expected: {self.error!r}"
            assert not isinstance(self.error, NOT_ORDINARY)
            assert all(mention.casefold() in text for mention in mentions), (mentions, text)
            return False
        assert word in MAY_ANSWER, f"{word} expected, but there is an answer"
        if word in MUST_WARN:
            assert self.warnings_with(*mentions), (mentions, self.warnings)
        if "warn_times" in expected:
            assert len(self.warnings_with(*mentions)) == expected["warn_times"], self.warnings
        return True


def observe(call: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> Seen:
    """Run `call`; only ordinary errors are caught, so that a Rust panic fails the test."""
    caplog.clear()
    answer, error = None, None
    with caplog.at_level(logging.WARNING), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer = call()
        except Exception as raised:
            error = raised
    logged = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    return Seen(answer, error, (*logged, *(str(w.message) for w in caught)))


def tree(root: Path) -> dict[str, bytes]:
    """Every file below `root` with its bytes, lock files left out."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in files
        if path.suffix != ".lock"
    }


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapSets(ctypes.Structure):
    _fields_ = tuple((n, ctypes.c_uint32) for n in ("effective", "permitted", "inheritable"))


@contextmanager
def mode_bits_bind() -> Iterator[None]:
    """Let permission bits bind root too: this thread lays down CAP_DAC_OVERRIDE for a while."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _CapHeader(0x20080522, 0), (_CapSets * 2)()
    assert libc.capget(ctypes.byref(header), sets) == 0, os.strerror(ctypes.get_errno())
    before = sets[0].effective
    sets[0].effective = before & ~0b110  # CAP_DAC_OVERRIDE is 1, CAP_DAC_READ_SEARCH is 2
    assert libc.capset(ctypes.byref(header), sets) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        sets[0].effective = before
        libc.capset(ctypes.byref(header), sets)
