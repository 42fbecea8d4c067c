"""The native codec against the ``tokenizers`` package: every id, on any tokenizer and text."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from vlaprep import ActionCodec, ChunkStatus
from vlaprep.processing_action_tokenizer import _BYTE_OF

LAST = 0xD7FF  # the last character before the surrogates
CHARACTER_OF = {byte: character for character, byte in _BYTE_OF.items()}


def train(texts: list[str], symbols: int, *, split: bool, size: int, byte_level: bool) -> Tokenizer:
    """Train as the published class does; without its pre-tokeniser, characters are the atoms."""
    bpe = Tokenizer(models.BPE())
    if byte_level:
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split)
        bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=[chr(code) for code in range(symbols)],
        max_token_length=10_000,
    )
    bpe.train_from_iterator(texts, trainer=trainer)
    return bpe


def as_chunks(texts: list[str]) -> np.ndarray:
    """Chunks whose symbols spell texts of one length: of one step, the transform is nothing."""
    return np.array([[[*map(ord, text)]] for text in texts], dtype=np.float64)


def codec_of(bpe: Tokenizer, **options: Any) -> ActionCodec:
    """Symbol and coefficient are the same."""
    return ActionCodec(bpe.to_str(), scale=1.0, vocab_size=1, min_token=0, **options)


def ids_of(codec: ActionCodec, texts: list[str]) -> list[list[int]]:
    ids, offsets = codec.encode_batch(as_chunks(texts))
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]


def is_native(codec: ActionCodec) -> bool:
    return type(codec._engine).__module__ == "vlaprep._native"


def with_runs(rng: np.random.Generator, alphabet: str, count: int, length: int) -> list[str]:
    """Texts in which one character fills about two thirds, as coefficient 0 does."""
    codes = np.array([*map(ord, alphabet)])
    chance = 1 / np.arange(1, len(codes) + 1)
    rare = rng.choice(codes, (count, length), p=chance / chance.sum())
    mixed = np.where(rng.random((count, length)) < 0.66, rng.choice(codes), rare)
    return ["".join(map(chr, row)) for row in mixed.tolist()]


ALPHABETS = st.sampled_from(
    [
        "abc", "abc ", " \t\n!", "0 1", "'strvelmd ", "'a ", "\x00\x01\x7f", "a\x85\xa0b ",
        "é\xadÿ", "zZ9!é", "Ļż ", "Ƶ\u1680ab", "\u2003\u3000a ", "中文 a", "\ud7ffa\ud000",
        "ab\u0300!", "²Ⅷ½1", "\x1c\x1d a",
    ]
)  # fmt: skip


@given(
    ALPHABETS,
    st.integers(0, 2**32),
    st.sampled_from(["split", "whole", "characters"]),
    st.integers(0, 120),
    st.integers(1, 90),
)
def test_ids_are_those_of_the_package(
    alphabet: str, seed: int, kind: str, merges: int, length: int
) -> None:
    rng = np.random.default_rng(seed)
    symbols = max(map(ord, alphabet)) + 1 if max(alphabet) < "\u0200" else 1
    how = {"split": kind == "split", "byte_level": kind != "characters"}
    size = symbols + 40 + merges
    bpe = train(with_runs(rng, alphabet, 30, 60), symbols, size=size, **how)
    codec = codec_of(bpe, on_range="published")
    assert is_native(codec)
    texts = with_runs(rng, alphabet, 20, length)
    want = [bpe.encode(text).ids for text in texts]
    assert ids_of(codec, texts) == want
    spell = bpe.decode if how["byte_level"] else lambda ids: "".join(map(bpe.id_to_token, ids))
    ids, offsets = codec.encode_batch(as_chunks(texts))
    actions, status = codec.decode_batch(ids, offsets, time_horizon=1, action_dim=length)
    for row, state, text, chunk in zip(actions, status, texts, want, strict=True):
        if spell(chunk) == text:
            assert state == ChunkStatus.OK
            assert [*map(ord, text)] == row[0].tolist()
        else:  # the vocabulary lacks a byte
            assert state != ChunkStatus.OK


@given(
    st.integers(0, 2**32),
    st.sampled_from([0, 30, 120, 128, 300, 2040, 2048, 55_236]),
)
def test_any_zero_and_any_neighbours(seed: int, zero: int) -> None:
    """Runs of a symbol of one, two and three bytes, among symbols around it."""
    rng = np.random.default_rng(seed)
    codes = np.clip(np.rint(rng.laplace(0, 2, (40, 80))).astype(int) + zero, 0, LAST)
    texts = ["".join(map(chr, row)) for row in codes]
    bpe = train(texts[:30], 1, split=bool(seed % 2), size=400, byte_level=True)
    codec = ActionCodec(
        bpe.to_str(), 1.0, vocab_size=1, min_token=-zero, max_token=-zero, on_range="published"
    )
    ids, offsets = codec.encode_batch(as_chunks(texts[20:]) - zero)
    got = [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]
    assert got == [bpe.encode(text).ids for text in texts[20:]]


def all_bytes(merges: list[tuple[str, str]]) -> Tokenizer:
    """Every character of the byte alphabet, 0 and on, and some merges."""
    vocabulary = {chr(code): code for code in range(324)}
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    bpe = Tokenizer(models.BPE(vocabulary, merges))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return bpe


def test_every_character_has_the_class_it_has_in_the_package() -> None:
    """A letter, number, other or blank sticks to what follows it exactly if it is of its class."""
    first = [CHARACTER_OF[byte] for byte in range(256)]
    bpe = all_bytes([(left, right) for left in ("a", "1", "!", "Ġ") for right in first])
    codec = codec_of(bpe, on_range="published")
    for left in "a1! ":
        texts = [left + chr(code) for code in range(LAST + 1)]
        want = [encoding.ids for encoding in bpe.encode_batch(texts)]
        assert ids_of(codec, texts) == want


def test_every_short_text_of_blanks_and_contractions() -> None:
    alphabet = "'st rvelmd\n1"
    texts = ["".join(c) for c in itertools.product(alphabet, repeat=4)]
    characters = [CHARACTER_OF[ord(c)] for c in alphabet]
    bpe = all_bytes([*itertools.product(characters, repeat=2)])
    assert ids_of(codec_of(bpe), texts) == [encoding.ids for encoding in bpe.encode_batch(texts)]


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_every_short_list_of_ids_decodes_as_in_the_package(horizon: int) -> None:
    rng = np.random.default_rng(0)
    bpe = train(with_runs(rng, "ab\u00e9\u017b", 40, 30), 4, split=True, size=30, byte_level=True)
    codec = codec_of(bpe, on_range="published")
    count = bpe.get_vocab_size()
    lists = [
        [*ids]
        for length in range(4)
        for ids in itertools.product(range(-1, count + 1), repeat=length)
    ]
    actions, status = codec.decode_batch(lists, time_horizon=horizon, action_dim=1)
    assert len(lists) > 20_000
    for ids, row, state in zip(lists, actions, status, strict=True):
        if not {*ids} <= {*range(count)}:
            want = ChunkStatus.UNKNOWN_ID
        else:
            text = bpe.decode(ids)
            if max(map(ord, text), default=0) > LAST:
                want = ChunkStatus.OUT_OF_ALPHABET
            elif len(text) != horizon:
                want = ChunkStatus.SHORT if len(text) < horizon else ChunkStatus.LONG
            else:
                want = ChunkStatus.OK
                codes = [[ord(c)] for c in text]
                np.testing.assert_allclose(row.sum(axis=0) * horizon**-0.5, codes[0], atol=1e-9)
        assert state == want, ids


LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}
FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
UNKNOWN: dict[str, dict[str, Any]] = {
    "prefix space": {"pre_tokenizer": {**LEVEL, "add_prefix_space": True}},
    "digits": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [DIGITS, LEVEL]}},
    "normalizer": {"normalizer": {"type": "Replace", "pattern": {"String": "ab"}, "content": "ba"}},
    "added token": {"added_tokens": [{"id": 327, "content": "ab1", **FLAGS}]},
    "ignore_merges": {"model": {"ignore_merges": True}},
    "unknown token": {"model": {"unk_token": "a"}},
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_goes_through_the_package(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = json.loads(all_bytes([("a", "b"), ("b", "a"), ("ab", "1")]).to_str())
    for part, value in UNKNOWN[name].items():
        file[part] = {**file[part], **value} if part == "model" else value
    bpe = Tokenizer.from_str(json.dumps(file))
    codec = ActionCodec(json.dumps(file), 1.0, vocab_size=1, min_token=0, max_token=150)
    (record,) = caplog.records
    assert "the tokenizers package encodes instead" in record.getMessage()
    assert not is_native(codec)
    rng = np.random.default_rng(1)
    texts = with_runs(rng, "ab1 !\u0080", 60, 12)
    assert ids_of(codec, texts) == [bpe.encode(text).ids for text in texts]
    ids, offsets = codec.encode_batch(as_chunks(texts))
    actions, status = codec.decode_batch(ids, offsets, time_horizon=1, action_dim=12)
    if name in ("digits", "ignore_merges", "unknown token"):
        assert not status.any()
        np.testing.assert_array_equal(actions, as_chunks(texts))
    assert len(caplog.records) == 1


def merges_as_text(file: dict[str, Any]) -> None:
    file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]


def test_files_of_older_versions_load(golden: Any) -> None:
    """Version 0.19 writes merges as text, and some fields not at all."""
    text = (golden / "fast/wide/processor/tokenizer.json").read_text(encoding="utf-8")
    file = json.loads(text)
    merges_as_text(file)
    del file["model"]["ignore_merges"]
    del file["pre_tokenizer"]["use_regex"]
    with np.load(golden / "fast/wide/arrays.npz") as arrays:
        probe = arrays["probe"]
    want = json.loads((golden / "fast/wide/tokens.json").read_text())["probe"]
    for form in (text, json.dumps(file)):
        codec = ActionCodec(form, 60, vocab_size=2048, min_token=-379, time_horizon=10)
        assert is_native(codec)
        ids, offsets = codec.encode_batch(probe)
        assert [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)] == want


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_file_is_an_ordinary_error(data: st.DataObject) -> None:
    bpe = all_bytes([("a", "b"), ("ab", "a"), ("Ġ", "a")]).to_str(pretty=False)
    at = data.draw(st.integers(0, len(bpe)))
    cut = data.draw(st.integers(0, 40))
    put = data.draw(
        st.sampled_from(["", "1e999", "-1", "null", "[]", '"', "{}", "\ud800", "\\ud800", "0"])
    )
    text = bpe[:at] + put + bpe[at + cut :]
    try:
        codec = ActionCodec(text, 1.0, vocab_size=1, min_token=0)
    except (ValueError, TypeError):  # UnicodeEncodeError is a ValueError
        return
    codec.encode_batch(as_chunks(["aba 1"]))


@pytest.mark.slow
def test_a_million_chunks() -> None:
    rng = np.random.default_rng(5)
    for alphabet, split in (
        ("FGH 'st9é", True),
        ("\x1c\x00ab", False),
        ("Żżŷ G", True),
        ("   ab!1\n", True),
    ):
        symbols = max(map(ord, alphabet)) + 1
        texts = with_runs(rng, alphabet, 400, 100)
        bpe = train(texts, symbols, split=split, size=symbols + 400, byte_level=True)
        codec = codec_of(bpe, on_range="published")
        for _ in range(50):
            texts = with_runs(rng, alphabet, 5000, 40)
            assert ids_of(codec, texts) == [encoding.ids for encoding in bpe.encode_batch(texts)]
