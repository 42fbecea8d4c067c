"""FAST: action chunks to token ids and back, as a transformers processor in one file.

A chunk of actions, ``time_horizon`` steps of ``action_dim`` numbers, becomes ids in four steps:

1. an orthonormal cosine transform (DCT-II) along time, one dim at a time: smooth motion ends up
   in few low frequencies;
2. multiplication by ``scale`` and rounding to whole numbers, half to even: this is where
   precision is given up;
3. one character a coefficient, all dims of frequency 0 first, with the code ``coefficient -
   min_token``, so that the smallest coefficient seen in the fit is character 0;
4. byte-level BPE over that string: words by GPT-2's pattern, bytes as printable characters, then
   the merges learnt in the fit.

Decoding walks back. A list of ids need not be a chunk (a model wrote it): each chunk comes back
with a `ChunkStatus`, and a bad one never as made-up motion.

A copy of this file lies beside every tokenizer it saves, so it must work where vlaprep is not
installed: at the top it imports only the standard library, NumPy and transformers.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import math
import operator
import re
from collections import Counter
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from transformers import PreTrainedTokenizerFast
from transformers.processing_utils import ProcessorMixin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

try:
    from vlaprep.errors import NoChunksError, TokenizerFormatError, VocabularyError
    from vlaprep.persist import write_atomic
except ImportError:  # a saved copy, loaded where vlaprep is not installed

    class NoChunksError(ValueError, RuntimeError):  # type: ignore[no-redef]
        """There is no chunk to fit on."""

    class TokenizerFormatError(ValueError):  # type: ignore[no-redef]
        """A saved tokenizer cannot be read, or is no FAST tokenizer."""

    class VocabularyError(ValueError, AssertionError):  # type: ignore[no-redef]
        """The range of quantised coefficients does not fit into the vocabulary."""

    def write_atomic(path: Path, data: bytes) -> None:
        """Write a file; without vlaprep a reader may see it half-written."""
        path.write_bytes(data)


__all__ = ["ChunkStatus", "FastActionProcessor", "dct", "idct", "quantize"]

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
SOURCE_FILE = "processing_action_tokenizer.py"  # others copy the class by this name
ON_RANGE = ("clamp", "error", "published")
POLICIES = ("zero", "pad", "strict")

_BLOCK = 256  # chunks transformed at a time while fitting
_SURROGATES = 0xD800  # the first code that is not a character
_REPLACEMENT = 0xFFFD  # what lenient decoders write for bytes that are no UTF-8


class ChunkStatus(IntEnum):
    """How the ids of one chunk decoded; everything but ``OK`` means: do not execute it."""

    OK = 0
    SHORT = 1  # fewer symbols than time_horizon * action_dim
    LONG = 2  # more of them
    UNKNOWN_ID = 3  # negative, or not in the vocabulary
    OUT_OF_ALPHABET = 4  # bytes that are no text, or a coefficient above max_token


def dct(x: NDArray[Any]) -> NDArray[np.float64]:
    """Orthonormal DCT-II along time, in float64.

    Parameters
    ----------
    x : ndarray, shape (..., H, D)
        Chunks; time is the last axis but one.

    Returns
    -------
    ndarray of float64, shape (..., H, D)
        Coefficients, frequency in the place of time.

    Notes
    -----
    ``c[k] = s(k) * sum_t x[t] * cos(pi * k * (2 t + 1) / 2H)``, ``s(0) = sqrt(1 / H)``, else
    ``sqrt(2 / H)``: `scipy.fft.dct` with ``norm="ortho"``.

    Examples
    --------
    >>> dct(np.ones((4, 2)))[0].round(6).tolist()
    [2.0, 2.0]
    """
    return _along_time(_cosines(x.shape[-2]), x)


def idct(c: NDArray[Any]) -> NDArray[np.float64]:
    """Inverse of `dct` (DCT-III), shape (..., H, D) to the same.

    Examples
    --------
    >>> idct(dct(np.array([[1.0], [2.0], [4.0]]))).ravel().round(6).tolist()
    [1.0, 2.0, 4.0]
    """
    return _along_time(_cosines(c.shape[-2]).T, c)


def quantize(x: NDArray[Any], scale: float, *, first_chunk: int = 0) -> NDArray[np.float64]:
    """Whole numbers ``around(dct(x) * scale)``, half to even, of chunks (N, H, D).

    They stay float64, which holds a coefficient of any size. `ValueError` for NaN or infinity,
    with the chunk (counted from `first_chunk`), step and dim.

    Examples
    --------
    >>> quantize(np.ones((1, 4, 1)), scale=10).astype(int).ravel().tolist()
    [20, 0, 0, 0]
    """
    x = np.asarray(x, dtype=np.float64)
    if not np.isfinite(x).all():
        chunk, step, dim = np.argwhere(~np.isfinite(x))[0]
        raise ValueError(
            f"actions hold {x[chunk, step, dim]} at chunk {first_chunk + chunk}, step {step}, "
            f"dim {dim}: leave such chunks out"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        q = np.around(dct(x) * scale)
    if not np.isfinite(q).all():
        raise ValueError(f"actions up to {np.abs(x).max():g} overflow at scale {scale}: normalise")
    return q


class FastActionProcessor(ProcessorMixin):  # type: ignore[misc]
    """The FAST action tokenizer behind the interface of a transformers processor.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerFast
        Byte-level BPE over the characters of quantised coefficients.
    scale : float
        Quantisation steps per unit of a coefficient.
    vocab_size : int
        Size asked for in the fit; the vocabulary can have fewer or more entries.
    min_token, max_token : int
        Smallest and largest coefficient of the fit. Without `max_token` (folders of the published
        class) it is read off the vocabulary; for ranges of 193, 194 and 255 to 322 the vocabulary
        leaves room for more than one answer and the largest is taken.
    action_dim, time_horizon : int, optional
        Shape of the chunks; saved with the tokenizer. None follows the last call.
    on_range : {"clamp", "error", "published"}
        What to do with coefficients outside ``[min_token, max_token]``. ``"clamp"`` moves them to
        the nearer end and warns once a call; ``"error"`` refuses; ``"published"`` does what the
        published class does: clamp below, encode what is above as it is, even where the
        vocabulary lacks the bytes (and accept such coefficients in decoding). Not saved.

    Attributes
    ----------
    called_time_horizon, called_action_dim : int or None
        Shape of the last call of an encode or decode method.

    Notes
    -----
    The method is Pertsch et al., "FAST: Efficient Action Tokenization for Vision-Language-Action
    Models" (2025). Ids equal those of the class published with it, fed float64, wherever all
    coefficients lie in the fitted range.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> chunks = np.sin(rng.uniform(0, 1, (64, 1, 2)) + np.linspace(0, 2, 10)[:, None])
    >>> processor = FastActionProcessor.fit(chunks, vocab_size=256)
    >>> ids = processor(chunks[:3])
    >>> processor.decode(ids).shape
    (3, 10, 2)
    >>> bool(np.abs(processor.decode(ids) - chunks[:3]).max() < 0.1)
    True
    """

    attributes: ClassVar[list[str]] = ["tokenizer"]
    tokenizer_class: ClassVar[str] = "AutoTokenizer"
    _auto_class: ClassVar[str] = "AutoProcessor"

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        scale: float = 10,
        vocab_size: int = 1024,
        min_token: int = 0,
        max_token: int | None = None,
        action_dim: int | None = None,
        time_horizon: int | None = None,
        on_range: str = "clamp",
    ) -> None:
        super().__init__(tokenizer)
        # English clean-up would eat blanks before punctuation, which are coefficients here.
        tokenizer.clean_up_tokenization_spaces = False
        vocabulary = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
        last = min_token + _alphabet_size(vocabulary) - 1
        max_token = last if max_token is None else max_token
        if not min_token <= max_token <= last:
            raise VocabularyError(
                f"max_token {max_token} does not lie between min_token {min_token} and {last}, the "
                "last coefficient this vocabulary has a character for"
            )
        self.scale = float(scale)
        self.vocab_size = operator.index(vocab_size)
        self.min_token = min_token
        self.max_token = max_token
        self.action_dim = self.called_action_dim = _positive("action_dim", action_dim)
        self.time_horizon = self.called_time_horizon = _positive("time_horizon", time_horizon)
        self.on_range = _one_of("on_range", on_range, ON_RANGE)
        self._bytes_of_id = {i: _token_bytes(token) for token, i in vocabulary.items()}
        self._writable_bytes = frozenset(b for c, b in _BYTE_OF.items() if c in vocabulary)
        self._encoded_shape: tuple[int, ...] = ()
        self._reported_horizons: set[int] = set()

    @property
    def bpe_tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer under the name that the published class gives it."""
        return self.tokenizer

    @classmethod
    def fit(
        cls,
        action_data: Iterable[Any],
        scale: float = 10,
        vocab_size: int = 1024,
        *,
        time_horizon: int | None = None,
        action_dim: int | None = None,
        max_token_length: int = 10_000,
    ) -> FastActionProcessor:
        """Train a tokenizer on action chunks.

        Parameters
        ----------
        action_data : list of ndarray (H, D), or ndarray (N, H, D)
            Chunks, normalised to about [-1, 1]; H and D may differ from chunk to chunk.
        scale : float
            Quantisation steps per unit of a coefficient.
        vocab_size : int
            Size to train to; the range of coefficients must fit into it.
        time_horizon, action_dim : int, optional
            Shape to save with the tokenizer. Default: that of the chunks, where all agree.
        max_token_length : int
            Bound on the characters of a merged token.

        Returns
        -------
        FastActionProcessor
            A new processor; called on an instance, that instance stays as it is.

        Raises
        ------
        NoChunksError
            Without any chunk.
        VocabularyError
            When the range of coefficients exceeds `vocab_size`; before any training.
        ValueError
            For NaN, infinity, a chunk that is no matrix, or an `action_dim` that is not the data's.

        Examples
        --------
        >>> processor = FastActionProcessor.fit([np.eye(4, 2), np.zeros((4, 2))], vocab_size=300)
        >>> processor.min_token, processor.max_token, processor.time_horizon
        (-7, 7, 4)
        """
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"scale must be a positive number, not {scale}")
        _positive("time_horizon", time_horizon)
        low, high = math.inf, -math.inf
        shapes: set[tuple[int, ...]] = set()
        blocks: list[NDArray[np.int32]] = []
        for first, block in _blocks(action_data):
            q = quantize(block, scale, first_chunk=first)
            low, high = min(low, q.min()), max(high, q.max())
            shapes.add(block.shape[1:])
            # Beyond int32 the range check below refuses anyway.
            blocks.append(np.clip(q, -(2**31), 2**31 - 1).astype(np.int32).reshape(len(q), -1))
        if not blocks:
            raise NoChunksError("no action chunk to fit on: action_data is empty")
        min_token, max_token = int(low), int(high)
        _check_range(min_token, max_token, vocab_size, scale)
        horizons, dims = ({shape[axis] for shape in shapes} for axis in (0, 1))
        if action_dim is not None and dims != {action_dim}:
            raise ValueError(f"action_dim {action_dim} asked for, but chunks have {sorted(dims)}")
        texts = (_text(row) for block in blocks for row in block - min_token)
        alphabet = [chr(code) for code in range(max_token - min_token + 1)]
        bpe = _train(texts, sum(map(len, blocks)), alphabet, vocab_size, max_token_length)
        return cls(
            PreTrainedTokenizerFast(tokenizer_object=bpe, clean_up_tokenization_spaces=False),
            scale=scale,
            vocab_size=vocab_size,
            min_token=min_token,
            max_token=max_token,
            action_dim=dims.pop() if len(dims) == 1 else None,
            time_horizon=time_horizon or (horizons.pop() if len(horizons) == 1 else None),
        )

    def __call__(self, actions: ArrayLike) -> list[list[int]]:
        """Token ids of each chunk.

        Parameters
        ----------
        actions : array_like or torch.Tensor, shape (B, H, D) or (H, D)
            Normalised actions of any real dtype, bfloat16 included; a tensor may be on any device.

        Returns
        -------
        list of list of int
            One list of ids per chunk; (H, D) counts as one chunk, an empty batch gives [].

        Raises
        ------
        ValueError
            For NaN or infinity (with chunk, step, dim), or a width that is not `action_dim`.
        VocabularyError
            For a coefficient out of range under ``on_range="error"``.
        """
        chunks = _as_chunks(actions)
        if not len(chunks):
            return []
        self._note_shape(*chunks.shape[1:])
        self._encoded_shape = chunks.shape[1:]
        shifted = self._in_range(quantize(chunks, self.scale) - self.min_token)
        codes = shifted.astype(np.int64).reshape(len(chunks), -1)
        self._warn_unwritable(codes)
        encoded = self.tokenizer(
            [_text(row) for row in codes],
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def encode_batch(self, actions: ArrayLike) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Ids of all chunks in one flat array.

        Returns
        -------
        ids : ndarray of int32
            The ids of chunk ``i`` are ``ids[offsets[i]:offsets[i + 1]]``.
        offsets : ndarray of int64, shape (B + 1,)
        """
        chunks = self(actions)
        offsets = np.cumsum([0, *map(len, chunks)], dtype=np.int64)
        return np.array([i for chunk in chunks for i in chunk], dtype=np.int32), offsets

    def encode_padded(
        self, actions: ArrayLike, max_length: int, pad_id: int = 0
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Ids as a matrix: cut to `max_length` (with one warning), filled up with `pad_id`.

        Returns
        -------
        ids : ndarray of int32, shape (B, max_length)
        mask : ndarray of bool, shape (B, max_length)
            True where there is an id.
        """
        _positive("max_length", max_length)
        chunks = self(actions)
        lengths = np.array([len(chunk) for chunk in chunks], dtype=np.int64)
        if (cut := int((lengths > max_length).sum())) > 0:
            logger.warning(
                "%d of %d chunks cut to max_length %d (longest: %d ids): they will not decode",
                cut, len(chunks), max_length, lengths.max(),
            )  # fmt: skip
        mask = np.arange(max_length) < lengths[:, None]
        ids = np.full(mask.shape, pad_id, dtype=np.int32)
        ids[mask] = [i for chunk in chunks for i in chunk[:max_length]]
        return ids, mask

    def decode(
        self,
        tokens: Iterable[Iterable[int]],
        *,
        time_horizon: int | None = None,
        action_dim: int | None = None,
    ) -> NDArray[np.float64]:
        """Actions of each list of ids; bad ones become zeros, with one warning a call.

        Parameters
        ----------
        tokens : iterable of iterables of int, or integer array or tensor (B, T)
            Ids of each chunk.
        time_horizon, action_dim : int, optional
            Shape of the chunks; default: that of the last encode call, else the tokenizer's own,
            else that of the last decode call.

        Returns
        -------
        ndarray of float64, shape (B, H, D)

        Raises
        ------
        ValueError
            When the shape is not known, or `action_dim` is not the tokenizer's own.
        """
        actions, status = self.decode_batch(
            tokens, time_horizon=time_horizon, action_dim=action_dim
        )
        if status.any():
            logger.warning(
                "%d of %d chunks did not decode and are zeros (%s); decode_batch tells which",
                np.count_nonzero(status), len(status), _count_reasons(status),
            )  # fmt: skip
        return actions

    def decode_batch(
        self,
        ids: Iterable[Any],
        offsets: Sequence[int] | NDArray[Any] | None = None,
        *,
        policy: str = "zero",
        time_horizon: int | None = None,
        action_dim: int | None = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """Actions and a status for each chunk.

        Parameters
        ----------
        ids : iterable
            A list of ids per chunk, or with `offsets` the flat ids of `encode_batch`.
        offsets : (B + 1,) integers, optional
            Where each chunk begins and ends in flat `ids`.
        policy : {"zero", "pad", "strict"}
            A bad chunk becomes zeros; or, if merely short or long, is filled with zero
            coefficients or cut; or raises.
        time_horizon, action_dim : int, optional
            As in `decode`.

        Returns
        -------
        actions : ndarray of float64, shape (B, H, D)
        status : ndarray of uint8, shape (B,)
            `ChunkStatus` of each chunk, whatever the policy.

        Raises
        ------
        ValueError
            As in `decode`; and under ``"strict"`` for any chunk that is not OK.

        Examples
        --------
        >>> processor = FastActionProcessor.fit(np.linspace(-1, 1, 80).reshape(10, 4, 2))
        >>> actions, status = processor.decode_batch([[], [10**9]])
        >>> actions.shape, [ChunkStatus(s).name for s in status]
        ((2, 4, 2), ['SHORT', 'UNKNOWN_ID'])
        """
        _one_of("policy", policy, POLICIES)
        horizon, dim = self._decode_shape(time_horizon, action_dim)
        chunks = [_id_list(chunk) for chunk in _split(ids, offsets)]
        coefficients = np.zeros((len(chunks), horizon * dim))
        status = np.zeros(len(chunks), dtype=np.uint8)
        for i, chunk in enumerate(chunks):
            status[i], codes = self._symbols(chunk, horizon * dim)
            if status[i] == ChunkStatus.OK or policy == "pad":
                coefficients[i, : len(codes)] = codes[: horizon * dim] + self.min_token
        if policy == "strict" and status.any():
            raise ValueError(
                f"{np.count_nonzero(status)} of {len(status)} chunks do not decode to "
                f"{horizon} x {dim} actions ({_count_reasons(status)}), the first is chunk "
                f"{np.flatnonzero(status)[0]}; policy 'zero' or 'pad' accepts them"
            )
        return idct(coefficients.reshape(-1, horizon, dim) / self.scale), status

    def save_pretrained(
        self,
        save_directory: str | Path,
        push_to_hub: bool = False,
        **kwargs: Any,  # noqa: ARG002 (what transformers passes for models)
    ) -> list[str]:
        """Write a folder that `from_pretrained` and ``AutoProcessor`` load, vlaprep or not.

        The same tokenizer gives the same bytes whatever transformers is installed;
        ``processor_config.json`` comes last. To upload, call ``push_to_hub(repo_id)``.
        """
        if push_to_hub:
            raise ValueError("save_pretrained does not upload: call processor.push_to_hub(repo_id)")
        bpe = json.loads(self.tokenizer.backend_tokenizer.to_str())
        bpe["truncation"] = bpe["padding"] = None  # traces of earlier calls, no part of the fit
        name = FastActionProcessor.__name__
        processor = {field: getattr(self, field) for field in _FIELDS} | {
            "format_version": FORMAT_VERSION,
            "processor_class": name,
            "auto_map": {"AutoProcessor": f"{Path(SOURCE_FILE).stem}.{name}"},
        }
        files = {
            "tokenizer.json": _json(bpe),
            "tokenizer_config.json": _json(_TOKENIZER_CONFIG),
            SOURCE_FILE: Path(__file__).read_bytes(),
            "processor_config.json": _json(dict(sorted(processor.items()))),
        }
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        for file, data in files.items():
            write_atomic(folder / file, data)
        return [str(folder / file) for file in files]

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, **kwargs: Any
    ) -> FastActionProcessor:
        """Load a folder or Hub repository that this or the published class saved.

        Parameters
        ----------
        pretrained_model_name_or_path : str or Path
            A folder, else a Hub id.
        **kwargs
            `on_range`, or a saved field to override; ``subfolder``, ``revision``, ``token``,
            ``cache_dir``, ``force_download``, ``local_files_only`` for finding the files. As usual
            in transformers, others are ignored.

        Raises
        ------
        TokenizerFormatError
            When a file is missing, cannot be read, or is no FAST tokenizer.

        Notes
        -----
        Reads ``tokenizer.json`` at the root or in ``bpe_tokenizer/`` (transformers 5 writes that
        for the published class) by itself, so no version of transformers stands in between.
        """
        folder = _local_folder(pretrained_model_name_or_path, kwargs)
        config_path = folder / "processor_config.json"
        fields = _read_config(config_path)
        fields |= {key: kwargs[key] for key in (*_FIELDS, "on_range") if key in kwargs}
        bpe_path = folder / "tokenizer.json"
        if not bpe_path.is_file() and (folder / "bpe_tokenizer" / "tokenizer.json").is_file():
            bpe_path = folder / "bpe_tokenizer" / "tokenizer.json"
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=_read_bpe(bpe_path), clean_up_tokenization_spaces=False
        )
        try:
            return cls(tokenizer, **fields)
        except ValueError as error:
            raise TokenizerFormatError(f"{folder} is no FAST tokenizer: {error}") from error

    def _note_shape(self, horizon: int, dim: int) -> None:
        """Check the shape of a call against the tokenizer's own, and remember it."""
        if self.action_dim is not None and dim != self.action_dim:
            raise ValueError(
                f"action_dim {dim} does not fit this tokenizer, which was fitted with "
                f"action_dim {self.action_dim}: pad or cut as in the fit, or fit anew"
            )
        if self.time_horizon not in (None, horizon) and horizon not in self._reported_horizons:
            self._reported_horizons.add(horizon)
            logger.warning(
                "time_horizon %d differs from the %d this tokenizer was fitted with",
                horizon, self.time_horizon,
            )  # fmt: skip
        self.called_time_horizon, self.called_action_dim = horizon, dim

    def _decode_shape(self, time_horizon: int | None, action_dim: int | None) -> tuple[int, int]:
        """Choose the shape of a decode call: a chunk just encoded comes back as it went in."""
        encoded = self._encoded_shape or (None, None)
        time_horizon, action_dim = (
            _positive("time_horizon", time_horizon),
            _positive("action_dim", action_dim),
        )
        horizon = time_horizon or encoded[0] or self.time_horizon or self.called_time_horizon
        dim = action_dim or encoded[1] or self.action_dim or self.called_action_dim
        if horizon is None or dim is None:
            raise ValueError(
                "the shape of the chunks is not known: pass time_horizon= and action_dim="
            )
        self._note_shape(horizon, dim)
        return horizon, dim

    def _in_range(self, codes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Apply `on_range` to ``coefficient - min_token``, shape (B, H, D)."""
        top = self.max_token - self.min_token
        below, above = codes < 0, codes > top
        outside = below | above
        if not outside.any():
            return codes
        span = f"[{self.min_token}, {self.max_token}]"
        if self.on_range == "error":
            chunk, frequency, dim = np.argwhere(outside)[0]
            raise VocabularyError(
                f"coefficient {codes[chunk, frequency, dim] + self.min_token:.0f} is outside the "
                f"fitted range {span} at chunk {chunk}, frequency {frequency}, dim {dim}: "
                "normalise as in the fit, fit on wider data, or use on_range='clamp'"
            )
        clamped = np.clip(codes, 0, top if self.on_range == "clamp" else None)
        logger.warning(
            "%d coefficients in %d of %d chunks are outside the fitted range %s: "
            "%d below, clamped; %d above, %s",
            outside.sum(), outside.any(axis=(1, 2)).sum(), len(codes), span, below.sum(),
            above.sum(), "clamped" if self.on_range == "clamp" else "encoded as they are",
        )  # fmt: skip
        if not _is_text(clamped):
            raise VocabularyError(
                f"coefficient {clamped.max() + self.min_token:.0f} has code {clamped.max():.0f}, "
                f"which is no character (surrogates begin at {_SURROGATES}); the fitted range is "
                f"{span}: normalise as in the fit, or use on_range='clamp'"
            )
        return clamped

    def _warn_unwritable(self, codes: NDArray[np.int64]) -> None:
        """Say so when the vocabulary lacks a byte: BPE without unknown token drops it silently."""
        if len(self._writable_bytes) == 256:
            return
        present = np.flatnonzero(np.bincount(codes.ravel()))
        lost = [c for c in present if not self._writable_bytes.issuperset(chr(c).encode())]
        if lost:
            logger.warning(
                "%d of %d chunks hold coefficients that no chunk of the fit held (%s): their ids "
                "leave them out and will not decode",
                np.isin(codes, lost).any(axis=1).sum(), len(codes),
                ", ".join(str(c + self.min_token) for c in lost[:5]) + ", ..." * (len(lost) > 5),
            )  # fmt: skip

    def _symbols(self, ids: list[int], expected: int) -> tuple[ChunkStatus, NDArray[np.int64]]:
        """Status and codes of one chunk; no codes where its ids are no text."""
        none = np.zeros(0, dtype=np.int64)
        if not all(i in self._bytes_of_id for i in ids):
            return ChunkStatus.UNKNOWN_ID, none
        try:
            text = b"".join(self._bytes_of_id[i] for i in ids).decode()
        except UnicodeDecodeError:
            return ChunkStatus.OUT_OF_ALPHABET, none
        codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.int64)
        top = self.max_token - self.min_token
        foreign = codes == _REPLACEMENT if self.on_range == "published" else codes > top
        if foreign.any():
            return ChunkStatus.OUT_OF_ALPHABET, none
        if len(codes) == expected:
            return ChunkStatus.OK, codes
        return (ChunkStatus.SHORT if len(codes) < expected else ChunkStatus.LONG), codes


_FIELDS = ("scale", "vocab_size", "min_token", "max_token", "action_dim", "time_horizon")

_BYTE_LEVEL_BPE = {"model": "BPE", "pre_tokenizer": "ByteLevel", "decoder": "ByteLevel"}

_TOKENIZER_CONFIG = {  # what transformers 4.57 and 5 both take; 5 alone would name another class
    "added_tokens_decoder": {},
    "clean_up_tokenization_spaces": False,
    "extra_special_tokens": {},
    "model_max_length": 10**30,
    "processor_class": FastActionProcessor.__name__,
    "tokenizer_class": "PreTrainedTokenizerFast",
}


@functools.lru_cache(maxsize=16)
def _cosines(horizon: int) -> NDArray[np.float64]:
    """Orthonormal DCT-II as a matrix (frequency, step)."""
    step = np.arange(horizon)
    phase = np.outer(step, 2 * step + 1) % (4 * horizon)  # the period; keeps large angles exact
    matrix = math.sqrt(2 / horizon) * np.cos(np.pi * phase / (2 * horizon))
    matrix[0] = math.sqrt(1 / horizon)
    matrix.flags.writeable = False
    return matrix


def _along_time(matrix: NDArray[np.float64], x: NDArray[Any]) -> NDArray[np.float64]:
    out = np.zeros(x.shape, dtype=np.float64)
    # In the order of time, one product and one sum at a time: unlike a BLAS product this has the
    # same bits on every CPU and in every batch size.
    for step in range(x.shape[-2]):
        out += matrix[:, step, None] * x[..., step, None, :]
    return out


def _numeric(x: Any) -> NDArray[Any]:
    """Make a real array of an array-like or a tensor (known by ``detach``; torch stays unknown)."""
    array = np.asarray(x.detach().cpu().double().numpy() if hasattr(x, "detach") else x)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise TypeError(f"actions must be real numbers, not {array.dtype}")
    return array


def _as_chunks(actions: Any) -> NDArray[Any]:
    """Make a batch (B, H, D) of a batch, a list of chunks, or one chunk (H, D)."""
    if isinstance(actions, (list, tuple)) and actions:
        arrays = [_numeric(chunk) for chunk in actions]
        if len(shapes := sorted({array.shape for array in arrays})) > 1:
            raise ValueError(f"the chunks of a batch must have one shape, not {shapes}")
        actions = np.stack(arrays)
    array = _numeric(actions)
    if array.shape == (0,):  # the empty list
        return array
    if array.ndim not in (2, 3) or 0 in array.shape[-2:]:
        raise ValueError(f"actions must have shape (B, H, D) or (H, D), not {array.shape}")
    return array if array.ndim == 3 else array[None]


def _blocks(action_data: Any) -> Iterator[tuple[int, NDArray[Any]]]:
    """Stack runs of chunks of one shape: (number of the first, array (n <= _BLOCK, H, D))."""
    pending: list[NDArray[Any]] = []
    number = -1
    for number, item in enumerate(action_data):
        chunk = _numeric(item)
        if chunk.ndim != 2 or chunk.size == 0:
            raise ValueError(f"chunk {number} must have shape (H, D), not {chunk.shape}")
        if pending and (len(pending) == _BLOCK or chunk.shape != pending[0].shape):
            yield number - len(pending), np.stack(pending)
            pending = []
        pending.append(chunk)
    if pending:
        yield number + 1 - len(pending), np.stack(pending)


def _check_range(min_token: int, max_token: int, vocab_size: int, scale: float) -> None:
    span = max_token - min_token
    if span > vocab_size or span >= _SURROGATES:
        limit = min(vocab_size, _SURROGATES - 1)
        advice = f", or raise vocab_size to {span + 100}" if span + 100 < _SURROGATES else ""
        raise VocabularyError(
            f"coefficients from {min_token} to {max_token} have a range of {span}, more than the "
            f"{limit} that vocab_size {vocab_size} allows, at scale {scale}: normalise the actions "
            f"to about [-1, 1], lower scale{advice}"
        )
    if span + 100 > vocab_size:
        logger.warning(
            "the range of coefficients, %d, nearly fills vocab_size %d and leaves few merges: "
            "raise vocab_size or lower scale %s",
            span, vocab_size, scale,
        )  # fmt: skip


def _train(
    texts: Iterator[str], count: int, alphabet: list[str], vocab_size: int, max_token_length: int
) -> Any:
    """Train a byte-level BPE exactly as the published class does."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[],
        initial_alphabet=alphabet,
        max_token_length=max_token_length,
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer=trainer, length=count)
    return bpe


