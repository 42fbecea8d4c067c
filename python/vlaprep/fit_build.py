"""Make one fitted tokenizer in an empty folder: normalise, train, check what is saved, report."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.errors import TokenizerFormatError
from vlaprep.fit_chunks import NormalizedChunks, padded
from vlaprep.fit_cover import check_cover
from vlaprep.fit_report import EXAMPLES_NAME, write_report
from vlaprep.fit_validation import examples, tell_errors, tell_tokens, validate
from vlaprep.persist import write_atomic
from vlaprep.progress import progress
from vlaprep.ranks import Ranks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from vlaprep.fit_base import Base
    from vlaprep.fit_gates import Gates
    from vlaprep.fit_source import FitData
    from vlaprep.normalization import Normalization

__all__ = ["build_tokenizer"]

logger = logging.getLogger(__name__)

CHECKED_CHUNKS = 256
"""How many of the fitted chunks are encoded and decoded before a fit is published."""
_EXTREME = 1e3
"""Normalised values from here on come from dims that the statistics have as constant."""


def build_tokenizer(
    folder: Path,
    data: FitData,
    base: Base,
    *,
    settings: Mapping[str, Any],
    inputs: Mapping[str, Any],
    gates: Gates | None,
    num_threads: int | None = None,
) -> None:
    """Fill an empty folder with a fitted, checked tokenizer and its report.

    Parameters
    ----------
    folder : pathlib.Path
        Where to save.
    data : FitData
        What to fit on, and what to try the result on.
    base : Base
        The class to fit.
    settings : mapping
        Arguments of the base's ``.fit`` by name.
    inputs : mapping
        All that the result depends on, for the report.
    gates : Gates, optional
        What the result has to hold.
    num_threads : int, optional
        Bound on threads.

    Raises
    ------
    TokenizerFormatError
        What was saved does not give back what was encoded.
    VocabularyError
        The range of coefficients does not fit into the vocabulary; or the whole dataset is to be
        covered, and a window of it cannot be encoded.
    FitGateError
        The result goes beyond a bound.
    """
    sample, norm, cover = data.sample, data.normalization, data.cover
    with progress(3, hidden=not Ranks.detect().is_main) as stage:
        stage("fit: train")
        some = np.unique(np.linspace(0, sample.shape[0] - 1, CHECKED_CHUNKS, dtype=np.int64))
        raw = sample.drawn_chunks.take(some)
        _warn_of_extremes(norm, raw)
        corpus = NormalizedChunks(
            sample.drawn_chunks,
            norm,
            None if cover is None else cover.chunks,
            data.space.max_action_dim,
            num_threads,
        )
        processor = base.fit(corpus, settings, num_threads)
        if hasattr(processor, "normalization"):  # ours, or a copy of ours beside a base
            processor.normalization = norm.to_dict()
        processor.save_pretrained(str(folder))
        stage("fit: check")
        normal = norm.normalize(raw)
        checked = padded(normal, data.space.max_action_dim)
        saved, ids, decoded = _check(folder, processor, base, checked, settings["scale"])
        decoded = decoded[..., : sample.shape[2]]
        if cover is not None:
            check_cover(cover, folder)
        stage("fit: validate")
        validation = validate(saved, data, settings["scale"])
        _write_examples(folder, saved, data)
    normalization = {
        **norm.to_dict(),
        "constant_dims": norm.constant_dims,
        "clipped_fraction": corpus.clipped_fraction.tolist(),
    }
    results = {
        "draws": sample.summary(),
        "actions": data.space.to_dict(),
        **({} if cover is None else {"coverage": cover.summary()}),
        "normalization": normalization,
        "tokens": _tell_vocabulary(processor, ids, checked.shape[1] * checked.shape[2]),
        "reconstruction": {
            "chunks": len(some),
            "normalized": tell_errors(decoded - normal),
            "dataset_units": tell_errors(norm.unnormalize(decoded) - raw),
        },
        "validation": validation,
    }
    if gates is not None:
        gates.check(results, "so nothing is published")
    write_report(folder, inputs, results)


def _warn_of_extremes(norm: Normalization, raw: NDArray[np.float32]) -> None:
    """Tell of dims that hardly move in the statistics, and far more in the chunks."""
    extent = norm.extent(raw)
    for dim in np.flatnonzero(extent > _EXTREME).tolist() if norm.mode != "IDENTITY" else []:
        name = norm.dim_names[dim] if norm.dim_names else dim
        logger.warning(
            "normalised actions of dim %s reach %.3g: its statistics are %g and %g, so nearly "
            "constant, but its values are not; leave the dim out with dims=, or take the "
            "statistics from the whole dataset (statistics='dataset')",
            name,
            extent[dim],
            norm.lo[dim],
            norm.hi[dim],
        )


def _write_examples(folder: Path, processor: Any, data: FitData) -> None:
    sample = data.sample if data.validation is None else data.validation
    told = json.dumps(examples(processor, data, sample), ensure_ascii=False, allow_nan=False)
    write_atomic(folder / EXAMPLES_NAME, (told + "\n").encode())


def _check(
    folder: Path, processor: Any, base: Base, chunks: NDArray[Any], scale: float
) -> tuple[Any, list[list[int]], NDArray[np.float64]]:
    """Encode and decode with what lies on disk; that processor, ids, and what they decode to."""
    from vlaprep.processing_action_tokenizer import quantize

    _check_source(folder)
    _, horizon, dim = chunks.shape
    ids = [list(map(int, chunk)) for chunk in processor(chunks)]
    saved = base.load(folder)
    if [list(map(int, chunk)) for chunk in saved(chunks)] != ids:
        raise TokenizerFormatError(
            f"the tokenizer saved in {folder} gives other ids than the fitted one; nothing is "
            "published. Check the versions of transformers and tokenizers"
        )
    decoded = np.asarray(saved.decode(ids, time_horizon=horizon, action_dim=dim))
    wrong = np.abs(quantize(decoded, scale) - quantize(chunks, scale)) > base.symbol_slack
    if wrong.any():
        raise TokenizerFormatError(
            f"the fitted tokenizer does not give back {wrong.any(axis=(1, 2)).sum()} of "
            f"{len(chunks)} chunks it was fitted on; nothing is published. Check the processor "
            "class of the base"
        )
    return saved, ids, decoded


def _tell_vocabulary(processor: Any, ids: list[list[int]], values_per_chunk: int) -> dict[str, Any]:
    tokenizer = getattr(processor, "bpe_tokenizer", None)
    per_chunk = tell_tokens(ids)
    by_length = per_chunk.pop("chunks_by_length")
    return {
        "vocabulary": None if tokenizer is None else len(tokenizer),
        "min_token": getattr(processor, "min_token", None),
        "max_token": getattr(processor, "max_token", None),
        "chunks_encoded": len(ids),
        "per_chunk": per_chunk,
        "chunks_by_length": by_length,
        "symbols_per_token": values_per_chunk * len(ids) / sum(map(len, ids)),
    }


def _check_source(folder: Path) -> None:
    """Refuse a saved processor whose own source file is absent: no other machine can load it."""
    config = json.loads((folder / "processor_config.json").read_text(encoding="utf-8"))
    for reference in config.get("auto_map", {}).values():
        source = folder / f"{reference.split('--')[-1].split('.')[0]}.py"
        if not source.is_file():
            raise TokenizerFormatError(
                f"the saved processor names {source.name}, which is not in {folder}; nothing is "
                "published. Check the processor class of the base"
            )
