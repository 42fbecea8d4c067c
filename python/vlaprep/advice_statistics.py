"""What rounding and BPE will make of action chunks, told from their coefficients alone.

Of a scale everything but the number of tokens is exact: symbols come from the kernel of the codec,
and since the cosine transform is orthonormal, the squared error of coefficients is that of actions.
The number of tokens is a formula, see `estimate_tokens`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.kernels import dct_quantize
from vlaprep.sweep import MAX_RANGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["ScaleStatistics", "estimate_tokens", "scale_statistics", "transform"]

TEXT_CHUNKS = 2048
"""Of how many chunks at most, evenly spread, the text is looked at for the number of tokens."""
BLOCK = 1024
"""Chunks whose residuals are in memory at a time."""

FACTOR, EXPONENT, SHARPNESS = 0.38, 0.152, 3.0
"""Constants of `estimate_tokens`, fitted to real fits."""


@dataclass(frozen=True)
class ScaleStatistics:
    """What one scale makes of the chunks.

    Parameters
    ----------
    min_token, max_token : int
        Smallest and largest coefficient, rounded.
    alphabet : set of str
        Characters of the range.
    byte_characters : set of str
        Byte-level characters that the text of the chunks consists of.
    square_error : float64 array, shape (D,)
        Mean squared error of each dim, in normalised units.
    bits : float
        Sum over all places of a chunk of the entropy, over chunks, of the symbol there.
    words, bytes : float
        Pieces of GPT-2's pattern, and bytes, of a chunk's text, on average.
    """

    min_token: int
    max_token: int
    alphabet: frozenset[str]
    byte_characters: frozenset[str]
    square_error: NDArray[np.float64]
    bits: float
    words: float
    bytes: float


def transform(chunks: NDArray[Any]) -> tuple[NDArray[np.int32], float]:
    """Coefficients as whole numbers, and how many make a unit: about nine digits.

    Rounded so finely by the kernel itself they take half the memory of float64, come at its speed,
    and neither SciPy nor a matrix product, whose bits differ between machines, is needed.

    Examples
    --------
    >>> fine, unit = transform(np.ones((1, 4, 1), np.float32))
    >>> (fine / unit).ravel().tolist()
    [2.0, 0.0, 0.0, 0.0]
    """
    largest = math.sqrt(chunks.shape[1]) * float(np.abs(chunks).max(initial=0.0))
    unit = 2.0 ** math.floor(30 - math.log2(max(largest, 1.0)))
    return dct_quantize(chunks, unit), unit


def scale_statistics(
    chunks: NDArray[Any], fine: NDArray[np.int32], unit: float, scale: float
) -> ScaleStatistics:
    """Take the statistics of one scale.

    Parameters
    ----------
    chunks : float array, shape (N, H, D)
        Normalised actions.
    fine, unit
        What `transform` made of them.
    scale : float
        Quantisation steps per unit.

    Raises
    ------
    ValueError
        A coefficient does not fit into 32 bits at this scale.
    """
    symbols = dct_quantize(chunks, scale)
    low, high = int(symbols.min()), int(symbols.max())
    range_ = high - low
    present = np.unique(symbols) - low
    some = np.unique(np.linspace(0, len(symbols) - 1, TEXT_CHUNKS, dtype=np.int64))
    codes = (symbols[some] - low).reshape(len(some), -1)
    encodable = range_ <= MAX_RANGE
    return ScaleStatistics(
        min_token=low,
        max_token=high,
        alphabet=frozenset(map(chr, range(min(range_, MAX_RANGE) + 1))),
        byte_characters=frozenset("".join(_words(present[present <= MAX_RANGE]))),
        square_error=_square_error(symbols, scale, fine, unit),
        bits=_bits(codes),
        words=_mean_words(codes) if encodable else math.nan,
        bytes=float(1 + (codes >= 0x80).mean() + (codes >= 0x800).mean()) * codes.shape[1],
    )


def estimate_tokens(bits: float, words: float, bytes_: float, merges: int) -> float:
    """Guess how many tokens a chunk takes, on average over the chunks a tokenizer is fitted on.

    Parameters
    ----------
    bits, words, bytes_ : float
        See `ScaleStatistics`.
    merges : int
        Entries of the vocabulary beyond those it starts with.

    Notes
    -----
    A merged token carries about as many bits as its rank in the vocabulary needs, less what BPE
    wastes, so tokens go with the information of a chunk and fall slowly with the merges; each word
    takes at least one::

        free   = 0.38 * bits / merges ** 0.152
        tokens = (free ** 3 + words ** 3) ** (1 / 3)        between words and bytes

    Without any merge a chunk takes exactly its bytes.

    Examples
    --------
    >>> round(estimate_tokens(bits=228.5, words=11.3, bytes_=350.3, merges=1024 - 191), 1)
    31.7
    """
    if merges < 1:
        return bytes_
    free = FACTOR * bits / merges**EXPONENT
    tokens = (free**SHARPNESS + words**SHARPNESS) ** (1 / SHARPNESS)
    return float(min(max(tokens, words), bytes_))


def _square_error(
    symbols: NDArray[np.int32], scale: float, fine: NDArray[np.int32], unit: float
) -> NDArray[np.float64]:
    total = np.zeros(symbols.shape[2])
    for at in range(0, len(symbols), BLOCK):
        block = slice(at, at + BLOCK)
        residual = symbols[block] / scale - fine[block] / unit
        total += (residual**2).sum(axis=(0, 1))
    mean: NDArray[np.float64] = total / (symbols.shape[0] * symbols.shape[1])
    return mean


def _bits(codes: NDArray[np.int32]) -> float:
    """Sum of the entropies of the columns of (N, S) codes."""
    n = len(codes)
    ordered = np.sort(codes, axis=0).T
    first = np.ones(ordered.shape, dtype=bool)  # of a run of equal codes within a column
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    counts = np.diff(np.flatnonzero(first), append=ordered.size)
    return float((counts * np.log2(n / counts)).sum() / n)


def _words(codes: NDArray[np.int32]) -> Iterator[str]:
    """Pieces that BPE works on, in byte-level characters, of one text."""
    from tokenizers.pre_tokenizers import ByteLevel

    text = codes.astype("<u4").tobytes().decode("utf-32-le")
    return (piece for piece, _ in ByteLevel(add_prefix_space=False).pre_tokenize_str(text))


def _mean_words(codes: NDArray[np.int32]) -> float:
    return sum(sum(1 for _ in _words(chunk)) for chunk in codes) / len(codes)
