"""The command line, and the only place that prints (through `vlaprep.cli_session`).

``--json`` puts one object on stdout; all that people read goes to stderr. Exit codes: 0 done, 1
failed, 2 wrong usage, 3 a check found problems, 130 interrupted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from vlaprep import __version__
from vlaprep.cli_audit import audit_tables
from vlaprep.cli_options import (
    Alphabet,
    Coverage,
    DatasetArgument,
    DebugOption,
    EpisodesOption,
    ExcludeOption,
    JsonOption,
    NaN,
    Normalized,
    RevisionOption,
    ScalesOption,
    ThreadsOption,
    Ties,
    VocabSizesOption,
    ids_of,
    numbers_of,
    options_of,
)
from vlaprep.cli_push import push
from vlaprep.cli_session import FOUND
from vlaprep.cli_session import session as open_session
from vlaprep.cli_tables import (
    demo_tables,
    description_tables,
    finding_lines,
    fit_tables,
    speed_tables,
    statistics_tables,
)

__all__ = ["app", "main"]

app = typer.Typer(
    name="vlaprep",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={
        # --n_samples, as Python spells it, is --n-samples; the same for every option.
        "token_normalize_func": lambda token: token.replace("_", "-"),
        "help_option_names": ["-h", "--help"],
    },
)


def main() -> None:
    """Run the command line and exit with its code."""
    # transformers tells everybody who imports it that PyTorch is absent; no job here needs it.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    app(prog_name="vlaprep")


# ---------------------------------------------------------------------------------- commands


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vlaprep {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Prepare the actions of LeRobot datasets for training vision-language-action models.

    Tables, warnings and progress go to stderr; stdout is for --json alone.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a check found problems,
    130 interrupted.

    \b
    Example: see all of it at work, without data and without network.
      vlaprep demo
    """  # noqa: D301


