"""FAST: action chunks to token ids and back, as a transformers processor in one file.

A chunk of actions, ``time_horizon`` steps of ``action_dim`` numbers, becomes ids in four steps:

1. an orthonormal DCT-II along time, so that smooth motion ends up in few low frequencies;
2. multiplication by ``scale`` and rounding, half to even: this is where precision is given up;
3. one character a coefficient, all dims of frequency 0 first: code ``coefficient - min_token``;
4. byte-level BPE over that string: words by GPT-2's pattern, then the merges learnt in the fit.

Decoding walks back. A list of ids need not be a chunk (a model wrote it): each chunk comes back
with a `ChunkStatus`, and a bad one never as made-up motion.

A copy of this file lies beside every tokenizer it saves and works where vlaprep is not installed:
at the top it imports only the standard library, NumPy and transformers.
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
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from transformers import PreTrainedTokenizerFast
from transformers.processing_utils import ProcessorMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

try:
    from vlaprep._native import Codec, fit_bpe
    from vlaprep.codec import ChunkStatus
    from vlaprep.errors import NoChunksError, TokenizerFormatError, VocabularyError
    from vlaprep.hub import download_tokenizer
    from vlaprep.persist import write_atomic
except ImportError:  # a saved copy, loaded where vlaprep is not installed
    Codec = fit_bpe = download_tokenizer = None  # type: ignore[assignment,misc]  # everything below goes without them
    write_atomic = Path.write_bytes  # type: ignore[assignment]  # a reader may see it half-written

    class ChunkStatus(IntEnum):  # type: ignore[no-redef]
        """How the ids of one chunk decoded; everything but ``OK`` means: do not execute it."""

        OK = 0
        SHORT = 1  # fewer symbols than time_horizon * action_dim
        LONG = 2  # more of them
        UNKNOWN_ID = 3  # negative, or not in the vocabulary
        OUT_OF_ALPHABET = 4  # bytes that are no text, or a coefficient above max_token

    class NoChunksError(ValueError, RuntimeError):  # type: ignore[no-redef]
        """There is no chunk to fit on."""

    class TokenizerFormatError(ValueError):  # type: ignore[no-redef]
        """A saved tokenizer cannot be read, or is no FAST tokenizer."""

    class VocabularyError(ValueError, AssertionError):  # type: ignore[no-redef]
        """The range of quantised coefficients does not fit into the vocabulary."""


__all__ = ["ChunkStatus", "FastActionProcessor", "dct", "idct", "quantize"]

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
SOURCE_FILE = "processing_action_tokenizer.py"  # others copy the class by this name
ON_RANGE = ("clamp", "error", "published")
POLICIES = ("zero", "pad", "strict")

_NUMBERS = ("scale", "vocab_size", "min_token", "max_token", "action_dim", "time_horizon")
_FIELDS = (*_NUMBERS, "normalization")
_PROCESSOR_CONFIG = {
    "auto_map": {"AutoProcessor": "processing_action_tokenizer.FastActionProcessor"},
    "format_version": FORMAT_VERSION,
    "processor_class": "FastActionProcessor",
}
_TOKENIZER_CONFIG = {  # what transformers 4.57 and 5 both take; 5 alone would name another class
    "added_tokens_decoder": {},
    "clean_up_tokenization_spaces": False,
    "extra_special_tokens": {},
    "model_max_length": 10**30,
    "processor_class": "FastActionProcessor",
    "tokenizer_class": "PreTrainedTokenizerFast",
}
_DOWNLOAD_OPTIONS = ("revision", "token", "cache_dir", "force_download", "local_files_only")

_MAX_VOCABULARY = 1 << 20  # the trainer makes room for all at once, and dies of too much
_LONGEST = 4096  # steps of a chunk; their transform is a matrix of steps x steps
_BLOCK = 1024  # chunks stacked at a time while fitting
_FAR = 1 << 50  # a coefficient is exact in float64, with room for its fraction
_MAX_CODE = 0xD7FF  # the last before the surrogates, which are no characters

# GPT-2's alphabet: printable bytes stand for themselves, the rest for characters from 256 on.
_PRINTABLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + i): byte for i, byte in enumerate(sorted({*range(256)} - {*_PRINTABLE}))
}


def dct(x: NDArray[Any]) -> NDArray[np.float64]:
    """Orthonormal DCT-II along time of chunks (..., H, D), as float64 (..., frequency, D).

    ``c[k] = s(k) * sum_t x[t] * cos(pi * k * (2 t + 1) / 2H)``, ``s(0) = sqrt(1 / H)``, else
    ``sqrt(2 / H)``: `scipy.fft.dct` with ``norm="ortho"``.
    """
    weights, first, rest = _weights(x.shape[-2]), 1, np.asarray(x, dtype=np.float64)
    out = np.empty(rest.shape)
    while True:  # one `_halves`, odd frequencies out of the differences, then the even ones
        low, middle, high = _halves(rest)
        odd = weights[first :: 2 * first, : low.shape[-2]]
        out[..., first :: 2 * first, :] = _product(odd[:, ::-1], (low - high)[..., ::-1, :])
        rest = np.concatenate([low + high, middle], axis=-2)
        first *= 2
        if middle.shape[-2]:
            out[..., ::first, :] = _product(weights[::first, : rest.shape[-2]], rest)
            return out


def idct(c: NDArray[Any]) -> NDArray[np.float64]:
    """Inverse of `dct` (DCT-III): coefficients (..., H, D) to float64 chunks of that shape."""
    weights, first = _weights(c.shape[-2]), c.shape[-2] & -c.shape[-2]  # the power of two in it
    steps = c.shape[-2] // first
    out = _product(weights[:: 2 * first, : steps - steps // 2].T, c[..., :: 2 * first, :])
    while first:
        half = c.shape[-2] // first // 2
        odd = _product(weights[first :: 2 * first, :half].T, c[..., first :: 2 * first, :])
        low, middle = out[..., :half, :], out[..., half:, :]
        out = np.concatenate([low + odd, middle, (low - odd)[..., ::-1, :]], axis=-2)
        first //= 2
    return out


def quantize(x: NDArray[Any], scale: float, *, first_chunk: int = 0) -> NDArray[np.float64]:
    """Whole numbers ``around(dct(x) * scale)``, half to even, of chunks (N, H, D), as float64.

    `ValueError` for NaN or infinity, with the chunk (counted from `first_chunk`), step and dim.

    Examples
    --------
    >>> quantize(np.ones((1, 4, 1)), scale=10).astype(int).ravel().tolist()
    [20, 0, 0, 0]
    """
    x = np.asarray(x, dtype=np.float64)
    if not np.isfinite(x).all():
        chunk, step, dim = np.argwhere(~np.isfinite(x))[0]
        place = f"chunk {first_chunk + chunk}, step {step}, dim {dim}"
        raise ValueError(f"actions hold {x[chunk, step, dim]} at {place}: leave such chunks out")
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
        Smallest and largest coefficient of the fit. Without `max_token` (the published class saves
        none) the largest that the vocabulary allows: for ranges of 193, 194 and 255 to 322 that
        can be more than the fit had.
    action_dim, time_horizon : int, optional
        Shape of the chunks: another width is refused, another horizon reported. None: any.
    on_range : {"clamp", "error", "published"}
        What to do with coefficients outside ``[min_token, max_token]``: move them to the nearer
        end and warn once a call; refuse; or do as the published class: clamp below, encode what is
        above as it is, even where the vocabulary lacks the bytes (but refuse what is no character,
        from code 55,296 on), and accept that in decoding. Not saved.
    normalization : dict, optional
        How the actions of the fit were normalised: `vlaprep.Normalization.to_dict`.

    Notes
    -----
    After Pertsch et al., "FAST: Efficient Action Tokenization for Vision-Language-Action Models"
    (2025). Ids equal those of the class published with it, fed float64, wherever all coefficients
    lie in the fitted range. ``called_time_horizon`` and ``called_action_dim`` are the last shape.
    The tokenizer may be replaced, also by parts; after a change to merges alone, or to options of
    its model, make a new processor.

    Examples
    --------
    >>> phase = np.random.default_rng(0).uniform(0, 1, (64, 1, 2))
    >>> chunks = np.sin(phase + np.linspace(0, 2, 10)[:, None])
    >>> processor = FastActionProcessor.fit(chunks, vocab_size=256)
    >>> actions = processor.decode(processor(chunks[:3]))
    >>> actions.shape, bool(np.abs(actions - chunks[:3]).max() < 0.1)
    ((3, 10, 2), True)
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
        normalization: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(tokenizer)
        # English clean-up would eat blanks before punctuation, which are coefficients here.
        tokenizer.clean_up_tokenization_spaces = False
        vocabulary = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
        self.scale = _number("scale", scale, kind=float)
        self.vocab_size = _number("vocab_size", vocab_size)
        self.min_token = _number("min_token", min_token, -_FAR, _FAR)
        if (abs(self.min_token) + _MAX_CODE) / self.scale > 1e308 / _LONGEST:  # so many are summed
            raise ValueError(f"scale is {self.scale}, so small that coefficients overflow")
        last = self.min_token + _alphabet_size(vocabulary) - 1
        max_token = last if max_token is None else max_token
        self.max_token = _number("max_token", max_token, self.min_token - 1, last + 1)
        self.action_dim = self.called_action_dim = _optional("action_dim", action_dim)
        self.time_horizon = self.called_time_horizon = _optional("time_horizon", time_horizon)
        self.on_range = _one_of("on_range", on_range, ON_RANGE)
        _one_of("type of normalization", type(normalization).__name__, ("dict", "NoneType"))
        self.normalization = normalization
        self._encoded_shape: tuple[int | None, int | None] = (None, None)
        self._reported_horizons: set[int] = set()
        self._native: tuple[Any, Any] = (None, None)

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
        alphabet: str = "bytes",
        compatible: bool = False,
        num_threads: int | None = None,
    ) -> FastActionProcessor:
        """Train a new tokenizer on action chunks; an instance it is called on stays as it is.

        Parameters
        ----------
        action_data : list of ndarray (H, D), or ndarray (N, H, D)
            Chunks, normalised to about [-1, 1]; H and D may differ from chunk to chunk. Many may
            come in blocks (n, H, D), from a list or an object whose ``__iter__`` begins anew.
        scale, vocab_size
            As in the class; the range of coefficients must fit into `vocab_size`.
        time_horizon, action_dim : int, optional
            Shape to save with the tokenizer. Default: that of the chunks, where all agree.
        max_token_length : int
            Bound on the characters of a merged token.
        alphabet : {"bytes", "symbols"}
            The published format; or one character a coefficient, without words, bytes and entries
            that no text uses, which takes fewer tokens. The published class reads both.
        compatible : bool
            Do as the published class where the alphabet, one character a coefficient and one a byte
            of their text, has more than `vocab_size` entries: let the vocabulary have as many, and
            no merge. Without it that is an error. What fits is trained alike.
        num_threads : int, optional
            Bound on threads; the tokenizer is the same.

        Raises
        ------
        NoChunksError, VocabularyError
            Without any chunk; when range or alphabet exceed `vocab_size`, before any training.
        ValueError
            For NaN, infinity, a chunk that is no matrix, or an `action_dim` that is not the data's.

        Examples
        --------
        >>> processor = FastActionProcessor.fit([np.eye(4, 2), np.zeros((4, 2))], vocab_size=300)
        >>> processor.min_token, processor.max_token, processor.time_horizon
        (-7, 7, 4)
        """
        scale = _number("scale", scale, kind=float)
        vocab_size = _number("vocab_size", vocab_size, below=_MAX_VOCABULARY + 1)
        max_token_length = _number("max_token_length", max_token_length, below=2**31)
        time_horizon = _optional("time_horizon", time_horizon)
        blocks = _Blocks(action_data, _optional("action_dim", action_dim))
        options: dict[str, Any] = {
            "max_token_length": max_token_length,
            "alphabet": _one_of("alphabet", alphabet, ("bytes", "symbols")),
            "compatible": compatible,
        }
        if fit_bpe is None:
            min_token, max_token, bpe = _train([*blocks], scale, vocab_size, **options)
        else:
            min_token, max_token, tokens, merges = fit_bpe(
                blocks, scale, vocab_size, num_threads=num_threads, **options
            )
            bpe = _tokenizer(alphabet, tokens, merges)
        if max_token - min_token + 100 > vocab_size:
            template = "a range of %d coefficients leaves few merges in vocab_size %d: raise it"
            logger.warning(template, max_token - min_token, vocab_size)
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe)
        horizons, dims = map(set, zip(*blocks.shapes, strict=True))
        action_dim = dims.pop() if len(dims) == 1 else None
        time_horizon = time_horizon or (horizons.pop() if len(horizons) == 1 else None)
        return cls(tokenizer, scale, vocab_size, min_token, max_token, action_dim, time_horizon)

    def __call__(self, actions: ArrayLike) -> list[list[int]]:
        """Token ids of each chunk.

        Parameters
        ----------
        actions : array_like or torch.Tensor, shape (B, H, D) or (H, D)
            Normalised actions of any real dtype, bfloat16 included; a tensor may be on any device.
            (H, D) counts as one chunk; an empty batch gives [].

        Raises
        ------
        ValueError, VocabularyError
            For NaN or infinity (with chunk, step, dim), or a width that is not `action_dim`; for a
            coefficient that `on_range` refuses.
        """
        flat, offsets = self.encode_batch(actions)
        ids = flat.tolist()
        return [ids[a:b] for a, b in itertools.pairwise(offsets.tolist())]

    def encode_batch(self, actions: ArrayLike) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Ids of all chunks in one flat array, and offsets; `actions` and errors as in a call.

        The ids of chunk ``i`` are ``ids[offsets[i]:offsets[i + 1]]``.
        """
        chunks = _as_chunks(actions)
        if not len(chunks):
            return np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
        horizon, dim = chunks.shape[1:]
        self._check_shape(horizon, dim)
        if native := self._codec():
            ids, offsets, warnings = native.encode(chunks, self.on_range)
            for warning in warnings:
                logger.warning("%s", warning)
        else:
            texts = [_text(codes) for codes in self._codes(quantize(chunks, self.scale))]
            options = {"return_attention_mask": False, "return_token_type_ids": False}
            lists = self.tokenizer(texts, **options)["input_ids"]
            ids = np.array([*itertools.chain.from_iterable(lists)], dtype=np.int32)
            offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        self._encoded_shape = self.called_time_horizon, self.called_action_dim = horizon, dim
        return ids, offsets

    def encode_padded(
        self, actions: ArrayLike, max_length: int, pad_id: int = 0
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Ids as a matrix, and a mask of the same shape, True where there is an id.

        Rows are cut to `max_length` (with one warning) or filled up with `pad_id`. To decode them:
        ``decode_batch([row[m] for row, m in zip(ids, mask)])``.
        """
        _number("max_length", max_length)
        _number("pad_id", pad_id, -(2**31) - 1, 2**31)
        flat, offsets = self.encode_batch(actions)
        lengths = np.diff(offsets)
        if cut := np.count_nonzero(lengths > max_length):
            template = "%d of %d chunks cut to max_length %d: they will not decode"
            logger.warning(template, cut, len(lengths), max_length)
        mask = np.arange(max_length) < lengths[:, None]
        ids = np.full(mask.shape, pad_id, dtype=np.int32)
        place = np.arange(len(flat)) - np.repeat(offsets[:-1], lengths)
        ids[mask] = flat[place < max_length]
        return ids, mask

    def decode(
        self,
        tokens: Iterable[Iterable[int]],
        *,
        time_horizon: int | None = None,
        action_dim: int | None = None,
    ) -> NDArray[np.float64]:
        """Actions (B, H, D) float64 of lists of ids; bad ones become zeros, with one warning.

        Parameters
        ----------
        tokens : iterable of iterables of int, or integer array or tensor (B, T)
            Ids of each chunk.
        time_horizon, action_dim : int, optional
            Shape of the chunks. Default, for each of the two: that of the last encode call, so
            that a chunk just encoded comes back in its own shape, whatever the fit had; else the
            tokenizer's own; else that of the last decode call.

        Raises
        ------
        ValueError, TypeError
            When the shape is not known, or `action_dim` is not the tokenizer's own; when `tokens`
            is no list of ids per chunk.
        """
        actions, status = self.decode_batch(
            tokens, time_horizon=time_horizon, action_dim=action_dim
        )
        if status.any():
            logger.warning("%s; they are zeros", _describe(status))
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
        """Actions and a status for each chunk; shapes and errors as in `decode`, no warning.

        Parameters
        ----------
        ids, offsets
            A list of ids per chunk; or flat ids and where chunks begin, as of `encode_batch`.
        policy : {"zero", "pad", "strict"}
            A bad chunk becomes zeros; or, if merely short or long, is filled with zero
            coefficients or cut; or is a ValueError.

        Returns
        -------
        actions, status : ndarray of float64, shape (B, H, D), and of uint8, shape (B,)
            The status is the `ChunkStatus` of each chunk, whatever the policy.

        Examples
        --------
        >>> processor = FastActionProcessor.fit(np.linspace(-1, 1, 80).reshape(10, 4, 2))
        >>> actions, status = processor.decode_batch([[], [10**9]])
        >>> actions.shape, [ChunkStatus(s).name for s in status]
        ((2, 4, 2), ['SHORT', 'UNKNOWN_ID'])
        """
        _one_of("policy", policy, POLICIES)
        horizon, dim = self._decode_shape(time_horizon, action_dim)
        ids, offsets = _flat_ids(ids, offsets)
        if native := self._codec():
            pad = policy == "pad"
            actions, status = native.decode(ids, offsets, horizon, dim, self.on_range, pad)
        else:
            coefficients = np.zeros((len(offsets) - 1, horizon * dim))
            status = np.zeros(len(offsets) - 1, dtype=np.uint8)
            for i, (a, b) in enumerate(itertools.pairwise(offsets)):
                status[i], codes = self._symbols(ids[a:b].tolist(), horizon * dim)
                if status[i] == ChunkStatus.OK or policy == "pad":
                    coefficients[i, : len(codes)] = codes[: horizon * dim] + self.min_token
            actions = idct(coefficients.reshape(-1, horizon, dim) / self.scale)
        if policy == "strict" and status.any():
            raise ValueError(f"{_describe(status)}; policy 'zero' or 'pad' accepts them")
        self.called_time_horizon, self.called_action_dim = horizon, dim
        return actions, status

    def save_pretrained(self, save_directory: str | Path, **kwargs: Any) -> list[str]:
        """Write a folder that `from_pretrained` and ``AutoProcessor`` load, vlaprep or not.

        The same tokenizer gives the same bytes whatever transformers is installed;
        ``processor_config.json`` comes last. To upload, call ``push_to_hub(repo_id)``.
        """
        if kwargs.get("push_to_hub"):
            raise ValueError("save_pretrained does not upload: call processor.push_to_hub(repo_id)")
        bpe = json.loads(self.tokenizer.backend_tokenizer.to_str())
        bpe["truncation"] = bpe["padding"] = None  # traces of earlier calls, no part of the fit
        config = _PROCESSOR_CONFIG | {field: getattr(self, field) for field in _FIELDS}
        files = {
            "tokenizer.json": _json(bpe),
            "tokenizer_config.json": _json(_TOKENIZER_CONFIG),
            SOURCE_FILE: Path(__file__).read_bytes(),
            "processor_config.json": _json(dict(sorted(config.items()))),
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
            `on_range`, or a saved field to override; for finding the files ``subfolder`` and, of
            `huggingface_hub.snapshot_download`, ``revision``, ``token``, ``cache_dir``,
            ``force_download``, ``local_files_only``. As usual in transformers, others are ignored.

        Raises
        ------
        TokenizerFormatError
            When a file is missing, cannot be read, or is no FAST tokenizer; its subclass
            TokenizerNotFoundError when the Hub does not have or give it.
        """
        on_range = _one_of("on_range", kwargs.get("on_range", "clamp"), ON_RANGE)
        folder = _local_folder(pretrained_model_name_or_path, kwargs)
        config = _read(folder / "processor_config.json", json.loads)
        if not isinstance(config, dict):
            raise TokenizerFormatError(f"{folder} has no object in processor_config.json: {config}")
        version = config.get("format_version", FORMAT_VERSION)  # the published class writes none
        if version != FORMAT_VERSION:
            raise TokenizerFormatError(f"{folder} has format_version {version!r}: update vlaprep")
        fields: dict[str, Any] = {name: kwargs.get(name, config.get(name)) for name in _FIELDS}
        return _load(folder, lambda: cls(_read_bpe(folder), on_range=on_range, **fields))  # type: ignore[no-any-return]

    def check(self, stats_or_config: Any) -> list[str]:
        """Say as `vlaprep.Normalization.differences` how a config or statistics differ; else []."""
        if self.normalization is None:
            raise TokenizerFormatError("this tokenizer has no normalization to check: fit it anew")
        try:  # what this file imports elsewhere, transformers asks for where it is loaded
            from vlaprep.normalization import Normalization
        except ImportError as error:
            raise ImportError("to check a normalization, pip install vlaprep") from error
        return Normalization.from_dict(self.normalization).differences(stats_or_config)

    def _check_shape(self, horizon: int, dim: int) -> None:
        """Refuse a width, and report a horizon, that is not the tokenizer's own."""
        if self.action_dim not in (None, dim):
            raise ValueError(
                f"action_dim {dim} is not the action_dim {self.action_dim} that this tokenizer was "
                "fitted with: pad or cut as in the fit, or fit anew"
            )
        if self.time_horizon not in (None, horizon) and horizon not in self._reported_horizons:
            self._reported_horizons.add(horizon)
            template = "time_horizon %d differs from the %d of the fit"
            logger.warning(template, horizon, self.time_horizon)

    def _decode_shape(self, time_horizon: int | None, action_dim: int | None) -> tuple[int, int]:
        """Choose the shape of a decode call in the order that `decode` documents."""
        given = _optional("time_horizon", time_horizon), _optional("action_dim", action_dim)
        own = self.time_horizon, self.action_dim
        called = self.called_time_horizon, self.called_action_dim
        sources = zip(given, self._encoded_shape, own, called, strict=True)
        horizon, dim = (next(filter(None, sizes), None) for sizes in sources)
        if horizon is None or dim is None:
            raise ValueError("unknown shape of chunks: pass time_horizon= and action_dim=")
        self._check_shape(horizon, dim)
        return horizon, dim

    def _codec(self) -> Any:
        """Make the native codec of this tokenizer, once; None where there is no such thing."""
        bpe = self.tokenizer.backend_tokenizer
        size, pre = bpe.get_vocab_size(), bpe.pre_tokenizer
        numbers = self.scale, self.min_token, self.max_token, self.time_horizon
        of = (  # as much as can be looked at in a call of one chunk
            Codec, bpe, size, bpe.id_to_token(size - 1), len(bpe.get_added_tokens_decoder()),
            type(bpe.normalizer), type(bpe.post_processor), type(pre),
            getattr(pre, "add_prefix_space", None), getattr(pre, "use_regex", None), *numbers,
        )  # fmt: skip
        if self._native[0] != of:
            native = None
            try:
                native = None if Codec is None else Codec(bpe.to_str(), *numbers)
            except (NotImplementedError, OverflowError) as reason:
                logger.warning("tokenizer %s: its own package encodes, which takes longer", reason)
            vocabulary = bpe.get_vocab(with_added_tokens=False)
            known = _BYTE_OF if pre else {}
            self._bytes_of_id = {  # a token with a raw character in it stands for its own UTF-8
                i: bytes(known[c] for c in t) if known.keys() >= {*t} else t.encode()
                for t, i in vocabulary.items()
            }
            self._written = frozenset(known.get(t, t) for t in vocabulary if len(t) == 1)
            self._native = of, native
        return self._native[1]

    def _codes(self, coefficients: NDArray[np.float64]) -> NDArray[np.int64]:
        """Character codes of coefficients (B, H, D), with `on_range` applied."""
        _one_of("on_range", self.on_range, ON_RANGE)
        codes = coefficients - self.min_token
        outside = (codes < 0) | (codes > self.max_token - self.min_token)
        if outside.any():
            chunk, frequency, dim = np.argwhere(outside)[0]
            fault = (
                f"{outside.sum()} coefficients in {outside.any(axis=(1, 2)).sum()} of {len(codes)} "
                f"chunks are outside the fitted range [{self.min_token}, {self.max_token}], first "
                f"{coefficients[chunk, frequency, dim]:.0f} at chunk {chunk}, frequency "
                f"{frequency}, dim {dim}: normalise as in the fit, or fit on wider data"
            )
            no_character = self.on_range == "published" and codes.max() > _MAX_CODE
            if self.on_range == "error" or no_character:
                raise VocabularyError(f"{fault}, or use on_range='clamp'")
            clamped = "at both ends" if self.on_range == "clamp" else "below, and kept above"
            logger.warning("%s; clamped %s", fault, clamped)
        codes = np.clip(codes, 0, self._highest_code).astype(np.int64)
        # BPE without an unknown token drops a byte that the vocabulary lacks, in silence.
        present = np.flatnonzero(np.bincount(codes.ravel()))
        bytewise = self.tokenizer.backend_tokenizer.pre_tokenizer
        spelt = (chr(c).encode() if bytewise else chr(c) for c in present)
        lost = [c for c, s in zip(present, spelt, strict=True) if not self._written.issuperset(s)]
        if lost:
            logger.warning(
                "%d of %d chunks hold coefficients that no chunk of the fit held, as %d: their ids "
                "leave them out and will not decode",
                np.isin(codes, lost).any(axis=(1, 2)).sum(), len(codes), lost[0] + self.min_token,
            )  # fmt: skip
        return codes  # type: ignore[no-any-return]

    @property
    def _highest_code(self) -> int:
        """The highest code that an encode writes and a decode takes."""
        return _MAX_CODE if self.on_range == "published" else self.max_token - self.min_token

    def _symbols(self, ids: list[int], expected: int) -> tuple[ChunkStatus, NDArray[np.int64]]:
        """Status and codes of one chunk; no codes where its ids are no text of the alphabet."""
        try:
            text = b"".join(self._bytes_of_id[i] for i in ids).decode()
        except KeyError:
            return ChunkStatus.UNKNOWN_ID, np.zeros(0, dtype=np.int64)
        except UnicodeDecodeError:
            return ChunkStatus.OUT_OF_ALPHABET, np.zeros(0, dtype=np.int64)
        codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.int64)
        if (codes > self._highest_code).any():
            return ChunkStatus.OUT_OF_ALPHABET, codes[:0]
        if len(codes) == expected:
            return ChunkStatus.OK, codes
        return (ChunkStatus.SHORT if len(codes) < expected else ChunkStatus.LONG), codes


