"""Try a fitted tokenizer on chunks: errors in normalised and in physical units, tokens, symbols."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.fit_chunks import padded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from vlaprep.fit_sample import Sample
    from vlaprep.fit_source import FitData

    _Floats = NDArray[np.floating[Any]]

__all__ = ["EXAMPLES", "examples", "tell_errors", "tell_tokens", "validate"]

EXAMPLES = 8
"""Chunks that are written down beside a tokenizer, as they were and as they come back."""
_BLOCK = 256


def validate(processor: Any, data: FitData, scale: float) -> dict[str, Any] | None:
    """Encode and decode the chunks of a trial.

    Parameters
    ----------
    processor : FastActionProcessor or another of that interface
        As it was read back from disk.
    data : FitData
        Its ``validation`` is the trial; None where there is none.
    scale : float
        Quantisation steps per unit.

    Returns
    -------
    dict or None
        For the report, as JSON types; ``rmse`` and the like are over all steps of all chunks.
    """
    sample = data.validation
    if sample is None:
        return None
    raw, norm = sample.chunks, data.normalization
    normal = norm.normalize(raw)
    ids, decoded, exact, outside = _there_and_back(processor, data, normal, scale)
    dims = normal.shape[2]
    back = norm.unnormalize(decoded)
    return {
        "held_out": data.held_out,
        "episodes": len(np.unique(sample.episode_index)),
        "chunks": len(raw),
        "windows_skipped": sample.skipped,
        "names": norm.dim_names and list(norm.dim_names),
        "constant_dims": list(norm.constant_dims),
        "normalized": _rmse(decoded - normal),
        "dataset_units": _rmse(back - raw),
        "exact_symbols": exact / (normal.shape[0] * normal.shape[1] * dims),
        "symbols_out_of_range": outside / (normal.shape[0] * normal.shape[1] * dims),
        "clipped_values": norm.clipped_fraction(raw).tolist(),
        "tokens": tell_tokens(ids),
    }


def examples(processor: Any, data: FitData, sample: Sample) -> dict[str, Any]:
    """Give a few chunks, in the units of the dataset, as they were and as they come back."""
    some = np.arange(min(EXAMPLES, len(sample.drawn_chunks)))
    raw, norm = sample.drawn_chunks.take(some), data.normalization
    ids, decoded, _, _ = _there_and_back(processor, data, norm.normalize(raw), None)
    told = zip(
        sample.episode_index.tolist(),
        sample.start.tolist(),
        ids,
        raw.astype(np.float64).round(6).tolist(),
        norm.unnormalize(decoded).round(6).tolist(),
        strict=False,
    )
    keys = ("episode_index", "start", "ids", "original", "decoded")
    return {
        "format_version": 1,
        "names": norm.dim_names and list(norm.dim_names),
        "relative": norm.relative and list(norm.relative),
        "chunks": [dict(zip(keys, chunk, strict=True)) for chunk in told],
    }


def _there_and_back(
    processor: Any, data: FitData, normal: _Floats, scale: float | None
) -> tuple[list[list[int]], NDArray[np.float64], int, int]:
    """Ids, what they decode to, and how many symbols came back exactly, and lay out of range."""
    from vlaprep.processing_action_tokenizer import quantize

    logger = logging.getLogger(type(processor).__module__)
    ids: list[list[int]] = []
    decoded: list[NDArray[np.float64]] = []
    exact = outside = 0
    low, high = (getattr(processor, name, None) for name in ("min_token", "max_token"))
    for first in range(0, len(normal), _BLOCK):
        block = padded(normal[first : first + _BLOCK], data.space.max_action_dim)
        _, horizon, dim = block.shape
        with _silent(logger):  # what lies out of range is counted here
            some = [list(map(int, chunk)) for chunk in processor(block)]
            back = np.asarray(processor.decode(some, time_horizon=horizon, action_dim=dim))
        ids += some
        decoded.append(back[..., : normal.shape[2]])
        if scale is not None:
            symbols = quantize(block, scale)[..., : normal.shape[2]]
            exact += int((symbols == quantize(back, scale)[..., : normal.shape[2]]).sum())
            outside += 0 if low is None else int((symbols < low).sum())
            outside += 0 if high is None else int((symbols > high).sum())
    return ids, np.concatenate(decoded), exact, outside


@contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    def refuse(_: logging.LogRecord) -> bool:
        return False

    logger.addFilter(refuse)
    try:
        yield
    finally:
        logger.removeFilter(refuse)


def _rmse(errors: _Floats) -> dict[str, Any]:
    errors = errors.astype(np.float64)
    return {
        "rmse": float(np.sqrt((errors**2).mean())),
        "rmse_by_dim": np.sqrt((errors**2).mean(axis=(0, 1))).tolist(),
        "max_by_dim": np.abs(errors).max(axis=(0, 1)).tolist(),
    }


def tell_tokens(ids: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Sum up how many tokens chunks take."""
    counts = np.array([len(chunk) for chunk in ids])
    p50, p99 = np.percentile(counts, [50, 99]).tolist()
    lengths, chunks = np.unique(counts, return_counts=True)
    return {
        "mean": float(counts.mean()),
        "min": int(counts.min()),
        "p50": p50,
        "p99": p99,
        "max": int(counts.max()),
        "chunks_by_length": dict(zip(map(str, lengths.tolist()), chunks.tolist(), strict=True)),
    }


def tell_errors(errors: _Floats) -> dict[str, list[float]]:
    """Sum up errors of shape (N, H, D) for each dim, in float64."""
    errors = np.abs(errors, dtype=np.float64)
    return {
        "rms": np.sqrt((errors**2).mean(axis=(0, 1))).tolist(),
        "p99": np.quantile(errors, 0.99, axis=(0, 1)).tolist(),
        "max": errors.max(axis=(0, 1)).tolist(),
    }
