"""Made-up action chunks and a processor fitted on them, for the tests of the processor."""

from __future__ import annotations

import copy
import functools
import logging
from typing import TYPE_CHECKING

import numpy as np

from vlaprep.processing_action_tokenizer import FastActionProcessor

if TYPE_CHECKING:
    import pytest

H, D = 10, 3


def smooth(n: int, h: int = H, d: int = D, seed: int = 0) -> np.ndarray:
    """Chunks (n, h, d) float32 of slow motion within [-1, 1]."""
    rng = np.random.default_rng(seed)
    phase, speed = rng.uniform(0, 6, (n, 1, d)), rng.uniform(0.05, 0.4, (n, 1, d))
    return np.sin(phase + speed * np.arange(h)[:, None]).astype(np.float32)


@functools.cache
def _fitted() -> FastActionProcessor:
    return FastActionProcessor.fit(smooth(300), vocab_size=512)


def fitted() -> FastActionProcessor:
    """A processor fitted on `smooth`."""
    return copy.deepcopy(_fitted())


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged as a warning or worse."""
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
