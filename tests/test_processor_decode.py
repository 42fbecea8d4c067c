"""Decoding: broken lists, policies, shapes, and round trips through encode."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from action_chunks import D, H, fitted, smooth, warnings_in
from vlaprep.processing_action_tokenizer import ChunkStatus, FastActionProcessor, idct, quantize

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def processor() -> FastActionProcessor:
    """Fitted on `smooth`; one's own, for it remembers its last call."""
    return fitted()


def symbols_as_ids(processor: FastActionProcessor, count: int) -> list[int]:
    """Ids that expand to `count` symbols of coefficient 0."""
    text = chr(-processor.min_token) * count
    ids: list[int] = processor.bpe_tokenizer(text)["input_ids"]
    return ids


def test_each_bad_chunk_is_zeros_with_its_reason(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    processor = FastActionProcessor.fit(smooth(300), scale=30, vocab_size=512)
    good = processor(smooth(1))[0]
    vocabulary = processor.bpe_tokenizer.get_vocab()
    lone_byte = [vocabulary[chr(194)]] * (H * D)  # a UTF-8 lead byte alone reads as U+FFFD
    bad = {
        ChunkStatus.SHORT: [[], symbols_as_ids(processor, H * D - 1), good[:-1]],  # F01
        ChunkStatus.LONG: [symbols_as_ids(processor, H * D + 2), good + good],
        ChunkStatus.UNKNOWN_ID: [[-1], [294, 364, 84967, 62985], [2**70], [*good, -5]],  # F05
        ChunkStatus.OUT_OF_ALPHABET: [lone_byte],
    }
    want = [ChunkStatus.OK] + [status for status, chunks in bad.items() for _ in chunks]
    tokens = [good] + [chunk for chunks in bad.values() for chunk in chunks]
    actions, status = processor.decode_batch(tokens)
    assert [ChunkStatus(s) for s in status] == want
    assert not actions[1:].any()
    np.testing.assert_array_equal(actions[0], processor.decode([good])[0])
    assert not warnings_in(caplog)
    np.testing.assert_array_equal(processor.decode(tokens), actions)
    (text,) = warnings_in(caplog)
    reasons = "3 SHORT, 2 LONG, 4 UNKNOWN_ID, 1 OUT_OF_ALPHABET"
    assert text.startswith(f"10 of 11 chunks did not decode ({reasons}), the first is 1; they are")
    assert capfd.readouterr().out == ""


def test_coefficients_above_the_fit_are_no_motion() -> None:
    """A model can spell characters that the fit never had: never an action from them."""
    x = smooth(1) * 40
    processor = FastActionProcessor.fit(smooth(300), scale=60, vocab_size=512)  # has all bytes
    processor.on_range = "published"
    ids = processor(x)
    assert processor.decode_batch(ids)[1].tolist() == [ChunkStatus.OK]
    processor.on_range = "clamp"
    assert processor.decode_batch(ids)[1].tolist() == [ChunkStatus.OUT_OF_ALPHABET]


def test_lenient_decoding_is_asked_for_and_said(processor: FastActionProcessor) -> None:
    x = smooth(1)  # F04
    good = processor(x)[0]
    zeros = symbols_as_ids(processor, 2)
    actions, status = processor.decode_batch([good[:-1], good + zeros], policy="pad")
    assert status.tolist() == [ChunkStatus.SHORT, ChunkStatus.LONG]
    np.testing.assert_array_equal(actions[1], processor.decode([good])[0])
    kept = quantize(actions[:1], processor.scale).ravel()
    full = quantize(x, processor.scale).ravel()
    same = int((kept == full).cumprod().sum())
    assert 0 < same < H * D
    assert not kept[same:].any()
    unknown, status = processor.decode_batch([[10**6]], policy="pad")
    assert (unknown.any(), status.tolist()) == (False, [ChunkStatus.UNKNOWN_ID])
    with pytest.raises(ValueError, match=r"1 of 2 chunks .* \(1 SHORT\), the first is 1;"):
        processor.decode_batch([good, good[:-1]], policy="strict")
    with pytest.raises(ValueError, match="policy must be one of zero, pad, strict"):
        processor.decode_batch([good], policy="lenient")


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1.0]], [["a"]], [None]])
def test_what_is_no_list_of_ids_is_a_type_error(
    tokens: Any, processor: FastActionProcessor
) -> None:
    with pytest.raises(TypeError, match="list of ids per chunk"):
        processor.decode(tokens)


