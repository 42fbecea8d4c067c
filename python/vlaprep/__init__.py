"""Speed labels and FAST action tokenizers for LeRobot datasets, fast and exact.

Importing this package loads NumPy and the compiled extension, nothing else; every name below is
imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vlaprep._native import __version__

if TYPE_CHECKING:
    from vlaprep.advice import Advice, ScaleAdvice, advise_tokenizer
    from vlaprep.audit import Audit, audit_tokenizer
    from vlaprep.codec import ActionCodec, ChunkStatus
    from vlaprep.dataset import Dataset, EpisodeTable, Finding, open_dataset
    from vlaprep.errors import (
        DatasetFormatError,
        DatasetNotFoundError,
        EpisodeSelectionError,
        FitFailedElsewhereError,
        FitGateError,
        NoChunksError,
        PercentileFileError,
        PublishError,
        RanksDisagreeError,
        TokenizerFormatError,
        TokenizerNotFoundError,
        VlaprepError,
        VocabularyError,
        WaitTimeoutError,
    )
    from vlaprep.fit import fit_fast_tokenizer
    from vlaprep.normalization import Normalization
    from vlaprep.processing_action_tokenizer import FastActionProcessor
    from vlaprep.publish import push_to_hub
    from vlaprep.ranks import verify_ranks
    from vlaprep.sampling import sample_chunks
    from vlaprep.speed import SpeedLabels, speed_labels

_HOMES = {
    "ActionCodec": "codec",
    "Advice": "advice",
    "Audit": "audit",
    "ChunkStatus": "codec",
    "Dataset": "dataset",
    "DatasetFormatError": "errors",
    "DatasetNotFoundError": "errors",
    "EpisodeSelectionError": "errors",
    "EpisodeTable": "dataset",
    "FastActionProcessor": "processing_action_tokenizer",
    "Finding": "dataset",
    "FitFailedElsewhereError": "errors",
    "FitGateError": "errors",
    "NoChunksError": "errors",
    "Normalization": "normalization",
    "PercentileFileError": "errors",
    "PublishError": "errors",
    "RanksDisagreeError": "errors",
    "ScaleAdvice": "advice",
    "SpeedLabels": "speed",
    "TokenizerFormatError": "errors",
    "TokenizerNotFoundError": "errors",
    "VlaprepError": "errors",
    "VocabularyError": "errors",
    "WaitTimeoutError": "errors",
    "advise_tokenizer": "advice",
    "audit_tokenizer": "audit",
    "fit_fast_tokenizer": "fit",
    "open_dataset": "dataset",
    "push_to_hub": "publish",
    "sample_chunks": "sampling",
    "speed_labels": "speed",
    "verify_ranks": "ranks",
}

__all__ = [
    "ActionCodec",
    "Advice",
    "Audit",
    "ChunkStatus",
    "Dataset",
    "DatasetFormatError",
    "DatasetNotFoundError",
    "EpisodeSelectionError",
    "EpisodeTable",
    "FastActionProcessor",
    "Finding",
    "FitFailedElsewhereError",
    "FitGateError",
    "NoChunksError",
    "Normalization",
    "PercentileFileError",
    "PublishError",
    "RanksDisagreeError",
    "ScaleAdvice",
    "SpeedLabels",
    "TokenizerFormatError",
    "TokenizerNotFoundError",
    "VlaprepError",
    "VocabularyError",
    "WaitTimeoutError",
    "__version__",
    "advise_tokenizer",
    "audit_tokenizer",
    "fit_fast_tokenizer",
    "open_dataset",
    "push_to_hub",
    "sample_chunks",
    "speed_labels",
    "verify_ranks",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use (PEP 562)."""
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
