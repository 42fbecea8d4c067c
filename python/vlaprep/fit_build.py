"""Make one fitted tokenizer in an empty folder: normalise, train, check what is saved, report."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.errors import TokenizerFormatError
from vlaprep.fit_chunks import NormalizedChunks, RowBlocks
from vlaprep.fit_cover import check_cover
from vlaprep.fit_report import write_report
from vlaprep.normalization import CONVENTIONS, FORMAT_VERSION, Normalization
from vlaprep.progress import progress
from vlaprep.ranks import Ranks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from vlaprep.fit_base import Base
    from vlaprep.fit_sample import Sample

__all__ = ["build_tokenizer", "fit_normalization", "normalization_identity"]

CONVENTION, MODE = "pi052", "QUANTILES"
CHECKED_CHUNKS = 256
"""How many of the fitted chunks are encoded and decoded before a fit is published."""


def normalization_identity() -> dict[str, Any]:
    """Tell the normalisation of a fit from any other, for its signature."""
    return {
        "convention": CONVENTION,
        "mode": MODE,
        "rule_version": CONVENTIONS[CONVENTION].rule_version,
        "format_version": FORMAT_VERSION,
    }


def fit_normalization(sample: Sample) -> Normalization:
    """Take the statistics of a fit; chunks that were not drawn have no part in them."""
    rows = RowBlocks(sample.drawn_chunks)
    return Normalization.fit(rows, convention=CONVENTION, mode=MODE)


def build_tokenizer(
    folder: Path,
    sample: Sample,
    base: Base,
    *,
    chunk_size: int,
    settings: Mapping[str, Any],
    inputs: Mapping[str, Any],
    num_threads: int | None = None,
) -> None:
    """Fill an empty folder with a fitted, checked tokenizer and its report.

    Parameters
    ----------
    folder : pathlib.Path
        Where to save.
    sample : Sample
        Raw chunks to fit on.
    base : Base
        The class to fit.
    chunk_size : int
        Frames of a chunk.
    settings : mapping
        Arguments of the base's ``.fit`` by name.
    inputs : mapping
        All that the result depends on, for the report.
    num_threads : int, optional
        Bound on threads.

    Raises
    ------
    TokenizerFormatError
        What was saved does not give back what was encoded.
    VocabularyError
        The range of coefficients does not fit into the vocabulary; or the whole dataset is to be
        covered, and a window of it cannot be encoded.
    """
    cover = sample.cover
    with progress(3, hidden=not Ranks.detect().is_main) as stage:
        stage("fit: normalise")
        norm = fit_normalization(sample) if cover is None else cover.normalization
        some = np.unique(np.linspace(0, sample.shape[0] - 1, CHECKED_CHUNKS, dtype=np.int64))
        raw = sample.drawn_chunks.take(some)
        checked = norm.normalize(raw)
        stage("fit: train")
        corpus = NormalizedChunks(
            sample.drawn_chunks, norm, None if cover is None else cover.chunks
        )
        processor = base.fit(corpus, settings, num_threads)
        if hasattr(processor, "normalization"):  # ours, or a copy of ours beside a base
            processor.normalization = norm.to_dict()
        processor.save_pretrained(str(folder))
        stage("fit: check")
        ids, decoded = _check(folder, processor, base, checked, settings["scale"])
        if cover is not None:
            check_cover(cover, folder)
    normalization = {
        **norm.to_dict(),
        "constant_dims": norm.constant_dims,
        "clipped_fraction": corpus.clipped_fraction.tolist(),
    }
    results = {
        "draws": sample.summary(chunk_size),
        **({} if cover is None else {"coverage": cover.summary()}),
        "normalization": normalization,
        "tokens": _tell_tokens(processor, ids, math.prod(sample.shape[1:])),
        "reconstruction": {
            "chunks": len(some),
            "normalized": _tell_errors(decoded - checked),
            "dataset_units": _tell_errors(norm.unnormalize(decoded) - raw),
        },
    }
    write_report(folder, inputs, results)


def _check(
    folder: Path, processor: Any, base: Base, chunks: NDArray[Any], scale: float
) -> tuple[list[list[int]], NDArray[np.float64]]:
    """Encode and decode with what lies on disk; the ids, and what they decode to."""
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
    return ids, decoded


def _tell_tokens(processor: Any, ids: list[list[int]], values_per_chunk: int) -> dict[str, Any]:
    counts = np.array([len(chunk) for chunk in ids])
    tokenizer = getattr(processor, "bpe_tokenizer", None)
    p50, p99 = np.percentile(counts, [50, 99]).tolist()
    return {
        "vocabulary": None if tokenizer is None else len(tokenizer),
        "min_token": getattr(processor, "min_token", None),
        "max_token": getattr(processor, "max_token", None),
        "chunks_encoded": len(ids),
        "per_chunk": {
            "mean": float(counts.mean()),
            "min": int(counts.min()),
            "p50": p50,
            "p99": p99,
            "max": int(counts.max()),
        },
        "symbols_per_token": values_per_chunk * len(ids) / int(counts.sum()),
    }


def _tell_errors(errors: NDArray[Any]) -> dict[str, list[float]]:
    """Sum up errors of shape (N, H, D) for each dim, in float64."""
    errors = np.abs(errors, dtype=np.float64)
    return {
        "rms": np.sqrt((errors**2).mean(axis=(0, 1))).tolist(),
        "p99": np.quantile(errors, 0.99, axis=(0, 1)).tolist(),
        "max": errors.max(axis=(0, 1)).tolist(),
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
