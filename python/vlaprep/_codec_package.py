"""Encoding by the ``tokenizers`` package, for tokenizers that the native codec does not know."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep._native import Codec
from vlaprep.errors import TokenizerFormatError, VocabularyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["PackageEngine"]

_UNKNOWN = -1
_CHARACTERS = 0xD800  # the first of those that are none


class PackageEngine:
    """Does what `vlaprep._native.Codec` does, one chunk after the other.

    Transform, rounding, range and statuses are the native ones, by a codec whose ids are the
    symbols; the package turns symbols, as text, into its own ids and back.
    """

    def __init__(
        self,
        tokenizer: str,
        scale: float,
        min_token: int,
        max_token: int | None,
        time_horizon: int | None,
    ) -> None:
        from tokenizers import Tokenizer

        with _told("cannot read tokenizer.json", ValueError):
            self._tokenizer = Tokenizer.from_str(tokenizer)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=False)
        self._known = frozenset(vocabulary.values())
        if len(self._known) < len(vocabulary):
            raise ValueError("no tokenizer: two entries of its vocabulary have one id")
        size = next(n for n in itertools.count() if vocabulary.get(chr(n)) != n)
        if size == 0:
            raise VocabularyError(
                "no FAST tokenizer: its vocabulary does not begin with character 0"
            )
        self.min_token = min_token
        self.max_token = min_token + size - 1 if max_token is None else max_token
        if not min_token <= self.max_token < min_token + size:
            raise ValueError(
                f"max_token is {max_token}, it must be from min_token {min_token} to "
                f"{min_token + size - 1}, the last character that the vocabulary begins with"
            )
        self._symbols = Codec(None, scale, min_token, self.max_token, time_horizon)

    def spells(self) -> NDArray[np.bool_]:
        """As the native method."""
        return np.fromiter(map(self._spells, map(chr, range(_CHARACTERS))), np.bool_, _CHARACTERS)

    def _spells(self, one: str) -> bool:
        try:
            return self._decode(self._encode(one, 0)) == one
        except TokenizerFormatError:  # as where the unknown token is none of the vocabulary
            return False

    def encode(
        self, actions: NDArray[Any], on_range: str, num_threads: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], list[str]]:
        """As the native method, on one thread."""
        codes, offsets, warnings = self._symbols.encode(actions, on_range, num_threads)
        texts = [_text(codes[a:b]) for a, b in itertools.pairwise(offsets.tolist())]
        # One by one: the package would start threads for a batch, and they do not survive a fork.
        chunks = [self._encode(text, chunk) for chunk, text in enumerate(texts)]
        lost = [set(t) - set(self._decode(c)) for t, c in zip(texts, chunks, strict=True)]
        if lowest := min(itertools.chain.from_iterable(lost), default=None):
            warnings.append(
                f"{sum(map(bool, lost))} of {len(texts)} chunks hold coefficients that no chunk of "
                f"the fit held, as {ord(lowest) + self.min_token}: their ids leave them out and "
                "will not decode"
            )
        ends = list(itertools.accumulate(map(len, chunks), initial=0))
        ids = np.fromiter(itertools.chain.from_iterable(chunks), np.int32, ends[-1])
        return ids, np.array(ends, dtype=np.int64), warnings

    def encode_padded(
        self,
        actions: NDArray[Any],
        max_length: int,
        pad_id: int,
        on_range: str,
        num_threads: int,
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_], int, list[str]]:
        """As the native method."""
        flat, offsets, warnings = self.encode(actions, on_range, num_threads)
        lengths = np.diff(offsets)
        mask = np.arange(max_length) < lengths[:, None]
        ids = np.full(mask.shape, pad_id, dtype=np.int32)
        kept = np.arange(len(flat)) - np.repeat(offsets[:-1], lengths) < max_length
        ids[mask] = flat[kept]
        return ids, mask, int(np.count_nonzero(lengths > max_length)), warnings

    def decode(
        self,
        ids: NDArray[Any],
        offsets: NDArray[np.int64],
        time_horizon: int,
        action_dim: int,
        on_range: str,
        pad: bool,
    ) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """As the native method."""
        bounds = offsets.tolist()
        if bounds[:1] != [0] or bounds[-1] != len(ids) or sorted(bounds) != bounds:
            raise ValueError(f"offsets must rise from 0 to the number of ids, {len(ids)}")
        chunks = [ids[a:b].tolist() for a, b in itertools.pairwise(bounds)]
        codes = [
            [ord(c) for c in self._decode(chunk)] if self._known.issuperset(chunk) else [_UNKNOWN]
            for chunk in chunks
        ]
        bounds = list(itertools.accumulate(map(len, codes), initial=0))
        # A character beyond 16 bits is no symbol; nor is the last one within.
        flat = np.array([min(c, 0xFFFF) for chunk in codes for c in chunk], dtype=np.int64)
        shape = (time_horizon, action_dim)
        return self._symbols.decode(flat, np.array(bounds, np.int64), *shape, on_range, pad)

    def _encode(self, text: str, chunk: int) -> list[int]:
        with _told(f"the tokenizers package cannot encode chunk {chunk}", TokenizerFormatError):
            ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text


@contextmanager
def _told(what: str, kind: type[Exception]) -> Iterator[None]:
    """Make an error out of whatever the package raises: it has no narrower class, and panics."""
    try:
        yield
    except BaseException as error:
        if not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise
        raise kind(f"{what}: {error}") from error


def _text(codes: NDArray[np.int32]) -> str:
    return codes.astype("<u4").tobytes().decode("utf-32-le")
