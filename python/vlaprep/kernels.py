"""The Rust kernels, NumPy in and out, for people who bring their own arrays.

Every kernel releases the interpreter lock, borrows contiguous input without a copy, and gives the
same bits whatever the number of threads and the CPU.
"""

from __future__ import annotations

from vlaprep._native import (
    block_moments,
    block_quantiles,
    bucketize,
    dct_quantize,
    fit_bpe,
    gather_chunks,
    percentiles_by_task,
    quantile,
    sweep_windows,
    train_bpe,
)

__all__ = [
    "block_moments",
    "block_quantiles",
    "bucketize",
    "dct_quantize",
    "fit_bpe",
    "gather_chunks",
    "percentiles_by_task",
    "quantile",
    "sweep_windows",
    "train_bpe",
]
