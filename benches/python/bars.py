"""The bars: what each bench has to reach, by capability, and whether it did.

They hold for the data sets of size L. A new capability adds its own table to `BARS`.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from data import DIMS, Config, dataset, lengths_and_tasks
from paired import NUMPY, OURS, rounds_for
from suite import DRAWN, PARTITION, POLARS, PYARROW, SCIPY, STATISTICS
from suite_codec import FASTOKENS, TOKENIZERS
from suite_fit import GIGABPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from paired import Result

MB = 10**6
FIT_MEMORY = 8200 * MB // 6
"""A sixth of what the published fit of 100,000 chunks takes."""
SIZE = "L"


@dataclass(frozen=True)
class Bar:
    """What one bench has to reach."""

    times: Mapping[str, float]
    """By side: how many times as long as ours it has to take, in the median of pairs."""
    memory: Callable[[Config], int] | None = None
    """The most bytes that ours may hold over what the process held before."""


class Verdict(NamedTuple):
    """One bar beside what was measured."""

    case: str
    what: str
    bar: str
    measured: str
    verdict: str


def _scan_memory(variant: str, config: Config) -> int:
    """Bytes of the result and the footers, and 64 MB."""
    config = config.of(variant)
    frames = int(lengths_and_tasks(config.episodes, config.tasks)[0].sum())
    footers = 0
    for path in dataset(config, variant).glob("data/chunk-*/*.parquet"):
        with path.open("rb") as file:
            file.seek(-8, 2)
            footers += int.from_bytes(file.read(4), "little")
    return frames * (8 + 4 * DIMS) + footers + 64 * MB


def _scan(variant: str, times: Mapping[str, float]) -> Bar:
    return Bar(times, partial(_scan_memory, variant))


BARS: Mapping[str, Mapping[str, Bar]] = {
    "scan and statistics": {
        "scan-rec": _scan("rec", {NUMPY: 50, PYARROW: 4, POLARS: 8}),
        "scan-conv": _scan("conv", {NUMPY: 100, PYARROW: 5}),
        "scan-zstd": _scan("zstd", {NUMPY: 12, PYARROW: 1.8, POLARS: 1.8}),
        "scan-v21": _scan("v21", {NUMPY: 25, POLARS: 4}),
        **{f"scan-{name}-1thread": Bar({PYARROW: 1}) for name in ("rec", "conv", "zstd", "v21")},
        "fit-input-rec": Bar({NUMPY: 150, DRAWN: 4}, lambda _: 150 * MB),
        "fit-input-conv": Bar({NUMPY: 100, PYARROW: 5}, lambda _: 300 * MB),
        "episodes-rec": Bar({NUMPY: 8, STATISTICS: 4}),
        "quantile-4.8M": Bar({NUMPY: 8, PARTITION: 3}),
        "quantile-51k": Bar({NUMPY: 2, PARTITION: 1.2}),
        "rank-arrays": Bar({NUMPY: 300, POLARS: 12}),
        "rank-lists": Bar({NUMPY: 20}),
    },
    "the codec": {
        "encode-1": Bar({NUMPY: 10, FASTOKENS: 4}),
        "encode-64": Bar({NUMPY: 12, FASTOKENS: 2.2}),
        "encode-256": Bar({NUMPY: 13, FASTOKENS: 2.2}),
        "encode-1024-two-threads": Bar({NUMPY: 22, FASTOKENS: 4.5}),
        "encode-call": Bar({NUMPY: 8}),
        "decode-1": Bar({NUMPY: 10, TOKENIZERS: 4}),
        "decode-256": Bar({NUMPY: 25, TOKENIZERS: 4}),
        "dct": Bar({NUMPY: 10, SCIPY: 1}),
    },
    "fit": {
        "fit-1024": Bar({NUMPY: 9, GIGABPE: 1.3}),
        "fit-10000": Bar({NUMPY: 10, GIGABPE: 1.3}),
        "fit-100000": Bar({NUMPY: 13, GIGABPE: 1.3}, lambda _: FIT_MEMORY),
    },
    "every window": {
        "sweep-rec": Bar({}, lambda _: 300 * MB),
        "sweep-conv": Bar({}, lambda _: 300 * MB),
    },
}


def names() -> set[str]:
    """All benches that have a bar."""
    return {name for bars in BARS.values() for name in bars}


def verdicts(results: Mapping[str, Result], config: Config) -> Mapping[str, list[Verdict]]:
    """By capability: each bar of the benches that ran."""
    return {
        capability: [
            verdict
            for name, bar in bars.items()
            if name in results
            for verdict in _of_case(name, results[name], bar, config)
        ]
        for capability, bars in BARS.items()
    }


def _of_case(name: str, result: Result, bar: Bar, config: Config) -> Iterator[Verdict]:
    enough = result.rounds >= rounds_for(max(map(max, result.seconds.values())))
    for side, wanted in bar.times.items():
        what, bound = f"{side} / {OURS}", f"≥ {wanted:g}"
        if side not in result.seconds:
            yield Verdict(name, what, bound, "", "not measured")
            continue
        ratios = result.ratios(side)
        middle = statistics.median(ratios)
        measured = f"{middle:.3g} ({min(ratios):.3g} to {max(ratios):.3g})"
        verdict = "reached" if middle >= wanted else "NOT REACHED"
        if not enough:
            verdict += f"; too few pairs ({result.rounds})"
        yield Verdict(name, what, bound, measured, verdict)
    if bar.memory is not None and OURS in result.peak:
        most, peak = bar.memory(config), result.peak[OURS]
        verdict = "reached" if peak <= most else "NOT REACHED"
        measured = f"{peak / MB:,.0f} MB"
        yield Verdict(name, f"memory of {OURS}", f"≤ {most / MB:,.0f} MB", measured, verdict)
