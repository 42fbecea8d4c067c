"""Training against the ``tokenizers`` package: the same entries, merges and order, live."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, trainers

import vlaprep
from action_chunks import smooth
from vlaprep.kernels import fit_bpe, train_bpe
from vlaprep.processing_action_tokenizer import FastActionProcessor

ALPHABET = [chr(code) for code in range(2000)]

Trained = tuple[list[str], list[tuple[str, str]]]


def by_the_package(words: list[str], **options: Any) -> Trained:
    """Train on whole words, one text each."""
    bpe = Tokenizer(models.BPE())
    bpe.train_from_iterator(words, trainers.BpeTrainer(show_progress=False, **options))
    model = json.loads(bpe.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tokens, [tuple(merge) for merge in model["merges"]]


def check(words: list[str], initial_alphabet: str = "", **options: Any) -> Trained:
    counted = Counter(words)
    got = train_bpe([*counted], [*counted.values()], initial_alphabet=initial_alphabet, **options)
    want = by_the_package(words, initial_alphabet=[*initial_alphabet], **options)
    assert got == want
    return got


def runs(alphabet: int, longest: int) -> st.SearchStrategy[str]:
    """Words of runs, the first character most of all."""
    character = st.one_of(st.just(0), st.integers(0, alphabet - 1))
    run = st.tuples(character, st.integers(1, longest))
    return st.lists(run, max_size=8).map(lambda runs: "".join(ALPHABET[c] * n for c, n in runs))


@pytest.mark.parametrize(("alphabet", "longest"), [(2, 3), (3, 9), (5, 40), (300, 4)])
@given(data=st.data())
def test_tokens_and_merges_are_those_of_the_package(
    alphabet: int, longest: int, data: st.DataObject
) -> None:
    words = data.draw(st.lists(runs(alphabet, longest), max_size=40))
    check(
        words * data.draw(st.integers(1, 3)),
        vocab_size=data.draw(st.one_of(st.integers(1, 40), st.integers(1, 2000))),
        min_frequency=data.draw(st.integers(0, 4)),
        max_token_length=data.draw(st.one_of(st.integers(2, 20), st.just(10_000))),
        initial_alphabet="".join(data.draw(st.lists(st.sampled_from(ALPHABET), max_size=5))),
    )


@settings(max_examples=15)
@given(st.integers(2, 2000), st.integers(0, 2**32 - 1), st.floats(0.5, 3))
def test_long_words_over_large_alphabets(alphabet: int, seed: int, skew: float) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 2000, 12)
    ids = [np.minimum(rng.zipf(1 + skew, n), alphabet) - 1 for n in lengths]
    words = ["".join(ALPHABET[i] for i in word) for word in ids]
    check(words, vocab_size=alphabet + 300, min_frequency=2, max_token_length=100)


def test_no_text_comes_about_in_two_ways() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 2, 2, 3) * 50:
        words = ["".join(rng.choice([*"abc"[:size]], rng.integers(2, 60))) for _ in range(12)]
        tokens, merges = check(words, vocab_size=90, min_frequency=1, max_token_length=10_000)
        assert len({left + right for left, right in merges}) == len(merges) == len(tokens) - size


def test_what_cannot_be_learnt_from() -> None:
    assert train_bpe([], [], vocab_size=10) == ([], [])
    assert train_bpe(["", "a"], [3, 3], vocab_size=10) == (["a"], [])
    with pytest.raises(ValueError, match="2 words, but 1 counts"):
        train_bpe(["a", "b"], [1], vocab_size=10)
    with pytest.raises(ValueError, match="over 2"):
        train_bpe(["ab", "cd"], [2**61, 2**61], vocab_size=10)
    assert train_bpe(["ab"], [2**40], vocab_size=3) == (["a", "b", "ab"], [("a", "b")])


def published(chunks: np.ndarray, scale: float, vocab_size: int, **options: Any) -> Any:
    """Fit as the published class does, by the processor without its native half."""
    from vlaprep import processing_action_tokenizer as room

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "fit_bpe", None)
        return vlaprep.FastActionProcessor.fit(chunks, scale, vocab_size, **options)


@pytest.mark.parametrize(
    ("shape", "scale", "vocab_size"),
    [
        ((200, 10, 7), 10, 1024),
        ((64, 32, 3), 50, 2048),
        ((300, 1, 1), 300, 1024),
        ((40, 50, 14), 10, 512),
        ((16, 100, 2), 100, 4096),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_fit_writes_what_the_package_writes(
    shape: tuple[int, int, int], scale: float, vocab_size: int, dtype: str
) -> None:
    chunks = smooth(*shape).astype(dtype)
    got = vlaprep.FastActionProcessor.fit(chunks, scale, vocab_size, compatible=True)
    want = published(chunks, scale, vocab_size, compatible=True)
    assert got.bpe_tokenizer.backend_tokenizer.to_str() == (
        want.bpe_tokenizer.backend_tokenizer.to_str()
    )
    for name in ("min_token", "max_token", "time_horizon", "action_dim", "vocab_size", "scale"):
        assert getattr(got, name) == getattr(want, name)
    lists = vlaprep.FastActionProcessor.fit([*chunks], scale, vocab_size, compatible=True)
    assert lists.bpe_tokenizer.get_vocab() == got.bpe_tokenizer.get_vocab()


def test_threads_and_order_change_nothing() -> None:
    chunks = smooth(3000, 20, 3)
    want = fit_bpe([chunks], 10.0, 700, num_threads=1)
    assert len(want[3]) > 300
    for threads in (2, 7):
        assert fit_bpe([chunks], 10.0, 700, num_threads=threads) == want
    shuffled = np.random.default_rng(0).permutation(chunks)
    parts = [shuffled[:10], shuffled[10:2000].astype(np.float64), shuffled[2000:]]
    assert fit_bpe(parts, 10.0, 700, num_threads=2) == want


class Passing:
    """Blocks that are made anew at each iteration, and other ones at some."""

    def __init__(self, *passes: list[np.ndarray]) -> None:
        self.passes = passes
        self.begun = 0

    def __iter__(self) -> Any:
        blocks = self.passes[min(self.begun, len(self.passes) - 1)]
        self.begun += 1
        return (block.copy() for block in blocks)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_blocks_may_come_one_at_a_time(threads: int) -> None:
    chunks = np.random.default_rng(4).standard_normal((600, 12, 3)).cumsum(axis=1) / 8
    mixed = [chunks[:1].astype(np.float32), chunks[1:400], chunks[400:].astype(np.float32)]
    whole = np.concatenate(mixed).astype(np.float64)
    want = fit_bpe([whole], 10.0, 700)
    assert fit_bpe(Passing(mixed), 10.0, 700, num_threads=threads) == want
    assert fit_bpe(Passing(mixed, mixed[::-1]), 10.0, 700, num_threads=threads) == want
    processor = FastActionProcessor.fit(Passing(mixed), vocab_size=700)
    want_processor = FastActionProcessor.fit(whole, vocab_size=700)
    assert processor(whole[:9]) == want_processor(whole[:9])
    assert (processor.time_horizon, processor.action_dim) == (12, 3)


def test_blocks_are_made_once_a_pass() -> None:
    chunks = np.random.default_rng(6).standard_normal((40, 8, 2)) / 3
    passing = Passing([chunks[:20], chunks[20:]])
    processor = FastActionProcessor.fit(passing, vocab_size=700)
    assert passing.begun == 2
    assert processor(chunks) == FastActionProcessor.fit(chunks, vocab_size=700)(chunks)


def test_a_second_pass_must_be_the_first_again() -> None:
    chunks = np.random.default_rng(5).standard_normal((60, 8, 2))
    for other in ([chunks[:-1]], [chunks, chunks[:1]], [10 * chunks]):
        with pytest.raises(ValueError, match="second pass"):
            fit_bpe(Passing([chunks], other), 10.0, 1024)
    with pytest.raises(TypeError, match="only once"):
        fit_bpe(iter([chunks]), 10.0, 1024)
    with pytest.raises(ValueError, match="too large to be told apart"):
        fit_bpe([np.full((3, 1, 1), 1e15)], 10.0, 1024)


@pytest.mark.parametrize("span", [10, 100, 200, 255, 400, 1023])
def test_a_vocabulary_is_never_larger_than_asked(span: int, engine: str) -> None:
    # One step and one dim: the transform is the identity.
    values = np.arange(span + 1, dtype=np.float64).reshape(-1, 1, 1)
    grown = vlaprep.FastActionProcessor.fit(values, 1, 1024, compatible=True)
    size = len(grown.bpe_tokenizer)
    for vocab_size in (size, size + 7):
        fitted = vlaprep.FastActionProcessor.fit(values, 1, vocab_size)
        assert len(fitted.bpe_tokenizer) <= vocab_size
    small = size - 1
    said = (
        rf"vocab_size {small} is smaller than the {size} entries .* a range of {span} at scale 1: "
    )
    with pytest.raises(vlaprep.VocabularyError, match=said + rf"raise vocab_size to {size + 100} "):
        vlaprep.FastActionProcessor.fit(values, 1, small)
    if span <= small:
        larger = vlaprep.FastActionProcessor.fit(values, 1, small, compatible=True)
        assert len(larger.bpe_tokenizer) == size > small


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_what_is_not_finite_is_named(bad: float, threads: int) -> None:
    blocks = [smooth(700, 20, 3), smooth(500, 20, 3)]
    blocks[1][301, 7, 2] = bad
    with pytest.raises(ValueError, match=rf"hold {bad} at chunk 1001, step 7, dim 2"):
        fit_bpe(blocks, 10.0, 1024, num_threads=threads)
    blocks[1][301, 7, 2] = 0
    blocks.append(np.full((1, 2, 3), 1e300))
    with pytest.raises(ValueError, match="overflow at scale 1000"):
        fit_bpe(blocks, 1e10, 1024, num_threads=threads)


def test_blocks_are_checked() -> None:
    with pytest.raises(ValueError, match="no action chunk"):
        fit_bpe([], 10.0, 1024)
    with pytest.raises(ValueError, match="dimension"):
        fit_bpe([np.zeros((3, 4))], 10.0, 1024)
    with pytest.raises(ValueError, match="scale must be a positive number, got 0"):
        fit_bpe([np.zeros((3, 4, 2))], 0.0, 1024)
    with pytest.raises(ValueError, match="no chunks of 0 x 2"):
        fit_bpe([np.zeros((3, 0, 2))], 10.0, 1024)
    with pytest.raises(ValueError, match="num_threads"):
        fit_bpe([np.zeros((3, 4, 2))], 10.0, 1024, num_threads=0)
