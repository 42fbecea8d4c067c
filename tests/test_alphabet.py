"""A vocabulary of symbols instead of bytes: no words, no dead entries, fewer tokens."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoProcessor, AutoTokenizer

import vlaprep
from action_chunks import smooth
from published_fast import PublishedFast
from vlaprep import ActionCodec, FastActionProcessor

if TYPE_CHECKING:
    from pathlib import Path


def noisy(count: int, seed: int = 0, horizon: int = 20) -> np.ndarray:
    """Slow motion with some noise, within [-1, 1]."""
    noise = np.random.default_rng(seed).normal(0, 0.03, (count, horizon, 3))
    return np.clip(smooth(count, horizon, 3, seed) + noise, -1, 1).astype(np.float32)


def texts(processor: FastActionProcessor, chunks: np.ndarray) -> list[str]:
    codes = vlaprep.kernels.dct_quantize(chunks, processor.scale) - processor.min_token
    return ["".join(map(chr, code)) for code in codes.reshape(len(chunks), -1).tolist()]


@pytest.mark.parametrize("scale", [10, 60])
def test_the_vocabulary_has_a_character_a_symbol_and_merges(scale: float, engine: str) -> None:
    chunks = noisy(200)
    processor = FastActionProcessor.fit(chunks, scale, 900, alphabet="symbols")
    vocabulary = processor.bpe_tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    span = processor.max_token - processor.min_token
    assert tokens[: span + 1] == [chr(code) for code in range(span + 1)]
    assert {*"".join(tokens)} == {*tokens[: span + 1]}
    assert 100 < len(tokens) <= 900
    ids = [i for chunk in processor(chunks) for i in chunk]
    assert len({*ids}) > 0.8 * (len(tokens) - span - 1)


def test_both_engines_write_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = noisy(150)
    native = FastActionProcessor.fit(chunks, alphabet="symbols")
    monkeypatch.setattr("vlaprep.processing_action_tokenizer.fit_bpe", None)
    monkeypatch.setattr("vlaprep.processing_action_tokenizer.Codec", None)
    pure = FastActionProcessor.fit(chunks, alphabet="symbols")
    text = native.bpe_tokenizer.backend_tokenizer.to_str()
    assert pure.bpe_tokenizer.backend_tokenizer.to_str() == text
    assert pure(chunks) == native(chunks)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([5, 20, 100]))
def test_ids_are_those_of_the_package_and_come_back(seed: int, scale: float) -> None:
    processor = FastActionProcessor.fit(noisy(100, seed), scale, 1500, alphabet="symbols")
    chunks = noisy(20, seed + 1)
    processor.on_range = "clamp"
    ids = processor(chunks)
    codes = np.clip(
        vlaprep.kernels.dct_quantize(chunks, scale), processor.min_token, processor.max_token
    )
    bpe = processor.bpe_tokenizer.backend_tokenizer
    written = ["".join(map(chr, c.ravel() - processor.min_token)) for c in codes]
    assert ids == [bpe.encode(text).ids for text in written]
    actions, status = processor.decode_batch(ids)
    assert not status.any()
    assert np.array_equal(vlaprep.kernels.dct_quantize(actions, scale), codes)


@pytest.mark.parametrize(("horizon", "most"), [(10, 1), (32, 1), (50, 1.02)])
def test_it_takes_fewer_tokens(horizon: int, most: float) -> None:
    train, chunks = noisy(1000, 1, horizon), noisy(300, 2, horizon)
    counts = [
        len(FastActionProcessor.fit(train, 10, 512, alphabet=alphabet).encode_batch(chunks)[0])
        for alphabet in ("symbols", "bytes")
    ]
    assert counts[0] < most * counts[1]


def test_the_published_class_and_transformers_read_it(tmp_path: Path) -> None:
    chunks = noisy(200)
    processor = FastActionProcessor.fit(chunks, 20, alphabet="symbols")
    processor.save_pretrained(tmp_path)
    want = processor(chunks[:30])
    config = json.loads((tmp_path / "processor_config.json").read_text())
    bpe = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    published = PublishedFast(bpe, config["scale"], config["vocab_size"], config["min_token"])
    assert published(chunks[:30].astype(np.float64)) == want
    decoded = processor.decode(want)
    back = published.decode(want, time_horizon=20, action_dim=3)
    np.testing.assert_allclose(back, decoded, rtol=0, atol=1e-6)
    fast = AutoTokenizer.from_pretrained(tmp_path)
    assert [fast(text)["input_ids"] for text in texts(processor, chunks[:30])] == want
    assert [fast.decode(ids) for ids in want] == texts(processor, chunks[:30])
    loaded = AutoProcessor.from_pretrained(tmp_path, trust_remote_code=True)
    assert loaded(chunks[:30]) == want
    codec = ActionCodec.from_pretrained(tmp_path)
    ids, offsets = codec.encode_batch(chunks[:30])
    assert [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)] == want
    np.testing.assert_array_equal(codec.decode_batch(ids, offsets)[0], decoded)


def test_a_dataset_is_fitted_and_audited(golden: Path, tmp_path: Path) -> None:
    root = golden / "lerobot_v30"
    fit = {"dataset_root": root, "cache_dir": tmp_path, "chunk_size": 10, "coverage": "all"}
    folder = vlaprep.fit_fast_tokenizer(alphabet="symbols", **fit)
    assert folder != vlaprep.fit_fast_tokenizer(**fit)
    assert vlaprep.audit_tokenizer(folder, root).unencodable == 0
    with pytest.raises(ValueError, match="alphabet must be one of bytes, symbols"):
        vlaprep.fit_fast_tokenizer(alphabet="letters", **fit)
    with pytest.raises(ValueError, match="alphabet must be one of bytes, symbols"):
        FastActionProcessor.fit(noisy(3), alphabet="letters")


def test_an_alphabet_above_the_vocabulary_is_refused(engine: str) -> None:
    values = np.arange(101, dtype=np.float64).reshape(-1, 1, 1)
    fitted = FastActionProcessor.fit(values, 1, 101, alphabet="symbols")
    assert len(fitted.bpe_tokenizer) == 101
    with pytest.raises(vlaprep.VocabularyError, match="smaller than the 101 entries"):
        FastActionProcessor.fit(values, 1, 100, alphabet="symbols")
