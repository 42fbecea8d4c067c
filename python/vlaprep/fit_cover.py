"""What a sample lacks: windows that hold the symbols which no sampled chunk holds.

A byte-level vocabulary has a byte only where a chunk of the fit did. So a fit that is to encode a
whole dataset needs at least one window with each symbol that occurs anywhere in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.errors import VocabularyError
from vlaprep.fit_chunks import NormalizedChunks
from vlaprep.fit_report import digest_arrays
from vlaprep.kernels import dct_quantize
from vlaprep.sweep import MAX_RANGE, Swept, Symbols, Windows

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from vlaprep.fit_chunks import ChunkReader, DrawnChunks
    from vlaprep.fit_sample import Sample, Table
    from vlaprep.normalization import Normalization

__all__ = ["Cover", "check_cover", "cover_sample", "symbols_of"]

_BLOCK = 1024
"""Chunks that are quantised at a time."""
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Cover:
    """Windows that join the chunks of a fit.

    Parameters
    ----------
    chunks : float32 array, shape (M, time_horizon, action_dim)
        Raw, finite actions.
    episode_index, start : int64 array, shape (M,)
        Where each begins, in the order of the dataset.
    normalization : Normalization
        That of the sample.
    swept : Swept
        What a sweep over all windows has seen beside the sample's symbols.
    windows : Windows
        What was swept.
    """

    chunks: NDArray[np.float32]
    episode_index: NDArray[np.int64]
    start: NDArray[np.int64]
    normalization: Normalization
    swept: Swept
    windows: Windows

    def digest(self) -> str:
        """SHA-256 over the windows that join, and over what the report tells of all others."""
        swept = self.swept
        told = np.array([swept.windows, swept.skipped, swept.windows_outside], dtype=np.int64)
        symbols = swept.symbols[:, 0].copy()
        return digest_arrays(self.episode_index, self.start, self.chunks, told, symbols)

    def summary(self) -> dict[str, Any]:
        """Tell what was added, for the report."""
        swept = self.swept
        return {
            "windows": swept.windows,
            "windows_skipped": swept.skipped,
            "windows_beyond_sample": swept.windows_outside,
            "symbols_added": swept.symbols[:, 0].tolist(),
            "chunks_added": [
                {"episode_index": episode, "start": start}
                for episode, start in zip(
                    self.episode_index.tolist(), self.start.tolist(), strict=True
                )
            ],
            "every_window_checked": True,
        }


def symbols_of(
    chunks: DrawnChunks, scale: float, normalization: Normalization
) -> NDArray[np.int64]:
    """Give the distinct symbols of chunks, ascending."""
    found = [
        np.unique(dct_quantize(normal[first : first + _BLOCK], scale)).astype(np.int64)
        for normal in NormalizedChunks(chunks, normalization)
        for first in range(0, len(normal), _BLOCK)
    ]
    return np.unique(np.concatenate(found))


def cover_sample(
    reader: ChunkReader,
    sample: Sample,
    table: Table,
    *,
    scale: float,
    normalization: Normalization,
    num_threads: int | None,
) -> Cover:
    """Sweep all windows of some episodes for the symbols that no chunk of a sample holds.

    The first window that holds such a symbol joins the fit, for every one of them.

    Raises
    ------
    VocabularyError
        The range of the sample's coefficients is one that no vocabulary holds.
    """
    windows = Windows(reader, table.episode_index, table.length, num_threads)
    known = symbols_of(sample.drawn_chunks, scale, normalization)
    low, high = int(known[0]), int(known[-1])
    if high - low > MAX_RANGE:  # which no vocabulary holds, and no memory need
        raise VocabularyError(
            f"coefficients from {low} to {high}, a range of {high - low} at scale {scale:g}, are "
            f"more than the {MAX_RANGE} that there are characters for: normalise the actions to "
            "about [-1, 1], or lower scale"
        )
    swept = windows.sweep(scale=scale, known=Symbols.of(known), normalization=normalization)
    order = {episode: place for place, episode in enumerate(table.episode_index.tolist())}
    places = {(order[episode], episode, start) for _, episode, start in swept.symbols.tolist()}
    at = np.array([place[1:] for place in sorted(places)], dtype=np.int64).reshape(-1, 2)
    if len(at):
        chunks = reader.read(at[:, 0], at[:, 1])
    else:
        chunks = np.empty((0, *sample.shape[1:]), dtype=np.float32)
    return Cover(chunks, at[:, 0].copy(), at[:, 1].copy(), normalization, swept, windows)


def check_cover(cover: Cover, folder: Path) -> None:
    """Make sure that a saved tokenizer encodes every window exactly.

    Raises
    ------
    VocabularyError
        It does not.
    """
    from vlaprep.audit import encodable_symbols

    codec, known = encodable_symbols(folder)
    swept = cover.windows.sweep(scale=codec.scale, known=known, normalization=cover.normalization)
    if swept.windows_outside:
        symbol, episode, start = swept.symbols[0].tolist()
        some = ", ".join(map(str, swept.symbols[:_SHOWN, 0].tolist()))
        raise VocabularyError(
            f"the fitted tokenizer cannot encode {swept.windows_outside} of {swept.windows} "
            f"windows exactly, as coverage='all' asks for: it lacks the coefficients {some}"
            f"{', …' if len(swept.symbols) > _SHOWN else ''} ({symbol} in episode {episode} from "
            f"frame {start} on); nothing is published. Use the built-in processor, another scale, "
            "or coverage='sample'"
        )
