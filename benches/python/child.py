"""One run of one side of a case, in a process of its own; started by `paired.run_apart`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from data import Config
from paired import run_here
from suite import SUITE


def memory(field: str) -> int:
    """``VmRSS`` or ``VmHWM`` of this process, in bytes.

    Not ``ru_maxrss``: that one is inherited, so a child of a large parent never looks small.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split(f"{field}:")[1].split()[0])


def main(name: str, side: str, number: str, episodes: str, folder: str, out: str) -> None:
    """Warm up on a tiny input, so that all modules are loaded, then run and report."""
    config = Config(Path(folder), int(episodes))
    SUITE[name](config.tiny()).sides[side](0)
    case = SUITE[name](config)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets VmHWM
    run = run_here(case.sides[side], int(number))
    run = run._replace(peak=memory("VmHWM") - before, answer=run.answer if case.fresh else None)
    Path(out).write_bytes(pickle.dumps(run))


if __name__ == "__main__":
    main(*sys.argv[1:])