def test_another_width_is_refused_with_both_numbers() -> None:
    x = smooth(64, 32, 20)  # F02
    padded = FastActionProcessor.fit(x)
    ids = padded(x[:2])
    with pytest.raises(ValueError, match=r"action_dim 14 .* action_dim 20"):
        padded.decode(ids, action_dim=14)
    with pytest.raises(ValueError, match=r"action_dim 14 .* action_dim 20"):
        padded(x[:, :, :14])
    assert padded.decode(ids).shape == (2, 32, 20)


def test_the_shape_follows_the_call_and_other_horizons_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    both = [*smooth(64, 50, 7), *smooth(64, 20, 7)]  # F08
    open_ended, fixed = FastActionProcessor.fit(both), FastActionProcessor.fit(both[:64])
    for processor in (open_ended, fixed):
        for horizon in (50, 20, 50, 4, 20):
            x = smooth(3, horizon, 7)
            ids = processor(x)
            assert (processor.called_time_horizon, processor.called_action_dim) == (horizon, 7)
            assert processor.decode(ids).shape == x.shape
        other = symbols_as_ids(processor, 9 * 7)
        assert processor.decode([other], time_horizon=9, action_dim=7).shape == (1, 9, 7)
        assert processor.called_time_horizon == 9
        assert processor.decode(ids).shape == (3, 20, 7)  # not pinned by another decode
        with pytest.raises(ValueError, match="nan"):
            processor(np.full((1, 4, 7), np.nan))
        assert processor.decode(ids).shape == (3, 20, 7)  # nor by an encode that failed
    assert fixed.time_horizon == 50
    reported = [t for t in warnings_in(caplog) if "differs from the 50" in t]
    assert [t.split()[1] for t in reported] == ["20", "4", "9"]  # once each
    fresh = pickle.loads(pickle.dumps(FastActionProcessor.fit(both[:64])))
    assert fresh.decode([[]]).shape == (1, 50, 7)


def test_the_error_is_bounded_and_a_second_round_changes_nothing() -> None:
    x = smooth(64, 50, 7)  # F07
    processor = FastActionProcessor.fit(x)
    ids = processor(x)
    decoded = processor.decode(ids)
    assert np.linalg.norm(decoded - x, axis=1).max() <= 0.05 * np.sqrt(50)
    assert processor(decoded) == ids


def test_dims_that_hardly_move_round_trip() -> None:
    x = smooth(64, 50, 32)  # F17, F18, F20: constant, nearly constant, and padded dims
    x[:, :, 7:] = -1.0
    x[:, :, 5:7] = 0.0
    x[::16, 3, 5] = 1.0
    processor = FastActionProcessor.fit(x)
    decoded = processor.decode(processor(x))
    np.testing.assert_array_equal(quantize(decoded, 10), quantize(x, 10))
    assert np.abs(decoded[..., 7:] + 1).max() <= 0.01


def punctuation() -> np.ndarray:
    """Chunks: one whose characters English clean-up would rewrite (F13), one for the range."""
    codes = np.array([*map(ord, " . ? , ! 's n't "), 0, 130, *[40] * 14]).reshape(2, 8, 2)
    return idct((codes - 40) / 10)


def test_blanks_before_punctuation_survive(tmp_path: Path) -> None:
    x = punctuation()
    processor = FastActionProcessor.fit(x)
    assert processor.min_token == -40
    processor.save_pretrained(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(config.read_text().replace("false", "true"))  # someone switched it on
    for one in (processor, FastActionProcessor.from_pretrained(tmp_path)):
        np.testing.assert_array_equal(quantize(one.decode(one(x)), 10), quantize(x, 10))
        assert one.bpe_tokenizer.clean_up_tokenization_spaces is False
        text = one.bpe_tokenizer.decode(one(x)[0])
        assert text == " . ? , ! 's n't "


def test_one_call_gives_the_ids_of_many(processor: FastActionProcessor) -> None:
    x = smooth(256)  # F23
    assert processor(x) == [processor(chunk)[0] for chunk in x]