@functools.lru_cache(maxsize=16)
def _weights(horizon: int) -> NDArray[np.float64]:
    """Orthonormal DCT-II as a matrix (frequency, step), in the same bits on every machine."""
    _optional("time_horizon", horizon)
    step = np.arange(horizon)
    phase = np.outer(step, 2 * step + 1) % (4 * horizon)  # the period
    phase = np.minimum(phase, 4 * horizon - phase)
    sign = np.where(phase <= horizon, 1.0, -1.0)
    quarter = np.arange(horizon + 1)
    near: NDArray[np.float64] = np.pi * quarter.astype(np.float64) / (2.0 * horizon)
    far = near[::-1]  # the angle to a right one, the smaller of the two where the cosine is a sine
    cosines = np.where(2 * quarter <= horizon, _series(near, 1), far * _series(far, 2))
    cosines = math.sqrt(2.0 / horizon) * cosines
    weights = sign * cosines[np.minimum(phase, 2 * horizon - phase)]
    weights[0] = math.sqrt(1.0 / horizon)
    weights.flags.writeable = False
    return weights


def _series(x: NDArray[np.float64], a: int) -> NDArray[np.float64]:
    """``1 - x²/(a(a+1)) · (1 - x²/((a+2)(a+3)) · …)``: cos(x) for a = 1, sin(x) / x for a = 2."""
    square, total = x * x, np.ones_like(x)
    for n in range(a + 16, 0, -2):
        total = 1.0 - square * total / (n * (n + 1.0))
    return total