def _text(codes: NDArray[Any]) -> str:
    return codes.astype("<u4").tobytes().decode("utf-32-le")


def _is_text(codes: NDArray[np.float64]) -> bool:
    surrogate = (codes >= _SURROGATES) & (codes < 0xE000)
    return not (surrogate | (codes > 0x10FFFF)).any()


def _byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes stand for themselves, the rest for characters from 256."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTE_OF = _byte_of_character()


def _token_bytes(token: str) -> bytes:
    """Bytes that a token stands for; one with a raw character in it stands for its own UTF-8."""
    if all(character in _BYTE_OF for character in token):
        return bytes(_BYTE_OF[character] for character in token)
    return token.encode()


def _alphabet_size(vocabulary: dict[str, int]) -> int:
    """Count the characters 0, 1, ... that the vocabulary begins with.

    At least the fitted range plus one; more where byte-level characters of the training happen to
    follow on.
    """
    size = 0
    while vocabulary.get(chr(size)) == size and size < _SURROGATES:
        size += 1
    if size == 0:
        raise VocabularyError(
            "the vocabulary does not begin with character 0: this BPE is no FAST tokenizer"
        )
    return size


def _split(ids: Any, offsets: Any) -> Iterable[Any]:
    if offsets is None:
        return _listed(ids)  # type: ignore[no-any-return]
    flat, bounds = _listed(ids), _listed(offsets)
    if not bounds or bounds[0] != 0 or bounds[-1] != len(flat) or sorted(bounds) != bounds:
        raise ValueError(f"offsets must rise from 0 to the number of ids, {len(flat)}")
    return [flat[a:b] for a, b in itertools.pairwise(bounds)]