@app.command()
def speed(
    dataset: DatasetArgument,
    episodes: EpisodesOption = None,
    revision: RevisionOption = None,
    ties: Annotated[
        Ties,
        typer.Option(
            help="Which label a length gets that equals several boundaries: the highest (right, "
            "as in OpenTau) or the middle one."
        ),
    ] = Ties.right,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show everything, write nothing.")
    ] = False,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Replace the file instead of trusting it.")
    ] = False,
    num_threads: ThreadsOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Label how fast each episode is among the episodes of its task.

    The episodes of a task are ranked by length: label 0 is fastest, 100 slowest. The boundaries
    between labels are written to meta/speed_percentiles.jsonl inside the dataset, where OpenTau
    looks for them. A file that is there is kept as it is; rows of tasks it lacks are added.

    \b
    Example: look first, then write.
      vlaprep speed ~/data/fold_towel --dry-run
      vlaprep speed ~/data/fold_towel
    """  # noqa: D301
    selection = ids_of(episodes)
    with open_session("speed", as_json=as_json, debug=debug) as session:
        from vlaprep.dataset import open_dataset
        from vlaprep.jobs import run_speed

        session.say(f"reading {dataset}")
        opened = open_dataset(
            dataset, revision=revision, episodes=selection, num_threads=num_threads
        )
        result = run_speed(opened, ties=ties.value, dry_run=dry_run, recompute=recompute)
        if selection is not None and result["file"]["state"] in ("written", "replaced"):
            session.warn(
                "the boundaries are those of the selected episodes alone; a load of all episodes "
                "will call them stale"
            )
        findings = opened.check()
        told = {
            "dataset": opened.repo_id or str(opened.root),
            "revision": opened.revision,
            "root": str(opened.root),
            **result,
            "findings": [finding._asdict() for finding in findings],
        }
        untold = [f for f in findings if not any(f.message in text for text in session.warnings)]
        session.finish(told, speed_tables(told), *finding_lines(untold))


@app.command()
def fit(
    dataset: DatasetArgument,
    cache_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Where fitted tokenizers live.")
    ] = Path("~/.cache/vlaprep/tokenizers"),
    chunk_size: Annotated[
        int, typer.Option(min=1, help="Frames of a chunk: the policy's time horizon.")
    ] = 50,
    n_samples: Annotated[int, typer.Option(min=1, help="Chunks to fit on.")] = 1024,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 42,
    action_key: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the actions.")
    ] = "action",
    episodes: EpisodesOption = None,
    exclude_episodes: ExcludeOption = None,
    coverage: Annotated[
        Coverage,
        typer.Option(
            help="Fit on the chunks drawn, or also on one window for each coefficient that they "
            "lack, so that all of the dataset can be encoded."
        ),
    ] = Coverage.sample,
    nan: Annotated[
        NaN, typer.Option(help="Windows with NaN, infinity or null: leave out, or refuse.")
    ] = NaN.skip,
    scale: Annotated[float, typer.Option(help="Quantisation steps per unit.")] = 10.0,
    vocab_size: Annotated[int, typer.Option(min=1, help="Vocabulary to train to.")] = 1024,
    max_token_length: Annotated[
        int, typer.Option(min=1, help="Bound on the characters of a token.")
    ] = 10_000,
    alphabet: Annotated[
        Alphabet, typer.Option(help="The published format, or one that takes fewer tokens.")
    ] = Alphabet.bytes,
    compatible: Annotated[
        bool,
        typer.Option(
            "--compatible",
            help="Let the vocabulary outgrow --vocab-size where its alphabet alone does, as the "
            "published class does.",
        ),
    ] = False,
    base_tokenizer_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Folder or Hub id of another processor class. Default: the built-in one, which "
            "needs no network.",
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option(help="Whether code that comes with that class may run.")
    ] = True,
    dataset_root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Local copy of DATASET, which is then only a name."),
    ] = None,
    revision: RevisionOption = None,
    wait_timeout_s: Annotated[
        float, typer.Option(min=0, help="How long to wait for another process that fits the same.")
    ] = 1800.0,
    advise: Annotated[
        bool,
        typer.Option(
            "--advise",
            help="Fit nothing; show what the scales of --scales and the vocabularies of "
            "--vocab-sizes would make of these data.",
        ),
    ] = False,
    scales: ScalesOption = None,
    vocab_sizes: VocabSizesOption = None,
    max_error: Annotated[
        float | None,
        typer.Option(help="Wanted of --advise: at most this RMSE of normalised actions."),
    ] = None,
    max_tokens: Annotated[
        float | None,
        typer.Option(help="Wanted of --advise: at most so many tokens a chunk on average."),
    ] = None,
    num_threads: ThreadsOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Fit a FAST action tokenizer, or find it fitted already.

    Action chunks are drawn from all episodes, normalised by their 1 % and 99 % quantiles, and a
    tokenizer is trained on them. It is written to a folder of its own in the cache, named after
    everything it depends on, with a fit_report.json. Give that folder to your trainer, or to
    transformers.AutoProcessor.from_pretrained.

    \b
    Example: a tokenizer for chunks of one second at 30 frames a second; before,
    which scale and vocabulary keep the error of rounding within 1 % of a unit.
      vlaprep fit ~/data/fold_towel --chunk-size 30 --cache-dir tokenizers
      vlaprep fit ~/data/fold_towel --chunk-size 30 --advise --max-error 0.01
    """  # noqa: D301
    data: dict[str, Any] = {
        "dataset_repo_id": dataset,
        "dataset_root": dataset_root,
        "revision": revision,
        "n_samples": n_samples,
        "chunk_size": chunk_size,
        "seed": seed,
        "action_key": action_key,
        "episodes": ids_of(episodes),
        "exclude_episodes": ids_of(exclude_episodes),
        "nan": nan.value,
        "num_threads": num_threads,
    }
    wanted: dict[str, Any] = {"max_error": max_error, "max_tokens": max_tokens}
    wanted |= {"scales": numbers_of(scales, float), "vocab_sizes": numbers_of(vocab_sizes, int)}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if wanted and not advise:
        raise typer.BadParameter(f"{options_of(wanted)}: for --advise alone")
    if advise:
        unseen = {
            "scale": scale != 10.0,
            "vocab_size": vocab_size != 1024,
            "alphabet": alphabet is not Alphabet.bytes,
            "coverage": coverage is not Coverage.sample,
            "base_tokenizer_name": base_tokenizer_name is not None,
        }
        with open_session("fit", as_json=as_json, debug=debug) as session:
            from vlaprep.advice import advise_tokenizer
            from vlaprep.advice_tables import advice_tables

            if any(unseen.values()):
                names = options_of(name for name, given in unseen.items() if given)
                session.warn(
                    "--advise is for the published format, its --scales and its --vocab-sizes; "
                    f"it does not look at {names}"
                )
            session.say(f"looking at chunks of {dataset}")
            advice = advise_tokenizer(**data, **wanted).to_dict()
            session.finish({"dataset": dataset, "advice": advice}, advice_tables(advice))
        return
    options = data | {
        "cache_dir": cache_dir,
        "base_tokenizer_name": base_tokenizer_name,
        "scale": scale,
        "vocab_size": vocab_size,
        "max_token_length": max_token_length,
        "alphabet": alphabet.value,
        "compatible": compatible,
        "coverage": coverage.value,
        "trust_remote_code": trust_remote_code,
        "wait_timeout_s": wait_timeout_s,
    }
    with open_session("fit", as_json=as_json, debug=debug) as session:
        from vlaprep.jobs import run_fit

        session.say(f"fitting a tokenizer to {dataset}")
        result = run_fit(**options)
        session.finish({"dataset": dataset, **result}, fit_tables(result))


