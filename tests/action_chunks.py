"""Made-up action chunks and a processor fitted on them, for the tests of the processor."""

from __future__ import annotations

import copy
import functools
import logging
from typing import TYPE_CHECKING, Any

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


class Tensor:
    """Stands for a torch tensor: no NumPy form before detach, cpu and a cast."""

    def __init__(self, array: np.ndarray, ready: tuple[str, ...] = ()) -> None:
        self.array, self.ready = array, ready
        self.dtype, self.ndim = f"torch.{array.dtype}", array.ndim

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("can't convert cuda bfloat16 tensor that requires grad to numpy")

    def detach(self) -> Tensor:
        return Tensor(self.array, (*self.ready, "detach"))

    def cpu(self) -> Tensor:
        return Tensor(self.array, (*self.ready, "cpu"))

    def double(self) -> Tensor:
        return Tensor(self.array.astype(np.float64), (*self.ready, "double"))

    def numpy(self) -> np.ndarray:
        assert set(self.ready) == {"detach", "cpu", "double"}
        return self.array
