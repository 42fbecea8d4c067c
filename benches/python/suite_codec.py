"""Cases of the codec: encoding and decoding, by batch, shape and threads."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import baseline
import peers
import vlaprep
from data import CHUNK_SIZE, DIMS, SEED, Config, chunks
from paired import NUMPY, OURS, Case
from vlaprep.kernels import dct_quantize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Array = NDArray[Any]
    Shape = tuple[int, int]

FASTOKENS, TOKENIZERS = "fastokens", "tokenizers, one batch"

MAX_ROUNDS = 20
"""Encoding needs chunks it has not seen in each round: some tokenizers remember words."""

ROUND = 1024
"""The most chunks of a round, in as many batches as it takes."""

PLAIN = (CHUNK_SIZE, DIMS)


def encode(count: int, config: Config, *, shape: Shape = PLAIN, threads: int = 1) -> Case:
    """Batches of so many chunks, as many in a row as make a time that can be taken."""
    fitted = _fitted(config, count, shape)
    processor, codec = fitted.processor, fitted.codec
    bpe, low = processor.bpe_tokenizer, processor.min_token
    each = partial(_each, fitted.batches)
    sides = {
        NUMPY: each(lambda batch: baseline.fast_encode(bpe, batch, low)),
        OURS: each(partial(codec.encode_batch, num_threads=threads)),
    }
    if peers.HAS_FASTOKENS:
        sides[FASTOKENS] = each(partial(_fastokens(fitted), min_token=low))
    if count > 1:
        sides[TOKENIZERS] = each(lambda batch: peers.encode_texts(_of_package(bpe), batch, low))
    words = f"encode {count:,} unseen chunk{'s' * (count > 1)} of {shape[0]} x {shape[1]}"
    words += ", two threads" * (threads == 2)
    return Case(words, sides, same=_same_ids)


def encode_call(config: Config) -> Case:
    fitted = _fitted(config, 1)
    processor = fitted.processor
    bpe, low = processor.bpe_tokenizer, processor.min_token
    each = partial(_each, fitted.batches)
    return Case(
        f"processor(chunk) of one unseen chunk of {CHUNK_SIZE} x {DIMS}, lists out",
        {NUMPY: each(lambda x: baseline.fast_encode(bpe, x, low)), OURS: each(processor)},
    )


def decode(count: int, config: Config, *, shape: Shape = PLAIN) -> Case:
    fitted = _fitted(config, count, shape)
    processor, codec = fitted.processor, fitted.codec
    bpe, low, (horizon, dim) = processor.bpe_tokenizer, processor.min_token, shape
    ids = [[codec.encode_batch(x) for x in fitted.batches(i)] for i in range(MAX_ROUNDS + 1)]
    lists = [[_lists(pair) for pair in batches] for batches in ids]
    of_package = bpe.backend_tokenizer.decode_batch
    return Case(
        f"decode {count} chunk{'s' * (count > 1)} of {horizon} x {dim}",
        {
            NUMPY: _each(lists.__getitem__, lambda x: baseline.fast_decode(bpe, x, low, dim)),
            OURS: _each(ids.__getitem__, lambda pair: codec.decode_batch(*pair)[0]),
            TOKENIZERS: _each(
                ids.__getitem__,
                lambda pair: peers.decode_texts(of_package, pair[0], pair[1], low, shape),
            ),
        },
        same=partial(np.testing.assert_allclose, rtol=0, atol=1e-6),
    )


def _each(
    batches: Callable[[int], Iterable[Any]], call: Callable[[Any], Any]
) -> Callable[[int], list[Any]]:
    """Do all batches of a round; keep the answers of round 0, which are compared.

    The others are let go one by one, as a training step does, so that memory is used again.
    """

    def run(number: int) -> list[Any]:
        if number == 0:
            return [call(batch) for batch in batches(number)]
        for batch in batches(number):
            call(batch)
        return []

    return run


@dataclass(frozen=True)
class Fitted:
    """A tokenizer, and chunks that it has not seen but all of whose symbols it has."""

    processor: vlaprep.FastActionProcessor
    codec: vlaprep.ActionCodec
    unseen: Array
    count: int

    def batches(self, number: int) -> Array:
        """Batches of the round, shape (some, count, H, D): no chunk comes twice."""
        some = len(self.unseen) // (MAX_ROUNDS + 1)
        batch = self.unseen[number * some : (number + 1) * some]
        return batch.reshape(-1, self.count, *batch.shape[1:])


def _fitted(config: Config, count: int, shape: Shape = PLAIN) -> Fitted:
    """Fit a tokenizer; make enough unseen chunks for batches of `count` in every round."""
    kind = dict(zip(("horizon", "dims"), shape, strict=True))
    train = chunks(min(1024, config.episodes * 32), **kind)
    processor = vlaprep.FastActionProcessor.fit(train)
    codec = vlaprep.ActionCodec(
        processor.bpe_tokenizer.backend_tokenizer.to_str(),
        10.0,
        vocab_size=processor.vocab_size,
        min_token=processor.min_token,
        max_token=processor.max_token,
        time_horizon=shape[0],
        action_dim=shape[1],
    )
    some = max(count, min(ROUND, config.episodes))
    wanted = some // count * count * (MAX_ROUNDS + 1)
    found: list[Array] = []
    symbols = np.unique(dct_quantize(train, 10.0))
    for seed in itertools.count(SEED + 1):
        more = chunks(wanted // 4 + 64, seed, **kind)
        found.append(more[np.isin(dct_quantize(more, 10.0), symbols).all(axis=(1, 2))])
        if sum(map(len, found)) >= wanted:
            return Fitted(processor, codec, np.concatenate(found)[:wanted], count)
    raise AssertionError


def _of_package(bpe: Any) -> Callable[[list[str]], list[list[int]]]:
    """``tokenizers`` on all CPUs; offsets, which nobody wants here, are left out."""
    return lambda texts: [e.ids for e in bpe.backend_tokenizer.encode_batch_fast(texts)]


def _fastokens(fitted: Fitted) -> Callable[..., list[list[int]]]:
    import fastokens

    bpe = fastokens.Tokenizer.from_json_str(fitted.codec.tokenizer)
    return partial(peers.encode_texts, lambda texts: bpe.encode_batch(texts))


def _lists(answer: Any) -> Any:
    """Ids of each chunk as a list, of flat ids with offsets or of encodings."""
    if isinstance(answer, tuple):
        ids, offsets = (array.tolist() for array in answer)
        return [ids[a:b] for a, b in itertools.pairwise(offsets)]
    return [getattr(chunk, "ids", chunk) for chunk in answer]


def _same_ids(got: list[Any], want: list[Any]) -> None:
    assert [_lists(answer) for answer in got] == [_lists(answer) for answer in want]