@app.command()
def inspect(
    dataset: DatasetArgument,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Numeric column to give statistics of; repeat it for more. Default: action and "
            "observation.state, where they are.",
        ),
    ] = None,
    no_stats: Annotated[
        bool, typer.Option("--no-stats", help="No statistics, so no data page is read for them.")
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="List all tasks and dims, however many.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 if a finding is a warning.")
    ] = False,
    episodes: EpisodesOption = None,
    revision: RevisionOption = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to put files of a dataset on the Hub. Default: the shared cache.",
        ),
    ] = None,
    num_threads: ThreadsOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show what a dataset holds, and where its metadata is wrong.

    All but the statistics comes from metadata and Parquet footers, and from the id columns where
    footers cannot tell: quick, and shown at once. For statistics the chosen columns are read whole,
    which takes as long as the disk takes; quantiles are exact. Nothing is written, and images and
    videos are never read.

    A finding says where metadata and rows disagree. It is a warning where labels, draws or
    statistics may not be what you expect, else a note.

    \b
    Example: all of it; the quick part; other columns; exit code 3 on a warning.
      vlaprep inspect ~/data/fold_towel
      vlaprep inspect ~/data/fold_towel --no-stats
      vlaprep inspect org/name --column action --column observation.velocity
      vlaprep inspect org/name --no-stats --strict --json
    """  # noqa: D301
    selection = ids_of(episodes)
    if no_stats and column:
        raise typer.BadParameter("--column asks for statistics, --no-stats for none")
    with open_session("inspect", as_json=as_json, debug=debug) as session:
        from vlaprep.dataset import open_dataset
        from vlaprep.inspection import default_columns, describe, statistics
        from vlaprep.progress import progress

        session.say(f"reading {dataset}")
        session.in_tables = "vlaprep.dataset"
        opened = open_dataset(
            dataset, revision=revision, root=root, episodes=selection, num_threads=num_threads
        )
        about = describe(opened)
        session.show(description_tables(about, show_all=show_all))
        told: list[dict[str, Any]] = []
        if not no_stats:
            names = list(dict.fromkeys(column or default_columns(opened)))
            if not names:
                session.say("no action, no observation.state: --column chooses other columns")
            with progress(len(names), "statistics", unit="column", hidden=as_json) as advance:
                for name in names:
                    told.append(statistics(opened, name))
                    advance("")
        session.finish(
            {**about, "statistics": None if no_stats else told},
            *(statistics_tables(stats, show_all=show_all) for stats in told),
        )
        if strict and any(finding["warning"] for finding in about["findings"]):
            raise typer.Exit(FOUND)


@app.command()
def audit(
    tokenizer: Annotated[
        str,
        typer.Argument(
            metavar="TOKENIZER",
            help="Folder of a FAST tokenizer, by vlaprep or another, or its id on the Hub.",
        ),
    ],
    dataset: DatasetArgument,
    chunk_size: Annotated[
        int | None, typer.Option(min=1, help="Frames of a window. Default: the tokenizer's own.")
    ] = None,
    action_key: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the actions.")
    ] = "action",
    episodes: EpisodesOption = None,
    exclude_episodes: ExcludeOption = None,
    normalization: Annotated[
        Normalized,
        typer.Option(
            help="As stored beside the tokenizer, by a sample as in a fit, or none. auto: as "
            "stored, if it is, else by a sample."
        ),
    ] = Normalized.auto,
    n_samples: Annotated[int, typer.Option(min=1, help="Chunks of such a sample.")] = 1024,
    seed: Annotated[int, typer.Option(min=0, help="Seed of its draws.")] = 42,
    revision: RevisionOption = None,
    num_threads: ThreadsOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Find what a tokenizer cannot encode exactly of a dataset.

    Every window of the dataset is looked at, one frame apart. Exits with 3 where a window holds a
    coefficient outside the tokenizer's range, or one that its vocabulary cannot spell.

    \b
    Example: does last month's tokenizer still do for this month's episodes?
      vlaprep audit tokenizers/0123456789abcdef ~/data/fold_towel
    """  # noqa: D301
    options: dict[str, Any] = {
        "chunk_size": chunk_size,
        "action_key": action_key,
        "episodes": ids_of(episodes),
        "exclude_episodes": ids_of(exclude_episodes),
        "normalization": normalization.value,
        "n_samples": n_samples,
        "seed": seed,
        "revision": revision,
        "num_threads": num_threads,
    }
    with open_session("audit", as_json=as_json, debug=debug) as session:
        from vlaprep.audit import audit_tokenizer

        session.say(f"reading {dataset}")
        found = audit_tokenizer(tokenizer, dataset, **options)
        told = found.to_dict()
        session.finish(told, audit_tables(told))
        if not found.ok:
            raise typer.Exit(FOUND)


app.command()(push)


@app.command()
def demo(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder for everything that is written.")
    ] = Path("vlaprep-demo"),
    episodes: Annotated[int, typer.Option(min=1, help="Size of the dataset.")] = 96,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run both jobs on a small dataset made on the spot.

    Needs no network and a few seconds. Writes a LeRobot v3.0 dataset of made-up teleoperation to
    OUT/dataset, its speed boundaries into that, and a tokenizer to OUT/tokenizers. Then encodes
    and decodes chunks that the fit did not draw, and shows how close they come back.

    \b
    Example: run it, then look at the same data with the other commands.
      vlaprep demo vlaprep-demo
      vlaprep inspect vlaprep-demo/dataset
      vlaprep speed vlaprep-demo/dataset
    """  # noqa: D301
    with open_session("demo", as_json=as_json, debug=debug) as session:
        from vlaprep.demo import run_demo

        result = run_demo(out, episodes=episodes, stage=session.say)
        session.finish(
            result,
            speed_tables(result["speed"]),
            "",
            fit_tables(result["fit"], result["round_trip"]["dims"]),
            "",
            demo_tables(result),
        )


if __name__ == "__main__":
    main()
