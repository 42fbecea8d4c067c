"""`ActionCodec`: action chunks to token ids and back, as data loaders want it.

It never changes, pickles, keeps nothing between calls, needs neither transformers nor a thread of
its own, and releases the interpreter lock while it works: workers of any kind may use it.
"""

from __future__ import annotations

import itertools
import json
import logging
import operator
from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep._codec_package import PackageEngine
from vlaprep._native import Codec
from vlaprep.errors import TokenizerFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

__all__ = ["ActionCodec", "ChunkStatus"]

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
ON_RANGE = ("clamp", "error", "published")
POLICIES = ("zero", "pad", "strict")

_FIELDS = ("scale", "vocab_size", "min_token", "max_token", "time_horizon", "action_dim")


class ChunkStatus(IntEnum):
    """How the ids of one chunk decoded; everything but ``OK`` means: do not execute it."""

    OK = 0
    SHORT = 1  # fewer symbols than time_horizon * action_dim
    LONG = 2  # more of them
    UNKNOWN_ID = 3  # negative, or not in the vocabulary
    OUT_OF_ALPHABET = 4  # bytes that are no text, or a coefficient above max_token


@dataclass(frozen=True)
class ActionCodec:
    """A FAST action tokenizer without transformers.

    Made by `from_pretrained`. Encoding gives the ids of `vlaprep.FastActionProcessor`, and so those
    of the published FAST class fed float64, wherever all coefficients lie in the fitted range.

    Parameters
    ----------
    tokenizer : str
        Text of a ``tokenizer.json``.
    scale : float
        Quantisation steps per unit of a coefficient.
    vocab_size : int
        Size asked for in the fit; the vocabulary can have fewer or more entries.
    min_token, max_token : int
        Smallest and largest coefficient of the fit. Without `max_token` (the published class saves
        none) the largest that the vocabulary allows.
    time_horizon, action_dim : int, optional
        Shape of the chunks: another width is refused, another horizon reported. None: any; at most
        4,096 steps.
    on_range : {"clamp", "error", "published"}
        What to do with coefficients outside ``[min_token, max_token]``: move them to the nearer
        end and warn once a call; refuse; or do as the published class: clamp below, encode what is
        above as it is, even where the vocabulary lacks the bytes (but refuse what is no character,
        from code 55,296 on), and accept that in decoding.

    Notes
    -----
    Encoding is an orthonormal DCT-II along time in float64, times `scale`, rounded half to even;
    then byte-pair encoding of one character a coefficient, frequency by frequency. After Pertsch et
    al., "FAST: Efficient Action Tokenization for Vision-Language-Action Models" (2025).

    Examples
    --------
    >>> codec = ActionCodec.from_pretrained("tests/golden/fast/arm7/processor")
    >>> chunks = 0.5 * np.sin(np.linspace(0, 9, 3 * 50 * 7)).reshape(3, 50, 7)
    >>> ids, offsets = codec.encode_batch(chunks)
    >>> actions, status = codec.decode_batch(ids, offsets)
    >>> bool(np.abs(actions - chunks).max() < 0.1), status.tolist()
    (True, [0, 0, 0])
    """

    tokenizer: str = field(repr=False)
    scale: float
    vocab_size: int
    min_token: int
    max_token: int | None = None
    time_horizon: int | None = None
    action_dim: int | None = None
    on_range: str = "clamp"
    _engine: Codec | PackageEngine = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _one_of("on_range", self.on_range, ON_RANGE)
        for name, least in (("vocab_size", 1), ("time_horizon", 1), ("action_dim", 1)):
            value = getattr(self, name)
            if value is not None or name == "vocab_size":
                _check_whole(name, value, least)
        for name in ("min_token", "max_token"):
            if (value := getattr(self, name)) is not None or name == "min_token":
                _check_whole(name, value, -(2**50), 2**51)
        scale = self.scale.item() if isinstance(self.scale, np.generic) else self.scale
        real = isinstance(scale, Real) and not isinstance(scale, bool)
        if not (real and 0 < scale < 1e308):
            raise ValueError(f"scale is {self.scale!r}, it must be a positive number")
        self._start(logging.WARNING)

    def _start(self, level: int) -> None:
        """Make the engine out of the fields."""
        if not (isinstance(self.tokenizer, str) and self.tokenizer.lstrip().startswith("{")):
            raise ValueError(
                f"tokenizer is {str(self.tokenizer)[:99]!r}, it must be the text of a "
                "tokenizer.json; ActionCodec.from_pretrained takes a folder"
            )
        numbers = (self.scale, self.min_token, self.max_token, self.time_horizon)
        engine: Codec | PackageEngine
        try:
            engine = Codec(self.tokenizer, *numbers)
        except NotImplementedError as reason:
            engine = PackageEngine(self.tokenizer, *numbers)
            template = "tokenizer %s: the tokenizers package encodes instead, which takes longer"
            logger.log(level, template, reason)
        object.__setattr__(self, "_engine", engine)
        object.__setattr__(self, "max_token", engine.max_token)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_engine"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.keys() != {"tokenizer", "on_range", *_FIELDS}:
            raise ValueError(f"no state of an ActionCodec: it has {sorted(state)}")
        twin = object.__new__(type(self))  # this one stays as it is where that fails
        vars(twin).update(state)
        twin._start(logging.DEBUG)  # it has been said where the codec was made
        vars(self).update(vars(twin))

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        *,
        on_range: str = "clamp",
        revision: str | None = None,
        token: str | bool | None = None,
    ) -> ActionCodec:
        """Load a folder, or repository of the Hub, that vlaprep, LeRobot or FAST itself saved.

        Parameters
        ----------
        folder : str or Path
            Holds ``processor_config.json``, and ``tokenizer.json`` beside it or below
            ``bpe_tokenizer``. A str that is no folder is a Hub id, ``"org/name"``.
        revision : str, optional
            Branch, tag or commit on the Hub; the main branch by default.
        token : str or bool, optional
            Access token for the Hub; by default the one `huggingface_hub` finds.
        on_range : {"clamp", "error", "published"}
            As in the class.

        Raises
        ------
        TokenizerFormatError
            When a file is missing, cannot be read, or is no FAST tokenizer.
        TokenizerNotFoundError
            When the Hub has no such repository or revision, or cannot be reached.
        """
        from vlaprep.hub import tokenizer_folder

        _one_of("on_range", on_range, ON_RANGE)
        folder = tokenizer_folder(folder, revision=revision, token=token)
        config = _read(folder / "processor_config.json", _json_object)
        version = config.get("format_version", FORMAT_VERSION)  # the published class writes none
        if version != FORMAT_VERSION:
            raise TokenizerFormatError(f"{folder} has format_version {version!r}: update vlaprep")
        path, moved = folder / "tokenizer.json", folder / "bpe_tokenizer" / "tokenizer.json"
        text = _read(moved if moved.is_file() and not path.is_file() else path, str)
        fields = {name: config.get(name) for name in _FIELDS}
        try:
            return cls(text, **fields, on_range=on_range)
        except (ValueError, TypeError, OverflowError) as error:
            raise TokenizerFormatError(f"cannot load {folder}: {error}") from error

    def encode_batch(
        self, actions: ArrayLike, *, num_threads: int | None = 1
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Ids of all chunks in one flat array.

        Parameters
        ----------
        actions : array_like or torch.Tensor, shape (B, H, D) or (H, D)
            Normalised actions of any real dtype, bfloat16 included; a tensor may be on any device.
            (H, D) counts as one chunk; an empty batch gives no ids.
        num_threads : int or None
            Bound on threads; 1 suits a worker of a data loader. None: VLAPREP_NUM_THREADS, else
            what the machine allows. The ids are the same.

        Returns
        -------
        ids : ndarray of int32
            The ids of chunk ``i`` are ``ids[offsets[i]:offsets[i + 1]]``.
        offsets : ndarray of int64, shape (B + 1,)

        Raises
        ------
        ValueError
            For NaN or infinity (with chunk, step, dim), or a width that is not `action_dim`.
        VocabularyError
            For a coefficient that `on_range` refuses.
        """
        chunks, threads = self._chunks(actions), _threads(num_threads)
        ids, offsets, warnings = self._engine.encode(chunks, self.on_range, threads)
        for warning in warnings:
            logger.warning("%s", warning)
        return ids, offsets

    def encode_padded(
        self,
        actions: ArrayLike,
        max_length: int,
        pad_id: int = 0,
        *,
        num_threads: int | None = 1,
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Ids as a matrix: cut to `max_length` (with one warning), filled up with `pad_id`.

        `actions`, `num_threads` and errors are those of `encode_batch`. To decode them:
        ``decode_batch([row[m] for row, m in zip(ids, mask)])``.

        Returns
        -------
        ids : ndarray of int32, shape (B, max_length)
        mask : ndarray of bool, shape (B, max_length)
            True where there is an id.
        """
        _check_whole("max_length", max_length, 1)
        _check_whole("pad_id", pad_id, -(2**31), 2**31)
        chunks, threads = self._chunks(actions), _threads(num_threads)
        ids, mask, cut, warnings = self._engine.encode_padded(
            chunks, max_length, pad_id, self.on_range, threads
        )
        for warning in warnings:
            logger.warning("%s", warning)
        if cut:
            template = "%d of %d chunks cut to max_length %d: they will not decode"
            logger.warning(template, cut, len(ids), max_length)
        return ids, mask

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
        ids, offsets
            Flat ids and where chunks begin, as of `encode_batch`; or, without `offsets`, a list of
            ids per chunk or a matrix of them.
        policy : {"zero", "pad", "strict"}
            A bad chunk becomes zeros; or, if merely short or long, is filled with zero
            coefficients or cut; or is a ValueError.
        time_horizon, action_dim : int, optional
            Shape of the chunks. Default: the codec's own.

        Returns
        -------
        actions, status : ndarray of float64, shape (B, H, D), and of uint8, shape (B,)
            The status is the `ChunkStatus` of each chunk, whatever the policy.

        Raises
        ------
        ValueError, TypeError
            When the shape is not known, or `action_dim` is not the codec's own; when `ids` are no
            list of ids per chunk; for a bad chunk, by policy "strict".
        """
        _one_of("policy", policy, POLICIES)
        horizon = self.time_horizon if time_horizon is None else time_horizon
        dim = self.action_dim if action_dim is None else action_dim
        if horizon is None or dim is None:
            raise ValueError("unknown shape of chunks: pass time_horizon= and action_dim=")
        if time_horizon is not None:
            _check_whole("time_horizon", time_horizon, 1)
        if action_dim is not None:
            _check_whole("action_dim", action_dim, 1)
        self._check_shape(horizon, dim)
        if not (
            type(ids) is type(offsets) is np.ndarray
            and ids.ndim == offsets.ndim == 1
            and ids.dtype == np.int32
            and offsets.dtype.kind == "i"
        ):
            ids, offsets = flat_ids(ids, offsets)
        actions, status = self._engine.decode(
            ids, offsets, horizon, dim, self.on_range, policy == "pad"
        )
        if policy == "strict" and status.any():
            raise ValueError(f"{describe(status)}; policy 'zero' or 'pad' accepts them")
        return actions, status

    def _chunks(self, actions: Any) -> NDArray[Any]:
        """Make a checked batch (B, H, D) of whatever `encode_batch` takes."""
        plain = type(actions) is np.ndarray and actions.ndim == 3 and actions.size > 0
        chunks = actions if plain and actions.dtype.char in "fd" else as_chunks(actions)
        if not len(chunks):
            return np.zeros((0, 1, 1))
        self._check_shape(*chunks.shape[1:])
        return chunks

    def _check_shape(self, horizon: int, dim: int) -> None:
        """Refuse a width, and report a horizon, that is not the codec's own."""
        if self.action_dim not in (None, dim):
            raise ValueError(
                f"action_dim {dim} is not the action_dim {self.action_dim} that this tokenizer was "
                "fitted with: pad or cut as in the fit, or fit anew"
            )
        if self.time_horizon not in (None, horizon):
            _report_horizon(horizon, self.time_horizon)


@lru_cache(maxsize=1024)
def _report_horizon(horizon: int, own: int) -> None:
    """Warn once a process; what is cached is that it has been said."""
    logger.warning("time_horizon %d differs from the %d of the fit", horizon, own)


def as_chunks(actions: Any) -> NDArray[Any]:
    """Make a batch (B, H, D) of a batch, a list of chunks, or one chunk (H, D)."""
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


def _numeric(x: Any) -> NDArray[Any]:
    """Make a real array of an array-like or a tensor (known by ``detach``; torch stays unknown)."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError("actions are a masked array: fill it or leave the chunks out")
    if hasattr(x, "detach"):
        if "complex" in str(x.dtype) or "bool" in str(x.dtype):
            raise TypeError(f"actions must be real numbers, not {x.dtype}")
        x = x.detach().cpu().double().numpy()
    array = np.asarray(x)
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"actions must be real numbers, not {array.dtype}")
    return array


def flat_ids(ids: Any, offsets: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All ids in one array, and where each chunk begins, of what `decode_batch` takes."""
    try:
        if offsets is None:
            chunks = [list(_listed(chunk)) for chunk in _listed(ids)]
            offsets = list(itertools.accumulate(map(len, chunks), initial=0))
            ids = itertools.chain.from_iterable(chunks)
        flat = list(_listed(ids))
        if set(map(type, flat)) - {int}:
            flat = [operator.index(i) for i in flat]
    except TypeError as error:
        raise TypeError(
            f"tokens must be a list of ids per chunk (flat ids need offsets): {error}"
        ) from error
    try:
        whole = np.array(flat, dtype=np.int64)
    except OverflowError:  # no vocabulary has such an id, nor -1
        whole = np.array([i if abs(i) < 2**63 else -1 for i in flat], dtype=np.int64)
    try:
        bounds = [operator.index(end) for end in _listed(offsets)]
    except TypeError as error:
        raise TypeError(f"offsets must be whole numbers: {error}") from error
    return whole, np.array(bounds, dtype=np.int64)


def _listed(values: Any) -> Any:
    return values.tolist() if hasattr(values, "tolist") else values


def describe(status: NDArray[np.uint8]) -> str:
    """Say how many chunks did not decode, why, and which is the first."""
    bad = np.flatnonzero(status)
    tally = Counter(ChunkStatus(s).name for s in status[bad].tolist())
    reasons = ", ".join(f"{count} {name}" for name, count in tally.items())
    return f"{len(bad)} of {len(status)} chunks did not decode ({reasons}), the first is {bad[0]}"


def _threads(num_threads: int | None) -> int:
    """Threads for the engine; it takes 0 for what the machine allows."""
    if num_threads == 1 and num_threads is not True:
        return 1
    from vlaprep.dataset import _threads as threads

    return threads(num_threads)


def _check_whole(name: str, value: Any, least: int, above: int = 2**62) -> None:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and least <= value < above):
        bound = f"below {above}" if whole and value >= above else f"from {least} on"
        raise ValueError(f"{name} is {value!r}, it must be a whole number {bound}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")


def _read(path: Path, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise TokenizerFormatError(f"cannot read {path}: {error}") from error


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError(f"it holds {type(value).__name__}, not an object")
    return value