def _id_list(chunk: Any) -> list[int]:
    try:
        return [operator.index(i) for i in _listed(chunk)]
    except TypeError as error:
        raise TypeError(f"tokens must be a list of ids per chunk: {error}") from error


def _listed(values: Any) -> Any:
    return values.tolist() if hasattr(values, "tolist") else values


def _count_reasons(status: NDArray[np.uint8]) -> str:
    counts = Counter(status[status != ChunkStatus.OK].tolist())
    return ", ".join(
        f"{counts[s]} {ChunkStatus(s).name.lower().replace('_', ' ')}" for s in sorted(counts)
    )


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
    return value


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return value


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _local_folder(source: str | Path, options: dict[str, Any]) -> Path:
    """Find the folder with the files: `source` itself, or a snapshot of that Hub repository."""
    folder = Path(source)
    if not folder.is_dir():
        if folder.exists() or not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", str(source)):
            raise TokenizerFormatError(f"{source} is neither a folder nor a Hub id")
        from huggingface_hub import snapshot_download

        known = ("revision", "token", "cache_dir", "force_download", "local_files_only")
        folder = Path(
            snapshot_download(
                str(source),
                allow_patterns=["*processor_config.json", "*tokenizer.json"],
                **{key: options[key] for key in known if options.get(key) is not None},
            )
        )
    return folder / (options.get("subfolder") or "")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TokenizerFormatError(f"no {path.name} in {path.parent}") from None
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or no JSON
        raise TokenizerFormatError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerFormatError(f"{path} must hold a JSON object")
    return value


