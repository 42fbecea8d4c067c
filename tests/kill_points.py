"""Kill a process at every system call by which it changes the disk."""

from __future__ import annotations

import os
import signal
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CHANGING = ("open", "write", "fsync", "close", "mkdir", "replace", "rename", "unlink")


def killed_at_every_step(act: Callable[[], object]) -> Iterator[int]:
    """Run ``act()`` in a child that dies (SIGKILL) at its 1st, 2nd, … step; yield after each death.

    A step is the moment before and the moment after each such call; of a write, half is on disk.
    Ends when a child gets through, which is not yielded.
    """
    step = 1
    while True:
        with warnings.catch_warnings():  # the child neither waits nor locks anything
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _arm(step)
            code = 1
            try:
                act()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, f"the child failed at step {step}"
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        yield step
        step += 1


def _arm(step: int) -> None:
    left = step

    def tick() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def armed(real: Callable[..., Any], *, halve: bool) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            tick()
            if halve and len(args[1]) > 1:
                args = (args[0], args[1][: len(args[1]) // 2])
            result = real(*args, **kwargs)
            tick()
            return result

        return call

    for name in _CHANGING:
        setattr(os, name, armed(getattr(os, name), halve=name == "write"))
