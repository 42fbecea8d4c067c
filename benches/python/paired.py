"""Paired timing: every round runs all sides one after the other, and ratios are taken in a round.

What disturbs a shared machine for longer than a round disturbs both sides of a ratio. The answers
are compared before anything is timed.
"""

from __future__ import annotations

import gc
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from data import Config

NUMPY, OURS = "NumPy", "vlaprep"
ROUNDS, FEW_ROUNDS = 7, 3
LONG = 5.0
"""Seconds: where a run takes longer, `FEW_ROUNDS` do."""
CHILD = Path(__file__).with_name("child.py")


def assert_equal(got: Any, want: Any) -> None:
    """Equal in every bit, whatever the containers."""
    np.testing.assert_equal(got, want, strict=isinstance(got, np.ndarray))


@dataclass(frozen=True)
class Case:
    """One job, done in several ways."""

    words: str
    """The job, as the table says it."""
    sides: Mapping[str, Callable[[int], Any]]
    """`NUMPY`, `OURS` and peers. Each is given the number of the round, from 0."""
    same: Callable[[Any, Any], None] = assert_equal
    """Raises where an answer is not the one of `NUMPY`."""
    fresh: bool = False
    """Each run has a process of its own, as the whole jobs have in use."""
    memory: bool = False
    """Peak memory is measured too, in processes of their own."""


class Run(NamedTuple):
    """One run of one side."""

    seconds: float
    peak: int
    """Bytes at the highest, over what the process held before; 0 where it was not looked at."""
    answer: Any


@dataclass(frozen=True)
class Result:
    """What a case took."""

    words: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """By side, one for each round."""
    peak: dict[str, int] = field(default_factory=dict)
    """Bytes by side: the median of its runs in processes of their own."""

    def median(self, side: str) -> float:
        """Median seconds of a side."""
        return statistics.median(self.seconds[side])

    @property
    def rounds(self) -> int:
        """Pairs of each ratio."""
        return len(self.seconds[OURS])

    def ratios(self, side: str) -> list[float]:
        """How many times as long as ours a side took, by round."""
        pairs = zip(self.seconds[side], self.seconds[OURS], strict=True)
        return [theirs / ours for theirs, ours in pairs]


def rounds_for(longest: float) -> int:
    """How many pairs are enough, given the seconds of the longest run."""
    return FEW_ROUNDS if longest > LONG else ROUNDS


def measure(name: str, case: Case, config: Config, rounds: int | None = None) -> Result:
    """Compare the answers of all sides, then time them in turn, then weigh them.

    Round 0 is for the comparison; the timed ones are 1 to `rounds`, or as many as are enough.
    """

    def here(side: str, number: int) -> Run:
        return run_here(case.sides[side], number)

    def apart(side: str, number: int) -> Run:
        return run_apart(name, side, number, config)

    run = apart if case.fresh else here
    first = run(NUMPY, 0)
    longest = first.seconds
    for side in case.sides:
        if side != NUMPY:
            other = run(side, 0)
            longest = max(longest, other.seconds)
            case.same(other.answer, first.answer)
            del other
    del first
    rounds = rounds or rounds_for(longest)
    runs: dict[str, list[Run]] = {side: [] for side in case.sides}
    for number in range(1, rounds + 1):
        for side in case.sides:
            runs[side].append(run(side, number)._replace(answer=None))
    result = Result(case.words)
    for side, timed in runs.items():
        result.seconds[side] = [r.seconds for r in timed]
        if case.memory:
            weighed = timed if case.fresh else [apart(side, 1)]
            result.peak[side] = int(statistics.median(r.peak for r in weighed))
    return result


def run_here(call: Callable[[int], Any], number: int) -> Run:
    """Run in this process."""
    gc.collect()
    begin = time.perf_counter()
    answer = call(number)
    return Run(time.perf_counter() - begin, 0, answer)


def run_apart(name: str, side: str, number: int, config: Config) -> Run:
    """Run in a process of its own, which has all modules loaded before the clock starts."""
    with tempfile.TemporaryDirectory(dir=config.folder) as folder:
        out = Path(folder) / "run.pickle"
        arguments = [name, side, str(number), str(config.episodes), str(config.folder), str(out)]
        subprocess.run([sys.executable, str(CHILD), *arguments], check=True)
        run: Run = pickle.loads(out.read_bytes())
    return run
