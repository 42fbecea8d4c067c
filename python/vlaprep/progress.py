"""A progress bar on stderr, where a person is looking."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["progress"]


def _ignore(_description: str = "") -> None:
    """Nobody is looking."""


@contextmanager
def progress(
    total: int, description: str = "", *, unit: str = "it", hidden: bool = False
) -> Iterator[Callable[[str], None]]:
    """Show how many of ``total`` steps are done, while the block runs.

    Nothing is made where nothing would be seen: the lock that tqdm takes for every bar, shown or
    not, is shared by all processes forked from one parent, and one that is killed never gives it
    back.

    Parameters
    ----------
    total : int
        How many steps there are.
    description : str
        What is counted; it stands before the bar.
    unit : str
        What a step is called.
    hidden : bool
        Show nothing, whoever is looking.

    Yields
    ------
    callable
        ``advance(description="")`` marks one step as done.
    """
    if hidden or sys.stderr is None or not sys.stderr.isatty():
        yield _ignore
        return
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        _lock: Any = threading.RLock()  # of this process alone

    with Bar(total=total, desc=description, unit=unit, file=sys.stderr, leave=False) as bar:

        def advance(description: str = "") -> None:
            if description:
                bar.set_description(description)
            bar.update()

        yield advance