def _read_config(path: Path) -> dict[str, Any]:
    """Read the constructor's fields from ``processor_config.json``, ours or the published one."""
    config = _read_json(path)
    version = config.get("format_version", FORMAT_VERSION)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise TokenizerFormatError(
            f"{path} has format_version {version!r}, this vlaprep reads up to {FORMAT_VERSION}: "
            "update vlaprep"
        )
    fields: dict[str, Any] = {field: config.get(field) for field in _FIELDS}
    for field, value in fields.items():
        required = field in ("scale", "vocab_size", "min_token")
        kinds = (int, float) if field == "scale" else (int,)
        if (value is None and required) or (
            value is not None and (not isinstance(value, kinds) or isinstance(value, bool))
        ):
            raise TokenizerFormatError(f"{path}: {field} is {value!r}, which is no number to use")
    if not (math.isfinite(fields["scale"]) and fields["scale"] > 0):
        raise TokenizerFormatError(f"{path}: scale is {fields['scale']!r}, it must be positive")
    return fields


def _read_bpe(path: Path) -> Any:
    """Read the byte-level BPE from a ``tokenizer.json``."""
    from tokenizers import Tokenizer

    parts = _read_json(path)
    for part, wanted in _BYTE_LEVEL_BPE.items():
        found = parts.get(part)
        if not isinstance(found, dict) or found.get("type") != wanted:
            raise TokenizerFormatError(f"{path} is no byte-level BPE: its {part} is not {wanted}")
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # tokenizers has no narrower class
        raise TokenizerFormatError(f"{path} is no tokenizer: {error}") from error
