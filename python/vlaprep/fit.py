"""Fit a FAST action tokenizer to a dataset: sample, normalise, fit, validate, publish."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlaprep import fit_report
from vlaprep.coordinate import compute_once
from vlaprep.fit_base import open_base
from vlaprep.fit_build import build_tokenizer
from vlaprep.fit_gates import Gates
from vlaprep.fit_options import FitPlan
from vlaprep.fit_source import Selection, Source
from vlaprep.ranks import Ranks, meet_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from vlaprep.action_space import Dims
    from vlaprep.normalization import Normalization
    from vlaprep.sampling import Per, Tail

__all__ = ["fit_fast_tokenizer"]

logger = logging.getLogger(__name__)


@meet_after
def fit_fast_tokenizer(
    *,
    dataset_repo_id: str | None = None,
    dataset_root: str | PathLike[str] | None = None,
    cache_dir: str | PathLike[str],
    base_tokenizer_name: str | None = None,
    n_samples: int = 1024,
    chunk_size: int = 50,
    seed: int = 42,
    action_key: str = "action",
    revision: str | None = None,
    episodes: Iterable[int] | None = None,
    exclude_episodes: Iterable[int] | None = None,
    tasks: Iterable[int | str] | int | str | None = None,
    per: Per = "episode",
    replace: bool = True,
    tail: Tail = "exclude",
    dims: Dims | None = None,
    relative: Dims | None = None,
    absolute: Dims | None = None,
    state_key: str = "observation.state",
    max_action_dim: int | None = None,
    convention: str | None = None,
    normalization_mode: str | None = None,
    statistics: str | PathLike[str] | Mapping[str, Any] | Normalization = "sample",
    scale: float = 10.0,
    vocab_size: int = 1024,
    max_token_length: int = 10_000,
    alphabet: str = "bytes",
    compatible: bool = False,
    coverage: str = "sample",
    nan: str = "skip",
    validation_samples: int = 256,
    validation_episodes: float | Iterable[int] | None = None,
    max_reconstruction_rmse: float | None = 0.10,
    max_dim_rmse: float | None = 0.20,
    max_tokens: int | None = None,
    gate: bool = True,
    trust_remote_code: bool = True,
    wait_timeout_s: float = 1800.0,
    num_threads: int | None = None,
    accelerator: Any = None,
) -> str:
    """Fit a FAST tokenizer to the actions of a LeRobot dataset, once for all processes.

    Draws action chunks, normalises them as the trainer does that the tokenizer is for, fits the
    tokenizer, reads it back from disk, tries it on chunks it has not seen, and publishes its folder
    in one step. Whoever asks again, at the same time or later, gets that folder.

    Parameters
    ----------
    dataset_repo_id : str, optional
        ``"org/name"`` on the Hub, or a local folder. Beside `dataset_root` it is only a name.
    dataset_root : path-like, optional
        Local folder of the dataset; the Hub is then not asked.
    cache_dir : path-like
        Where fitted tokenizers live; made where it is missing.
    base_tokenizer_name : str, optional
        Folder or Hub id of a processor that ``transformers.AutoProcessor`` loads and whose class
        has ``.fit``. By default the built-in `vlaprep.FastActionProcessor`, without any network.
    n_samples : int
        Chunks to fit on.
    chunk_size : int
        Frames of a chunk, the tokenizer's time horizon.
    seed : int
        Seed of the draws; the first draws are those of the reference for this seed.
    action_key : str
        Column of the actions.
    revision : str, optional
        Branch, tag or commit of the dataset on the Hub.
    episodes, exclude_episodes : iterable of int, optional
        Episodes to draw from, all by default, and episodes to leave out, which wins.
    tasks : iterable of int and str, optional
        Tasks to draw from, by number or text; all by default. A text of digits that no task has is
        a number.
    per : {"episode", "frame", "task"}
        What gets equal numbers of draws: each episode (the reference), each window, each task.
    replace : bool
        Whether a window may be drawn again.
    tail : {"exclude", "clamp"}
        Chunks end with their episode (the reference); or begin at any frame and repeat the last
        one past the end, as LeRobot trains.
    dims : iterable of str, int and range, optional
        Action dims to encode, in this order: names, indices, or ranges such as ``"0:7"``.
    relative, absolute : as `dims`, optional
        Dims to make relative to the state at the chunk's first frame; or those to leave absolute,
        which makes all others relative. Not both.
    state_key : str
        Column of that state.
    max_action_dim : int, optional
        Fill normalised chunks up to so many dims with zeros, as a policy does.
    convention : str, optional
        Whose formula normalises: ``"pi052"`` (the default), ``"lerobot"``,
        ``"lerobot-train-tokenizer"``, ``"openpi"``, ``"opentau"``; see `vlaprep.Normalization`.
    normalization_mode : str, optional
        ``"QUANTILES"``, ``"QUANTILE10"``, ``"MIN_MAX"``, ``"MEAN_STD"`` or ``"IDENTITY"``. Default:
        the convention's own for tokenizers.
    statistics : {"sample", "dataset", "meta"}, mapping, path or Normalization
        Those of the chunks drawn; of all frames of the selected episodes, exactly; of
        ``meta/stats.json``; or given, as `Normalization.from_stats` takes them. Relative actions
        take those of the sample, or given ones of relative actions, and a `Normalization` has to
        say that it is of those. As many as the column has dims are of its dims in their order, of
        which `dims` picks.
    scale, vocab_size, max_token_length : float, int, int
        Settings of the tokenizer: quantisation steps per unit, vocabulary to train to, bound on the
        characters of a token.
    alphabet : {"bytes", "symbols"}
        Format of the built-in processor's vocabulary: the published one; or one character a
        coefficient, which takes fewer tokens (`FastActionProcessor.fit` says more).
    compatible : bool
        Let the built-in processor's vocabulary be larger than `vocab_size` where its alphabet alone
        is, as the published class does. Without it that is an error, before any training.
    coverage : {"sample", "all"}
        Which chunks are fitted on: those drawn, as in the reference; or beside them one window for
        each quantised coefficient that occurs anywhere in the selected episodes and in no chunk
        drawn, so that every window of them is encoded exactly; episodes of `validation_episodes`
        are left alone. That reads all actions, twice for a new fit, and is checked; draws and
        normalisation stay the same.
    nan : {"skip", "error"}
        What to do with windows that hold NaN, infinity or null: leave them out with one warning
        that gives their share, and draw on; or refuse.
    validation_samples : int
        Chunks to try the tokenizer on, 0 for none.
    validation_episodes : float or iterable of int, optional
        Share of the episodes, or the episodes, that the fit does without, for the trial. Default:
        those that gave no chunk to the fit, if there are any; else new draws of the same episodes.
    max_reconstruction_rmse, max_dim_rmse, max_tokens : float, float, int, optional
        Bounds to hold on held-out episodes, or on the fitted chunks where there are none: RMSE in
        normalised units over all values, and of each dim that moves; tokens of a chunk. None: no
        bound.
    gate : bool
        Whether a tokenizer beyond a bound is refused, and not published.
    trust_remote_code : bool
        Whether ``AutoProcessor`` may run code that comes with `base_tokenizer_name`.
    wait_timeout_s : float
        How long to wait for another process that is fitting the same, in seconds.
    num_threads : int, optional
        Bound on threads that read; by default VLAPREP_NUM_THREADS, else what the machine or
        container allows. It does not change the result.
    accelerator : optional
        An ``accelerate.Accelerator`` or a `vlaprep.ranks.Ranks`. Default: what
        `vlaprep.ranks.Ranks.detect` finds. Whoever is first computes, whatever its rank; with
        more than one process, all meet at a barrier exactly once per call, also when it raises.

    Returns
    -------
    str
        ``{cache_dir}/{signature}``: a folder for ``AutoProcessor.from_pretrained`` or
        `vlaprep.FastActionProcessor.from_pretrained`, with a ``fit_report.json`` and a few chunks,
        as they were and as they come back, in ``fit_examples.json``. The signature covers
        everything that can change a byte of the result.

    Raises
    ------
    ValueError
        An argument that makes no sense, or that the base's ``.fit`` does not take.
    DatasetNotFoundError, DatasetFormatError
        The dataset is absent, cannot be read, or has no such column.
    EpisodeSelectionError
        Episodes or tasks that do not exist are named, or none is left.
    NoChunksError
        Every episode is shorter than `chunk_size`, or no window drawn is finite.
    VocabularyError
        The range of quantised coefficients, or the alphabet made of it, does not fit into
        `vocab_size`; or, for ``coverage="all"``, the fitted tokenizer cannot encode all windows.
    FitGateError
        The trial went beyond a bound; the message has all numbers that did.
    TokenizerFormatError
        The base cannot be loaded, or the saved tokenizer does not give back what was encoded.
    ImportError
        The base has no ``.fit``.
    FitFailedElsewhereError, WaitTimeoutError
        The process that was fitting for all failed, or takes longer than `wait_timeout_s`.

    Notes
    -----
    Draws, normalisation and call of ``.fit`` follow LeRobot pi052's first ``fit_fast_tokenizer``.
    Unlike it, a sample that falls short is topped up by further draws, and windows that are not
    finite never enter it.

    Examples
    --------
    >>> import vlaprep
    >>> folder = vlaprep.fit_fast_tokenizer(
    ...     dataset_root="datasets/pusht", cache_dir="tokenizers", chunk_size=16
    ... )  # doctest: +SKIP
    >>> processor = vlaprep.FastActionProcessor.from_pretrained(folder)  # doctest: +SKIP
    """
    plan = FitPlan.of(
        n_samples=n_samples,
        chunk_size=chunk_size,
        seed=seed,
        action_key=action_key,
        per=per,
        replace=replace,
        tail=tail,
        dims=dims,
        relative=relative,
        absolute=absolute,
        state_key=state_key,
        max_action_dim=max_action_dim,
        convention=convention,
        normalization_mode=normalization_mode,
        statistics=statistics,
        nan=nan,
        scale=scale,
        vocab_size=vocab_size,
        max_token_length=max_token_length,
        alphabet=alphabet,
        compatible=compatible,
        coverage=coverage,
        validation_samples=validation_samples,
        validation_episodes=validation_episodes,
    )
    gates = Gates(max_reconstruction_rmse, max_dim_rmse, max_tokens)
    source = Source.find(
        dataset_repo_id,
        dataset_root,
        revision,
        Selection.of(episodes, exclude_episodes, tasks),
        num_threads,
    )
    base = open_base(base_tokenizer_name, trust_remote_code=trust_remote_code)
    # A commit tells what the data are, so a hit needs no download; local data are looked at.
    data = None if source.commit else source.draw(plan)
    inputs = {
        "dataset": source.identity(data),
        "base": base.identity(),
        **plan.identity(None if data is None else data.space),
        "report_version": fit_report.FORMAT_VERSION,
    }
    signature = fit_report.signature(inputs)
    target = Path(cache_dir).expanduser() / signature

    def build(folder: Path) -> None:
        if target.exists():
            logger.warning(
                "%s is no whole tokenizer (%s); fitting again",
                target,
                fit_report.defect(target, signature),
            )
        drawn = data or source.draw(plan)
        drawn.sample.warn_of_skipped(plan.draws.n_samples, source.label)
        build_tokenizer(
            folder,
            drawn,
            base,
            settings=plan.settings,
            inputs=inputs,
            gates=gates if gate else None,
            num_threads=num_threads,
        )

    compute_once(
        target,
        is_complete=lambda folder: fit_report.defect(folder, signature) is None,
        build=build,
        wait_timeout_s=wait_timeout_s,
    )
    if gate:  # bounds are not part of the key: who asks for others gets the same tokenizer, or none
        gates.check(fit_report.read_report(target), f"which lies in {target}")
    told = logging.INFO if Ranks.detect(accelerator).is_main else logging.DEBUG
    logger.log(told, "FAST tokenizer of %s: %s", source.label, target)
    return str(target)