def _halves(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Split into the first half, the middle of an odd number, and the last half, backward."""
    half = x.shape[-2] // 2
    return x[..., :half, :], x[..., half : x.shape[-2] - half, :], x[..., ::-1, :][..., :half, :]


def _product(matrix: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    out = np.zeros((*x.shape[:-2], len(matrix), x.shape[-1]))
    # In the order of rows, one product and one sum at a time: unlike a BLAS product this has the
    # same bits on every CPU and in every batch size.
    for row in range(x.shape[-2]):
        out += matrix[:, row, None] * x[..., row, None, :]
    return out


def _numeric(x: Any) -> NDArray[Any]:
    """Make a real array of an array-like or a tensor (known by ``detach``; torch stays unknown)."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError("actions are a masked array: fill it or leave the chunks out")
    if hasattr(x, "detach"):
        if "complex" in str(x.dtype) or "bool" in str(x.dtype):
            raise TypeError(f"actions must be real numbers, not {x.dtype}")
        x = x.detach().cpu().double().numpy()
    array = np.asarray(x)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise TypeError(f"actions must be real numbers, not {array.dtype}")
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _as_chunks(actions: Any) -> NDArray[Any]:
    """Make a batch (B, H, D) of a batch, a list of chunks, or one chunk (H, D)."""
    plain = type(actions) is np.ndarray and actions.ndim == 3 and actions.size > 0
    if plain and actions.dtype.char in "fd":
        return actions  # type: ignore[no-any-return]
    if isinstance(actions, (list, tuple)):
        actions = [_numeric(chunk) for chunk in actions]
        if len(shapes := sorted({array.shape for array in actions})) > 1:
            raise ValueError(f"the chunks of a batch must have one shape, not {shapes}")
    array = _numeric(actions)
    if array.shape == (0,):  # the empty list
        return array
    if array.ndim not in (2, 3) or 0 in array.shape[-2:]:
        raise ValueError(f"actions must have shape (B, H, D) or (H, D), not {array.shape}")
    return array if array.ndim == 3 else array[None]


def _blocks(action_data: Iterable[Any]) -> Iterator[NDArray[Any]]:
    """Stack runs of chunks of one shape to arrays (n <= _BLOCK, H, D); take an array as it is."""
    if isinstance(action_data, np.ndarray) and action_data.ndim == 3 and action_data.size:
        yield _numeric(action_data)
        return
    chunks = enumerate(map(_numeric, action_data))
    for shape, run in itertools.groupby(chunks, key=lambda item: item[1].shape):
        while items := list(itertools.islice(run, _BLOCK)):
            if len(shape) != 2 or 0 in shape:
                ways = "pass a list of chunks, an array (N, H, D), or a list of blocks (n, H, D)"
                raise ValueError(f"chunk {items[0][0]} must have shape (H, D), not {shape}: {ways}")
            yield np.stack([chunk for _, chunk in items])


class _Blocks:
    """Chunks in blocks (n, H, D), however they came, and the shapes of those that have passed."""

    def __init__(self, data: Any, action_dim: int | None) -> None:
        self.action_dim, self.shapes = action_dim, set[tuple[int, ...]]()
        whole, rest = isinstance(data, np.ndarray), iter(data)
        first = [*itertools.islice(rest, 1)]
        in_blocks = rest is not data and getattr((*first, None)[0], "ndim", 0) == 3 and not whole
        chunks = data if whole else itertools.chain(first, rest)
        blocks = data if in_blocks else [*_blocks(chunks)]
        begun = [chunks] if in_blocks else []  # what was looked at is not made twice
        self.passes = itertools.chain(begun, itertools.repeat(blocks))

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for block in map(_numeric, next(self.passes)):
            if block.ndim != 3 or 0 in block.shape[1:]:
                raise ValueError(f"each block must have shape (n, H, D), not {block.shape}")
            if not len(block):
                continue
            self.shapes.add(block.shape[1:])
            if self.action_dim not in (None, (dims := block.shape[2])):
                raise ValueError(f"chunks have {dims} dims, not action_dim {self.action_dim}")
            yield block
        if not self.shapes:
            raise NoChunksError("no action chunk to fit on: action_data is empty")


def _train(
    blocks: list[Any], scale: float, vocab_size: int, alphabet: str, compatible: bool, **more: Any
) -> tuple[int, int, Any]:
    """Smallest and largest coefficient, and a BPE trained as the published class does."""
    from tokenizers import trainers

    blocks = [x[i : i + 64] for x in blocks for i in range(0, len(x), 64)]
    starts = itertools.accumulate(map(len, blocks), initial=0)
    blocks = [quantize(x, scale, first_chunk=n) for x, n in zip(blocks, starts, strict=False)]
    low, high = int(min(q.min() for q in blocks)), int(max(q.max() for q in blocks))
    if high - low > min(vocab_size, _MAX_CODE):
        raise VocabularyError(
            f"coefficients from {low} to {high}, a range of {high - low} at scale {scale:g}, do "
            f"not fit into vocab_size {vocab_size} (or {_MAX_CODE} characters): normalise the "
            "actions to about [-1, 1], lower scale or raise vocab_size"
        )
    codes = np.unique(np.concatenate([np.unique(q) for q in blocks])).astype(np.int64) - low
    bytes_ = {byte for code in codes.tolist() for byte in chr(code).encode()}
    raw = [chr(code) for code in range(high - low + 1)]
    written = [c for c, byte in _BYTE_OF.items() if byte in bytes_] if alphabet == "bytes" else []
    size = len({*raw, *written})
    if size > vocab_size and not compatible:
        raise VocabularyError(
            f"vocab_size {vocab_size} is smaller than the {size} entries that a vocabulary begins "
            f"with for coefficients from {low} to {high}, a range of {high - low} at scale "
            f"{scale:g}: raise vocab_size to {size + 100} or more, lower scale, or pass "
            "compatible=True for a larger vocabulary without merges"
        )
    settings = {"vocab_size": vocab_size, "min_frequency": 2, "initial_alphabet": raw, **more}
    bpe = _tokenizer(alphabet)
    texts = (_text(codes) for q in blocks for codes in q - low)
    bpe.train_from_iterator(texts, trainer=trainers.BpeTrainer(show_progress=False, **settings))
    return low, high, bpe


def _tokenizer(
    alphabet: str, tokens: Iterable[str] = (), merges: Sequence[tuple[str, str]] = ()
) -> Any:
    """Set a BPE up: byte-level, as the published class does; or of texts as they are."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    vocabulary = {token: i for i, token in enumerate(tokens)}
    bpe = Tokenizer(models.BPE(vocabulary, [*merges]) if vocabulary else models.BPE())
    if alphabet == "bytes":
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        bpe.decoder = decoders.ByteLevel()
    else:
        bpe.decoder = decoders.Fuse()  # else there would be blanks between tokens
    # Changes no id. Where there is none, transformers puts a template of its own there.
    bpe.post_processor = processors.ByteLevel(trim_offsets=False)
    return bpe


def _text(codes: NDArray[Any]) -> str:
    return codes.astype("<u4").tobytes().decode("utf-32-le")


def _alphabet_size(vocabulary: dict[str, int]) -> int:
    """Count the characters 0, 1, ... that lead a vocabulary: the fitted range + 1, or more."""
    size = next(n for n in itertools.count() if vocabulary.get(chr(n)) != n)
    if size == 0:
        raise VocabularyError("no FAST tokenizer: its vocabulary does not begin with character 0")
    return size


def _flat_ids(ids: Any, offsets: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All ids in one array, and where each chunk begins, of what `decode_batch` takes."""
    wanted = "tokens must be a list of ids per chunk (flat ids need offsets)"
    if offsets is None:
        chunks = [_whole(wanted, chunk) for chunk in ids]
        offsets = [*itertools.accumulate(map(len, chunks), initial=0)]
        ids = [*itertools.chain.from_iterable(chunks)]
    flat = [i if abs(i) < 2**63 else -1 for i in _whole(wanted, ids)]  # no vocabulary has either
    bounds = _whole("offsets must be whole numbers", offsets)
    if bounds[:1] != [0] or bounds[-1] != len(flat) or sorted(bounds) != bounds:
        raise ValueError(f"offsets must rise from 0 to the number of ids, {len(flat)}")
    return np.array(flat, dtype=np.int64), np.array(bounds, dtype=np.int64)


def _whole(wanted: str, values: Any) -> list[int]:
    try:
        return [operator.index(i) for i in getattr(values, "tolist", lambda: values)()]
    except TypeError as error:
        raise TypeError(f"{wanted}: {error}") from error


def _describe(status: NDArray[np.uint8]) -> str:
    """Say how many chunks did not decode, why, and which is the first."""
    bad = np.flatnonzero(status)
    tally = Counter(ChunkStatus(s).name for s in status[bad].tolist())
    reasons = ", ".join(f"{count} {name}" for name, count in tally.items())
    return f"{len(bad)} of {len(status)} chunks did not decode ({reasons}), the first is {bad[0]}"


def _number(name: str, value: Any, above: Any = 0, below: Any = 1e308, kind: Any = int) -> Any:
    """Check a setting, of a caller or a file, and give it as that kind of number."""
    value = value.item() if isinstance(value, np.generic) else value
    right = isinstance(value, {int: Integral, float: Real}[kind]) and not isinstance(value, bool)
    if not (right and above < value < below):
        bounds = f"above {above} and below {below}"
        raise ValueError(f"{name} is {value!r}, it must be {kind.__name__}, {bounds}")
    return kind(value)


def _optional(name: str, value: Any) -> int | None:
    number = None if value is None else int(_number(name, value))
    if name == "time_horizon" and number and number > _LONGEST:
        raise ValueError(
            f"chunks of {value} steps, where {_LONGEST} are the most: is a whole dataset passed "
            "as one chunk? Cut it into chunks (B, H, D) of what a policy predicts at a time"
        )
    return number


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
        given = {key: options[key] for key in _DOWNLOAD_OPTIONS if options.get(key) is not None}
        if commit := getattr(given.get("revision"), "resolved", None):  # by AutoProcessor
            given["revision"] = commit
        if download_tokenizer is not None and given.keys() <= {"revision", "token"}:  # more patient
            folder, _ = download_tokenizer(str(source), **given)
        else:
            from huggingface_hub import snapshot_download

            wanted = ["*processor_config.json", "*tokenizer.json"]
            folder = Path(snapshot_download(str(source), allow_patterns=wanted, **given))
    return folder / (options.get("subfolder") or "")


def _read(path: Path, parse: Callable[[str], Any]) -> Any:
    return _load(path, lambda: parse(path.read_text(encoding="utf-8")))


def _load(path: Path, call: Callable[[], Any]) -> Any:
    """Make an error of a file or folder out of whatever reading it raises."""
    try:
        return call()
    except BaseException as error:  # the tokenizers package has no narrower class, and panics
        if not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise
        raise TokenizerFormatError(f"cannot load {path}: {error}") from error


def _read_bpe(folder: Path) -> PreTrainedTokenizerFast:
    """Read ``tokenizer.json``, which transformers 5 moves for the published class."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    path, moved = folder / "tokenizer.json", folder / "bpe_tokenizer" / "tokenizer.json"
    bpe = _read(moved if moved.is_file() and not path.is_file() else path, Tokenizer.from_str)
    parts = bpe.model, bpe.pre_tokenizer, bpe.decoder
    bytewise = models.BPE, pre_tokenizers.ByteLevel, decoders.ByteLevel
    whole = models.BPE, type(None), decoders.Fuse
    if not any(all(map(isinstance, parts, kinds)) for kinds in (bytewise, whole)):
        raise TokenizerFormatError(f"the tokenizer in {folder} is no BPE of FAST: {parts}")
    return PreTrainedTokenizerFast(tokenizer_object=bpe)
