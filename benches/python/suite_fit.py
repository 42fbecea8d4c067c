"""Benches of fitting: from an array of chunks to a tokenizer, and training alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import baseline
import peers
import vlaprep
from data import CHUNK_SIZE, DIMS, Config, chunks
from paired import NUMPY, OURS, Case

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[Any]

GIGABPE = "gigabpe, training alone"


def fit(count: int, config: Config) -> Case:
    """All of a fit, against the published way; another trainer gets the text ready-made."""
    count = min(count, config.episodes * 4)
    batch = chunks(count)
    sides: dict[str, Callable[[int], Any]] = {
        NUMPY: lambda _: _model(baseline.fast_fit(batch)[0]),
        OURS: lambda _: _model(vlaprep.FastActionProcessor.fit(batch).bpe_tokenizer),
    }
    if peers.HAS_GIGABPE:
        path = config.folder / f"symbols-{count}.txt"
        if not path.is_file():
            peers.write_symbols(path, batch)
        sides[GIGABPE] = lambda _: peers.train_gigabpe(path)
    return Case(
        f"fit on {count:,} chunks of {CHUNK_SIZE} x {DIMS}", sides, same=_same_model, memory=True
    )


def _model(bpe: Any) -> dict[str, Any]:
    model: dict[str, Any] = json.loads(bpe.backend_tokenizer.to_str())["model"]
    return model


def _same_model(got: dict[str, Any] | None, want: dict[str, Any]) -> None:
    """Equal in entries and merges, order included; the other trainer has rules of its own."""
    if got is not None:
        assert got["vocab"] == want["vocab"]
        assert got["merges"] == want["merges"]
        assert len(got["merges"]) > 100
