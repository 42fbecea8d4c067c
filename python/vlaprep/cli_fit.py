"""The command ``vlaprep fit``: its options, and what it does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vlaprep.cli_fit_tables import fit_tables
from vlaprep.cli_options import (
    Alphabet,
    Convention,
    Coverage,
    DatasetArgument,
    DebugOption,
    EpisodesOption,
    ExcludeOption,
    JsonOption,
    Mode,
    NaN,
    Per,
    RevisionOption,
    ScalesOption,
    Tail,
    ThreadsOption,
    VocabSizesOption,
    ids_of,
    names_of,
    numbers_of,
    options_of,
)
from vlaprep.cli_session import session as open_session

__all__ = ["fit"]


def fit(
    dataset: DatasetArgument,
    cache_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Where fitted tokenizers live.")
    ] = Path("~/.cache/vlaprep/tokenizers"),
    dataset_root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Local copy of DATASET, which is then only a name."),
    ] = None,
    revision: RevisionOption = None,
    episodes: EpisodesOption = None,
    exclude_episodes: ExcludeOption = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK", help="Only episodes of this task, by number or text; repeat for more."
        ),
    ] = None,
    chunk_size: Annotated[
        int, typer.Option(min=1, help="Frames of a chunk: the policy's time horizon.")
    ] = 50,
    n_samples: Annotated[int, typer.Option(min=1, help="Chunks to fit on.")] = 1024,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 42,
    per: Annotated[
        Per, typer.Option(help="What gets equal numbers of draws: episode, window, or task.")
    ] = Per.episode,
    replace: Annotated[bool, typer.Option(help="Whether a window may be drawn again.")] = True,
    tail: Annotated[
        Tail,
        typer.Option(
            help="Chunks end with their episode, or repeat its last frame past the end, as LeRobot "
            "trains."
        ),
    ] = Tail.exclude,
    nan: Annotated[
        NaN, typer.Option(help="Windows with NaN, infinity or null: leave out, or refuse.")
    ] = NaN.skip,
    coverage: Annotated[
        Coverage,
        typer.Option(
            help="Fit on the chunks drawn, or also on one window for each coefficient that they "
            "lack, so that all of the dataset can be encoded."
        ),
    ] = Coverage.sample,
    action_key: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the actions.")
    ] = "action",
    dims: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Action dims to encode, in order: names, indices, ranges 0:7."
        ),
    ] = None,
    relative: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Dims to make relative to the state at the chunk's start."
        ),
    ] = None,
    absolute: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Or: dims to leave absolute; all others become relative."
        ),
    ] = None,
    state_key: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of that state.")
    ] = "observation.state",
    max_action_dim: Annotated[
        int | None, typer.Option(min=1, help="Fill chunks up to so many dims with zeros.")
    ] = None,
    convention: Annotated[
        Convention | None,
        typer.Option(
            metavar="NAME",
            help="Whose formula normalises: pi052, lerobot, lerobot-train-tokenizer, openpi or "
            "opentau. Default: pi052.",
            show_default=False,
        ),
    ] = None,
    normalization_mode: Annotated[
        Mode | None,
        typer.Option(
            metavar="MODE",
            help="Which statistics: QUANTILES, QUANTILE10, MIN_MAX, MEAN_STD or IDENTITY. Default: "
            "QUANTILES, or MIN_MAX for opentau.",
            show_default=False,
        ),
    ] = None,
    statistics: Annotated[
        str,
        typer.Option(
            metavar="FROM",
            help="Where they come from: the chunks drawn (sample), all frames (dataset), "
            "meta/stats.json (meta), or the path of a file like that.",
        ),
    ] = "sample",
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
    validation_samples: Annotated[
        int, typer.Option(min=0, help="Chunks to try the tokenizer on.")
    ] = 256,
    validation_episodes: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|IDS",
            help="Episodes that the fit does without, for that trial: a share such as 0.1, or ids. "
            "Default: those that gave it no chunk, if any.",
        ),
    ] = None,
    max_reconstruction_rmse: Annotated[
        float | None, typer.Option(help="Refuse a larger RMSE of normalised actions.")
    ] = 0.10,
    max_dim_rmse: Annotated[
        float | None, typer.Option(help="Refuse a larger one of any dim that moves.")
    ] = 0.20,
    max_tokens: Annotated[
        float | None,
        typer.Option(
            help="Refuse a tokenizer that takes more tokens for any chunk; with --advise: at most "
            "so many wanted on average."
        ),
    ] = None,
    gate: Annotated[
        bool, typer.Option(help="Whether a tokenizer beyond one of these three bounds is refused.")
    ] = True,
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
    wait_timeout_s: Annotated[
        float, typer.Option(min=0, help="How long to wait for another process that fits the same.")
    ] = 1800.0,
    num_threads: ThreadsOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Fit a FAST action tokenizer, or find it fitted already.

    Action chunks are drawn, normalised as the trainer does that the tokenizer is for
    (--convention), and a tokenizer is trained on them and tried on others. It is written to a
    folder of its own in the cache, named after everything it depends on, with a fit_report.json.
    Give that folder to your trainer, or to transformers.AutoProcessor.from_pretrained.

    The options below are, in this order: where and which data, draws, action dims, normalisation,
    tokenizer, trial and bounds, advice, running.

    \b
    Example: a tokenizer for chunks of one second at 30 frames a second; before,
    which scale and vocabulary keep the error of rounding within 1 % of a unit.
      vlaprep fit ~/data/fold_towel --chunk-size 30 --cache-dir tokenizers
      vlaprep fit ~/data/fold_towel --chunk-size 30 --advise --max-error 0.01
    For a LeRobot policy of relative joints, tried on a tenth of the episodes:
      vlaprep fit ~/data/fold_towel --convention lerobot --absolute gripper
          --validation-episodes 0.1
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
        "tasks": tasks,
        "per": per.value,
        "replace": replace,
        "tail": tail.value,
        "dims": names_of(dims),
        "relative": names_of(relative),
        "absolute": names_of(absolute),
        "state_key": state_key,
        "convention": convention and convention.value,
        "normalization_mode": normalization_mode and normalization_mode.value,
        "statistics": statistics,
        "nan": nan.value,
        "num_threads": num_threads,
    }
    wanted: dict[str, Any] = {
        "max_error": max_error,
        "scales": numbers_of(scales, float),
        "vocab_sizes": numbers_of(vocab_sizes, int),
    }
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if wanted and not advise:
        raise typer.BadParameter(f"{options_of(wanted)}: for --advise alone")
    if advise:
        unseen = {
            "scale": scale != 10.0,
            "vocab_size": vocab_size != 1024,
            "alphabet": alphabet is not Alphabet.bytes,
            "coverage": coverage is not Coverage.sample,
            "max_action_dim": max_action_dim is not None,
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
            advice = advise_tokenizer(**data, **wanted, max_tokens=max_tokens).to_dict()
            session.finish({"dataset": dataset, "advice": advice}, advice_tables(advice))
        return
    options: dict[str, Any] = data | {
        "cache_dir": cache_dir,
        "base_tokenizer_name": base_tokenizer_name,
        "scale": scale,
        "vocab_size": vocab_size,
        "max_token_length": max_token_length,
        "alphabet": alphabet.value,
        "compatible": compatible,
        "coverage": coverage.value,
        "max_action_dim": max_action_dim,
        "validation_samples": validation_samples,
        "validation_episodes": _held_out(validation_episodes),
        "max_reconstruction_rmse": max_reconstruction_rmse,
        "max_dim_rmse": max_dim_rmse,
        "max_tokens": _whole(max_tokens),
        "gate": gate,
        "trust_remote_code": trust_remote_code,
        "wait_timeout_s": wait_timeout_s,
    }
    with open_session("fit", as_json=as_json, debug=debug) as session:
        from vlaprep.jobs import run_fit

        session.say(f"fitting a tokenizer to {dataset}")
        result = run_fit(**options)
        session.finish({"dataset": dataset, **result}, fit_tables(result))


def _held_out(text: str | None) -> float | list[int] | None:
    """Read a share, or ids."""
    if text is not None and "." in text:
        try:
            return float(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is neither a share such as 0.1 nor ids") from None
    return ids_of(text)


def _whole(number: float | None) -> int | None:
    if number is not None and not (number >= 1 and number.is_integer()):
        raise typer.BadParameter(f"--max-tokens must be a whole number, got {number:g}")
    return None if number is None else int(number)
