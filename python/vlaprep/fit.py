"""Fit a FAST action tokenizer to a dataset: sample, normalise, fit, validate, publish."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict, dataclass, replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlaprep import fit_report
from vlaprep.coordinate import compute_once
from vlaprep.fit_base import FIT_DEFAULTS, open_base
from vlaprep.fit_build import build_tokenizer, fit_normalization, normalization_identity
from vlaprep.fit_cover import cover_sample
from vlaprep.fit_sample import draw_sample, selected_episodes
from vlaprep.ranks import Ranks, meet_after
from vlaprep.sampling import MOST_DRAWS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from vlaprep.dataset import Dataset
    from vlaprep.fit_sample import Sample

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
    scale: float = 10.0,
    vocab_size: int = 1024,
    max_token_length: int = 10_000,
    alphabet: str = "bytes",
    compatible: bool = False,
    coverage: str = "sample",
    nan: str = "skip",
    trust_remote_code: bool = True,
    wait_timeout_s: float = 1800.0,
    num_threads: int | None = None,
    accelerator: Any = None,
) -> str:
    """Fit a FAST tokenizer to the actions of a LeRobot dataset, once for all processes.

    Draws action chunks, normalises each dim by the 1 % and 99 % quantiles of the draws, fits the
    tokenizer, reads it back from disk to check it, and publishes its folder in one step. Whoever
    asks again, at the same time or later, gets that folder.

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
        each quantised coefficient that occurs anywhere in the dataset and in no chunk drawn, so
        that every window of it is encoded exactly. That reads all actions, twice for a new fit, and
        is checked; draws and normalisation stay the same.
    nan : {"skip", "error"}
        What to do with windows that hold NaN, infinity or null: leave them out with one warning
        that gives their share, and draw on; or refuse.
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
        `vlaprep.FastActionProcessor.from_pretrained`, with a ``fit_report.json``. The signature
        covers everything that can change a byte of the result.

    Raises
    ------
    ValueError
        An argument that makes no sense, or that the base's ``.fit`` does not take.
    DatasetNotFoundError, DatasetFormatError
        The dataset is absent, cannot be read, or has no such column.
    EpisodeSelectionError
        `episodes` names episodes that do not exist, or none is left.
    NoChunksError
        Every episode is shorter than `chunk_size`, or no window drawn is finite.
    VocabularyError
        The range of quantised coefficients, or the alphabet made of it, does not fit into
        `vocab_size`; or, for ``coverage="all"``, the fitted tokenizer cannot encode all windows.
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
    plan = _Plan(
        n_samples=index(n_samples),
        chunk_size=index(chunk_size),
        seed=index(seed),
        action_key=action_key,
        scale=float(scale),
        vocab_size=index(vocab_size),
        max_token_length=index(max_token_length),
        alphabet=alphabet,
        compatible=bool(compatible),
        coverage=coverage,
        nan=nan,
    )
    source = _Source.find(
        dataset_repo_id,
        dataset_root,
        revision,
        *selected_episodes(episodes, exclude_episodes),
        num_threads,
    )
    base = open_base(base_tokenizer_name, trust_remote_code=trust_remote_code)
    # A commit tells what the data are, so a hit needs no download; local data are looked at.
    sample = None if source.commit else source.draw(plan)
    inputs = {
        "dataset": source.identity(sample),
        "base": base.identity(),
        **asdict(plan),
        "normalization": normalization_identity(),
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
        drawn = sample or source.draw(plan)
        drawn.warn_of_skipped(plan.n_samples, source.label, plan.action_key)
        build_tokenizer(
            folder,
            drawn,
            base,
            chunk_size=plan.chunk_size,
            settings=plan.settings,
            inputs=inputs,
            num_threads=num_threads,
        )

    compute_once(
        target,
        is_complete=lambda folder: fit_report.defect(folder, signature) is None,
        build=build,
        wait_timeout_s=wait_timeout_s,
    )
    told = logging.INFO if Ranks.detect(accelerator).is_main else logging.DEBUG
    logger.log(told, "FAST tokenizer of %s: %s", source.label, target)
    return str(target)


@dataclass(frozen=True)
class _Plan:
    """What to fit, apart from the data and the base; checked, and part of the signature."""

    n_samples: int
    chunk_size: int
    seed: int
    action_key: str
    scale: float
    vocab_size: int
    max_token_length: int
    alphabet: str
    compatible: bool
    coverage: str
    nan: str

    def __post_init__(self) -> None:
        for name in ("n_samples", "chunk_size", "vocab_size", "max_token_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.n_samples > MOST_DRAWS:
            raise ValueError(f"n_samples must be at most {MOST_DRAWS}, got {self.n_samples}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale must be a positive number, got {self.scale}")
        if self.coverage not in ("sample", "all"):
            raise ValueError(f"coverage must be 'sample' or 'all', got {self.coverage!r}")
        if self.alphabet not in ("bytes", "symbols"):
            raise ValueError(f"alphabet must be 'bytes' or 'symbols', got {self.alphabet!r}")
        if self.nan not in ("skip", "error"):
            raise ValueError(f"nan must be 'skip' or 'error', got {self.nan!r}")

    @property
    def settings(self) -> dict[str, Any]:
        """What the base's ``.fit`` is to use."""
        return {name: getattr(self, name) for name in FIT_DEFAULTS}


@dataclass(frozen=True)
class _Source:
    """The data of a fit, found but not yet read."""

    place: str | Path
    name: str | None
    commit: str | None
    """The resolved commit of data on the Hub; None for a local folder."""
    episodes: list[int] | None
    exclude: list[int]
    num_threads: int | None

    @classmethod
    def find(
        cls,
        repo_id: str | None,
        root: str | PathLike[str] | None,
        revision: str | None,
        episodes: list[int] | None,
        exclude: list[int],
        num_threads: int | None,
    ) -> _Source:
        from vlaprep import hub

        place = repo_id if root is None else root
        if place is None:
            raise ValueError("no dataset: pass dataset_repo_id= or dataset_root=")
        if root is None and hub.is_repo_id(str(place)) and not Path(place).exists():
            commit = hub.resolve_revision(str(place), revision)
            return cls(str(place), repo_id, commit, episodes, exclude, num_threads)
        if revision is not None:
            raise ValueError(
                f"revision={revision!r} is of no use with local data in {place}: leave it out"
            )
        # A Path is never taken for a Hub id.
        folder = Path(place).expanduser()
        name = None if root is None else repo_id
        return cls(folder, name, None, episodes, exclude, num_threads)

    @property
    def label(self) -> str:
        """How messages call the data."""
        return f"{self.place}@{self.commit}" if self.commit else str(self.place)

    def open(self) -> Dataset:
        from vlaprep.dataset import open_dataset

        return open_dataset(
            self.place,
            revision=self.commit,
            episodes=self.episodes,
            num_threads=self.num_threads,
        )

    def draw(self, plan: _Plan, dataset: Dataset | None = None) -> Sample:
        dataset = dataset or self.open()
        sample = draw_sample(
            dataset,
            label=self.label,
            exclude=self.exclude,
            action_key=plan.action_key,
            chunk_size=plan.chunk_size,
            n_samples=plan.n_samples,
            seed=plan.seed,
            nan=plan.nan,
        )
        if plan.coverage == "sample":
            return sample
        cover = cover_sample(
            dataset,
            sample,
            action_key=plan.action_key,
            chunk_size=plan.chunk_size,
            scale=plan.scale,
            normalization=fit_normalization(sample),
            num_threads=self.num_threads,
        )
        return replace(sample, cover=cover)

    def identity(self, sample: Sample | None) -> dict[str, Any]:
        """Tell these data from any other, wherever they are mounted."""
        if sample is not None:  # the content covers the selection
            return {"repo_id": self.name, "content": sample.digest()}
        return {
            "repo_id": self.name,
            "commit": self.commit,
            "episodes": self.episodes,
            "exclude_episodes": self.exclude,
        }
