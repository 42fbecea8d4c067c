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

import bars
import peer_files
import peers
from data import CHUNK_SIZE, DIMS, EPISODES, VARIANTS, Config, lengths_and_tasks
from paired import FEW_ROUNDS, LONG, NUMPY, OURS, ROUNDS, measure
from suite import SUITE
from suite_codec import MAX_ROUNDS
from vlaprep import _native

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from paired import Result

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    if _native.__build__ != "release" and not options.allow_debug:
        sys.exit(
            f"vlaprep is a {_native.__build__} build, whose times say nothing: install a release "
            "build (make bench does), or pass --allow-debug to see whether the benches work"
        )
    names = chosen(options.names, list(SUITE), only=bars.names() if options.bars else None)
    if not names:
        sys.exit(f"no bench is called {' or '.join(options.names)}; there are: {', '.join(SUITE)}")
    whole = not (options.names or options.bars)
    if options.update_readme and not (whole and _native.__build__ == "release"):
        sys.exit("--update-readme takes all benches, of a release build")
    config = Config(options.folder.resolve(), options.episodes or EPISODES[options.size])
    config.folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it wants to tell of PyTorch
    results: dict[str, Result] = {}
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        results[name] = measure(name, SUITE[name](config), config, options.rounds)
        print(row(results[name]), file=sys.stderr, flush=True)
    report = f"{preamble(config, options.rounds)}\n\n{table(results.values())}"
    print(report)
    if options.bars:
        print(f"\n{bars_report(results, config)}")
    if options.update_readme:
        update(README, f"{report}\n\n{provenance(options.size)}")


def chosen(
    wanted: Sequence[str], names: Sequence[str], only: Container[str] | None = None
) -> list[str]:
    """Names that match one of the patterns `wanted`, if there are any, and are in `only`."""
    return [
        name
        for name in names
        if (not wanted or any(fnmatch(name, pattern) for pattern in wanted))
        and (only is None or name in only)
    ]


def preamble(config: Config, rounds: int | None) -> str:
    """Say what was measured, where, and how to read it."""
    lengths, _ = lengths_and_tasks(config.episodes, config.tasks)
    packages = ["numpy", "scipy", "pyarrow", "tokenizers", "transformers"]
    packages += ["polars"] if peer_files.HAS_POLARS else []
    packages += ["fastokens"] if peers.HAS_FASTOKENS else []
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    smaller = "".join(
        f" ({name}: {config.of(name).episodes:,} episodes)"
        for name in VARIANTS
        if config.of(name) != config
    )
    pairs = f"{ROUNDS} pairs, {FEW_ROUNDS} where a run takes over {LONG:g} s"
    if rounds is not None:
        pairs = f"{rounds} pair{'s' * (rounds > 1)}"
    debug = "" if _native.__build__ == "release" else "**Not a release build: no times.** "
    text = (
        f"{debug}Datasets of {config.episodes:,} episodes, {int(lengths.sum()):,} frames, {DIMS} "
        f"action dims{smaller}; chunks of {CHUNK_SIZE} steps; page cache warm. NumPy is the "
        "references' own way (`benches/python/baseline.py`), peers what a careful engineer would "
        "write (`peers.py`, `peer_files.py`). A figure such as 3.0 (2.5 to 3.5) says how many "
        f"times as long as vlaprep that took: median, least and most of {pairs}. All answers are "
        "compared before anything is timed. Memory is the peak over what the process held before. "
        "The job that fits also checks what it saved. "
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


HEAD = ("", NUMPY, OURS, f"{NUMPY} / {OURS}", f"peers / {OURS}", f"memory, {NUMPY} → {OURS}")


def table(results: Iterable[Result]) -> str:
    """One row for each result, as markdown."""
    lines = [_line(HEAD), _line(("---", *["---:"] * 3, "---", "---:"))]
    return "\n".join([*lines, *map(row, results)])


def row(result: Result) -> str:
    """Format times, what they are to ours, and the memory, that of peers in brackets."""
    others = [side for side in result.seconds if side not in (NUMPY, OURS)]
    weights = [_bytes(result.peak[side]) for side in (NUMPY, OURS) if side in result.peak]
    peers = [f"{side} {_bytes(result.peak[side])}" for side in others if side in result.peak]
    return _line(
        (
            result.words,
            _time(result.median(NUMPY)),
            _time(result.median(OURS)),
            _ratio(result.ratios(NUMPY)),
            "; ".join(f"{side}: {_ratio(result.ratios(side))}" for side in others),
            " → ".join(weights) + (f" ({', '.join(peers)})" if peers else ""),
        )
    )


def bars_report(results: Mapping[str, Result], config: Config) -> str:
    """Say by capability what each bench has to reach, what it did, and whether that is enough."""
    parts = []
    if config.episodes != EPISODES[bars.SIZE]:
        parts.append(
            f"The bars are for size {bars.SIZE}, {EPISODES[bars.SIZE]:,} episodes, not for these "
            f"{config.episodes:,}."
        )
    head = ("bench", "what", "bar", "measured", "")
    for capability, verdicts in bars.verdicts(results, config).items():
        if verdicts:
            lines = [head, ("---",) * len(head), *verdicts]
            parts.append(f"Bars of {capability}:\n\n" + "\n".join(map(_line, lines)))
    return "\n\n".join(parts)


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
        "--rounds",
        type=int,
        choices=range(1, MAX_ROUNDS + 1),
        metavar="N",
        help=f"pairs a bench: else {ROUNDS}, or {FEW_ROUNDS} where a run takes over {LONG:g} s",
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build/bench", help="for datasets")
    parser.add_argument(
        "--bars", action="store_true", help="only what has a bar, and say whether it is reached"
    )
    parser.add_argument("--update-readme", action="store_true", help="write the table there")
    parser.add_argument("--allow-debug", action="store_true", help="run an unoptimised build")
    return parser


if __name__ == "__main__":
    main()
