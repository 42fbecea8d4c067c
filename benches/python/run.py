"""Run the benches and print their table: ``python benches/python/run.py --help``."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import statistics
import sys
from fnmatch import fnmatch
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import peers
from data import CHUNK_SIZE, DIMS, EPISODES, Config, lengths_and_tasks
from paired import NUMPY, OURS, measure
from suite import MAX_ROUNDS, SUITE
from vlaprep import _native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paired import Result

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
ROUNDS = {"S": 7, "M": 5, "L": 3}


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    if _native.__build__ != "release" and not options.allow_debug:
        sys.exit(
            f"vlaprep is a {_native.__build__} build, whose times say nothing: install a release "
            "build (make bench does), or pass --allow-debug to see whether the benches work"
        )
    names = [
        name
        for name in SUITE
        if not options.names or any(fnmatch(name, wanted) for wanted in options.names)
    ]
    if not names:
        sys.exit(f"no bench is called {' or '.join(options.names)}; there are: {', '.join(SUITE)}")
    if options.update_readme and (options.names or _native.__build__ != "release"):
        sys.exit("--update-readme takes all benches, of a release build")
    config = Config(options.folder.resolve(), options.episodes or EPISODES[options.size])
    config.folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it wants to tell of PyTorch
    rounds = options.rounds or ROUNDS[options.size]
    results = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        results.append(measure(name, SUITE[name](config), config, rounds))
    report = f"{preamble(config, rounds)}\n\n{table(results)}"
    print(report)
    if options.update_readme:
        update(README, f"{report}\n\n{provenance(options.size)}")


def preamble(config: Config, rounds: int) -> str:
    """Say what was measured, where, and how to read it."""
    lengths, _ = lengths_and_tasks(config.episodes, config.tasks)
    packages = ["numpy", "scipy", "pyarrow", "tokenizers", "transformers"]
    packages += ["polars"] if peers.HAS_POLARS else []
    packages += ["fastokens"] if peers.HAS_FASTOKENS else []
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    debug = "" if _native.__build__ == "release" else "**Not a release build: no times.** "
    text = (
        f"{debug}Datasets of {config.episodes:,} episodes, {int(lengths.sum()):,} frames, {DIMS} "
        f"action dims; chunks of {CHUNK_SIZE} steps; page cache warm. NumPy is the references' "
        "own way (`benches/python/baseline.py`), peers what a careful engineer would write "
        "(`benches/python/peers.py`). A figure such as 3.0 (2.5 to 3.5) says how many times as "
        f"long as vlaprep that took: median, least and most of {rounds} pairs. All answers are "
        "compared before anything is timed. Memory is the peak over what the process held before. "
        "Fits train by the `tokenizers` package on both sides; vlaprep's also checks what it saved. "
        "Encoding is on one thread, but for the peers, whose BPE takes what there is."
    )
    machine = f"{_cpu()}, {os.cpu_count()} CPUs; Python {platform.python_version()}, {versions}."
    return "\n\n".join(fill(part, 108, break_on_hyphens=False) for part in (text, machine))


def provenance(size: str) -> str:
    """Say how to make the table again."""
    return (
        "Made, after `make bench` has built what it needs, by\n"
        f"`.venv/bin/python benches/python/run.py --size {size} --update-readme`."
    )


def table(results: Sequence[Result]) -> str:
    """One row for each result, as markdown."""
    head = ("", NUMPY, OURS, f"{NUMPY} / {OURS}", f"peers / {OURS}", f"memory, {NUMPY} → {OURS}")
    lines = [_line(head), _line(("---", *["---:"] * 3, "---", "---:"))]
    for result in results:
        others = [side for side in result.seconds if side not in (NUMPY, OURS)]
        weights = [_bytes(result.peak[side]) for side in (NUMPY, OURS) if side in result.peak]
        lines.append(
            _line(
                (
                    result.words,
                    _time(result.median(NUMPY)),
                    _time(result.median(OURS)),
                    _ratio(result.ratios(NUMPY)),
                    "; ".join(f"{side}: {_ratio(result.ratios(side))}" for side in others),
                    " → ".join(weights),
                )
            )
        )
    return "\n".join(lines)


def update(path: Path, section: str) -> None:
    """Put `section` between the marks in a page; all else stays as it is."""
    text = path.read_text(encoding="utf-8")
    before, found_begin, rest = text.partition(BEGIN)
    _, found_end, after = rest.partition(END)
    if not (found_begin and found_end):
        sys.exit(f"{path} lacks the marks {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n{section}\n{END}{after}", encoding="utf-8")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _ratio(ratios: Sequence[float]) -> str:
    middle, least, most = statistics.median(ratios), min(ratios), max(ratios)
    return f"{_short(middle)} ({_short(least)} to {_short(most)})"


def _time(seconds: float) -> str:
    return f"{_short(seconds * 1e3)} ms" if seconds < 1 else f"{_short(seconds)} s"


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"


def _short(value: float) -> str:
    """Two digits that count, or all before the point."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which, such as dct or 'scan-*'; all by default")
    parser.add_argument("--size", choices=EPISODES, default="S", help="of the datasets")
    parser.add_argument("--episodes", type=int, help="of the datasets, instead of --size")
    parser.add_argument(
        "--rounds", type=int, choices=range(1, MAX_ROUNDS + 1), metavar="N", help="pairs a bench"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build/bench", help="for datasets")
    parser.add_argument("--update-readme", action="store_true", help="write the table there")
    parser.add_argument("--allow-debug", action="store_true", help="run an unoptimised build")
    return parser


if __name__ == "__main__":
    main()
