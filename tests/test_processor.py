"""The processor beyond the golden answers: what it takes, refuses, warns of and gives back."""

from __future__ import annotations

import copy
import itertools
import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.fft
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from action_chunks import D, H, Tensor, fitted, smooth, warnings_in
from vlaprep import errors, processing_action_tokenizer
from vlaprep.processing_action_tokenizer import (
    FastActionProcessor,
    dct,
    idct,
    quantize,
)

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def processor() -> FastActionProcessor:
    """Fitted on `smooth`; one's own, for it remembers its last call."""
    return fitted()


# ------------------------------------------------------------------------------ the transform

chunks_of_any_shape = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=3, max_dims=3, min_side=1, max_side=24),
    elements=st.floats(-4, 4, width=32),
)


@given(chunks_of_any_shape, st.sampled_from([1, 10, 33.3, 100]))
def test_symbols_are_those_of_scipy(x: np.ndarray, scale: float) -> None:
    exact = scipy.fft.dct(x, axis=1, norm="ortho") * scale
    near_half = np.abs(np.abs(exact - np.trunc(exact)) - 0.5) < 1e-9
    np.testing.assert_array_equal(quantize(x, scale)[~near_half], np.around(exact)[~near_half])


@given(chunks_of_any_shape)
def test_idct_undoes_dct_and_is_that_of_scipy(x: np.ndarray) -> None:
    np.testing.assert_allclose(idct(dct(x)), x, atol=1e-12)
    np.testing.assert_allclose(idct(x), scipy.fft.idct(x, axis=1, norm="ortho"), atol=1e-12)


def test_the_native_kernel_gives_the_same_symbols() -> None:
    from vlaprep import kernels

    for dtype in (np.float32, np.float64):
        x = np.random.default_rng(1).normal(size=(50, 50, 7)).astype(dtype)
        np.testing.assert_array_equal(kernels.dct_quantize(x, 10.0), quantize(x, 10.0))


def test_symbols_do_not_depend_on_the_batch() -> None:
    x = smooth(300, 50, 7)
    np.testing.assert_array_equal(dct(x.astype(float))[17], dct(x[17].astype(float)))


# ------------------------------------------------------------------------------ fit


def test_fit_takes_a_list_an_array_an_instance_and_mixed_lengths() -> None:
    x = smooth(64)
    want = FastActionProcessor.fit(list(x), 10, 300).bpe_tokenizer.get_vocab()
    assert FastActionProcessor.fit(x, 10, 300).bpe_tokenizer.get_vocab() == want
    other = FastActionProcessor.fit(smooth(64, seed=1)[:, :5], scale=20, vocab_size=400)
    again = other.fit(x, 10, 300)
    assert again is not other
    assert (other.scale, other.time_horizon) == (20, 5)
    assert again.bpe_tokenizer.get_vocab() == want
    mixed = FastActionProcessor.fit([*x, *smooth(64, 7), np.ones((4, 2))])
    assert (mixed.time_horizon, mixed.action_dim) == (None, None)
    given = FastActionProcessor.fit([*x, *smooth(64, 7)], time_horizon=7)
    assert (given.time_horizon, given.action_dim) == (7, D)


def test_blocks_do_not_change_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [*smooth(20), *smooth(20, 7), *smooth(21)]
    want = FastActionProcessor.fit(chunks).bpe_tokenizer.backend_tokenizer.to_str()
    monkeypatch.setattr(processing_action_tokenizer, "_BLOCK", 3)
    assert FastActionProcessor.fit(chunks).bpe_tokenizer.backend_tokenizer.to_str() == want


class Anew:
    """Blocks from an object whose ``__iter__`` begins anew."""

    def __init__(self, *blocks: Any) -> None:
        self.blocks = blocks

    def __iter__(self) -> Any:
        return iter(self.blocks)


def test_blocks_are_looked_at_as_chunks_are() -> None:
    x = smooth(64)
    masked, nothing = np.ma.masked_array(x, x > 0.5), np.zeros((0, 7, 9))
    want = FastActionProcessor.fit(x).bpe_tokenizer.get_vocab()
    for blocks in (
        Anew(x[:9], nothing, x[9:]),
        Anew(nothing, x),
        [x[:9], x[9:]],
        Anew(Tensor(x[:9]), Tensor(x[9:])),
    ):
        got = FastActionProcessor.fit(blocks)
        assert got.bpe_tokenizer.get_vocab() == want
        assert (got.time_horizon, got.action_dim) == (H, D)
    refused: list[tuple[Any, type[Exception], str]] = [
        (Anew(nothing), errors.NoChunksError, "action_data is empty"),
        (Anew(), errors.NoChunksError, "action_data is empty"),
        (Anew(x, x[0]), ValueError, r"each block must have shape \(n, H, D\), not \(10, 3\)"),
        (Anew(x, x[:, :0]), ValueError, r"each block must have shape"),
        (Anew(x[0], x), ValueError, r"chunk 1 must have shape \(H, D\), not \(64, 10, 3\): pass"),
        (x[0], ValueError, r"chunk 0 must have shape \(H, D\), not \(3,\): pass a list of chunks"),
        (iter([x]), ValueError, r"chunk 0 .* a list of blocks \(n, H, D\)"),
        (x[None], ValueError, r"chunk 0 must have shape \(H, D\), not \(64, 10, 3\)"),
        (Anew(x, masked), TypeError, "masked array"),
        (Anew(x > 0), TypeError, "must be real numbers, not bool"),
        (Anew(x.astype(object)), TypeError, "must be real numbers, not object"),
    ]
    for data, kind, message in refused:
        with pytest.raises(kind, match=message):
            FastActionProcessor.fit(data)
    with pytest.raises(ValueError, match="action_dim is '3', it must be int"):
        FastActionProcessor.fit(x, action_dim="3")  # type: ignore[arg-type]


def test_what_hands_out_one_iterator_loses_no_chunk() -> None:
    """As a loader that keeps its workers does."""

    class Once:
        def __init__(self, chunks: Any) -> None:
            self.left = iter(chunks)

        def __iter__(self) -> Any:
            return self.left

    x = smooth(64)
    x[0] *= 3  # the first decides the range
    want, got = FastActionProcessor.fit(x), FastActionProcessor.fit(Once(x))
    assert (got.min_token, got.max_token) == (want.min_token, want.max_token)
    assert got.bpe_tokenizer.get_vocab() == want.bpe_tokenizer.get_vocab()


def test_fit_does_not_hold_the_corpus_as_text() -> None:
    x = smooth(4000, 50, 7)
    tracemalloc.start()
    FastActionProcessor.fit(x, vocab_size=200)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * x.nbytes  # the symbols as int32, and blocks


@pytest.mark.parametrize(
    ("scale", "factor", "vocab_size"), [(10, 90.0, 1024), (100, 1.0, 300), (10, 1e30, 1024)]
)
def test_the_range_is_checked_before_training(
    scale: float, factor: float, vocab_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(processing_action_tokenizer, "_tokenizer")  # F09
    x = smooth(64, 50) * factor
    q = quantize(x, scale)
    with pytest.raises(errors.VocabularyError) as caught:
        FastActionProcessor.fit(x, scale, vocab_size)
    assert isinstance(caught.value, AssertionError)  # what the published class raises
    for number in (int(q.max()) - int(q.min()), vocab_size, scale):
        assert f" {number}" in str(caught.value)


def test_a_range_without_room_for_merges_is_said(caplog: pytest.LogCaptureFixture) -> None:
    processor = FastActionProcessor.fit(smooth(64), scale=10, vocab_size=100)
    span = processor.max_token - processor.min_token
    assert any(str(span) in text and "100" in text for text in warnings_in(caplog))
    caplog.clear()
    FastActionProcessor.fit(smooth(64), scale=10, vocab_size=span + 100)
    assert not warnings_in(caplog)


def test_symbols_that_are_no_characters(caplog: pytest.LogCaptureFixture) -> None:
    """Raw encoder ticks reach code 55,296, from where on there are surrogates (F09)."""
    ticks = np.zeros((3, 50, 2))
    ticks[:, :, 0] = np.array([790.0, 800.0, 4095.0])[:, None]
    with pytest.raises(errors.VocabularyError, match="289560"):
        FastActionProcessor.fit(ticks, vocab_size=10**6)
    small = FastActionProcessor.fit(ticks / 200, vocab_size=2048)
    assert small(ticks) == small(np.where(ticks > 0, 4095 / 200, 0))
    assert "clamped" in warnings_in(caplog)[0]
    for on_range in ("error", "published"):
        small.on_range = on_range
        with pytest.raises(errors.VocabularyError, match=r"normalise|fitted range"):
            small(ticks)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_is_named_by_chunk_step_and_dim(
    bad: float, processor: FastActionProcessor
) -> None:
    x = smooth(400)
    x[321, 4, 2] = bad
    for call in (FastActionProcessor.fit, processor, processor.encode_batch):
        with pytest.raises(ValueError, match=rf"{bad} at chunk 321, step 4, dim 2"):
            call(x)


def test_values_that_overflow_are_refused(processor: FastActionProcessor) -> None:
    with pytest.raises(ValueError, match="overflow"):
        processor(np.full((1, H, D), 1.7e308))


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        ([], errors.NoChunksError, "empty"),
        (np.zeros((0, 5, 2)), errors.NoChunksError, "empty"),
        (np.zeros((5, 2)), ValueError, r"chunk 0 must have shape \(H, D\), not \(2,\)"),
        ([np.zeros((5, 2)), np.zeros((0, 2))], ValueError, "chunk 1"),
        ([np.array([["a"]])], TypeError, "real numbers"),
        (np.zeros((2, 5, 2), complex), TypeError, "complex128"),
    ],
)
def test_fit_refuses_what_is_no_list_of_chunks(data: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        FastActionProcessor.fit(data)


def test_fit_refuses_senseless_settings() -> None:
    for scale in (0, -1, np.nan, np.inf, 10**400, 10.0**308):
        with pytest.raises(ValueError, match="scale"):
            FastActionProcessor.fit(smooth(4), scale)
    with pytest.raises(ValueError, match="chunks have 3 dims, not action_dim 14"):
        FastActionProcessor.fit(smooth(4), action_dim=14)
    with pytest.raises(ValueError, match="time_horizon"):
        FastActionProcessor.fit(smooth(4), time_horizon=-1)
    tokenizer = FastActionProcessor.fit(smooth(4)).tokenizer
    for setting in ({"on_range": "wrap"}, {"scale": 0}, {"min_token": 0.5}, {"time_horizon": True}):
        with pytest.raises(ValueError, match=next(iter(setting))):
            FastActionProcessor(tokenizer, **setting)


def test_far_from_zero_only_the_range_counts() -> None:
    """One step has no frequency but 0, so a large offset alone does not widen the range."""
    x = np.linspace(1e12, 1e12 + 3, 40).reshape(40, 1, 1)
    processor = FastActionProcessor.fit(x)
    assert processor.min_token == 10**13
    np.testing.assert_array_equal(quantize(processor.decode(processor(x)), 10), quantize(x, 10))


# ------------------------------------------------------------------------------ encode


def test_every_form_of_the_same_numbers_gives_the_same_ids(processor: FastActionProcessor) -> None:
    x = (smooth(4) * 16).round().astype(np.float16) / np.float16(16)
    ids = processor(x)
    wide = np.zeros((4, H, 2 * D), np.float32)
    wide[:, :, ::2] = x
    forms = [
        x.astype(np.float32), x.astype(np.float64), x.astype(">f4"), wide[:, :, ::2],
        np.asfortranarray(x), x.tolist(), list(x), tuple(x), Tensor(x), [Tensor(c) for c in x],
    ]  # fmt: skip
    for form in forms:
        assert processor(form) == ids
    whole = np.sign(x)
    assert processor(whole.astype(np.int64)) == processor(whole)
    assert [processor(chunk)[0] for chunk in x] == ids  # (H, D) counts as one
    assert all(type(i) is int for chunk in ids for i in chunk)


def test_torch_tensors(processor: FastActionProcessor) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: Tensor above stands in")
    x = torch.from_numpy(smooth(4))
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        tensor = x.to(dtype).requires_grad_()
        assert processor(tensor) == processor(tensor.detach().double().numpy())
        assert tensor.grad is None
    turned = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert processor(turned) == processor(x.numpy())
    assert processor.decode(torch.tensor([[1, 2], [3, 4]])).shape == (2, H, D)


def test_an_empty_batch_gives_no_ids(processor: FastActionProcessor) -> None:
    for nothing in ([], np.zeros((0, H, D)), np.zeros((0, 4, 9))):
        assert processor(nothing) == []
        ids, offsets = processor.encode_batch(nothing)
        assert (ids.dtype, ids.size, offsets.tolist()) == (np.int32, 0, [0])
        padded, mask = processor.encode_padded(nothing, 8)
        assert padded.shape == mask.shape == (0, 8)
    assert processor.decode([]).shape == (0, H, D)


@pytest.mark.parametrize("shape", [(3,), (0, D), (2, 0, D), (2, H, 0), (2, 2, H, D)])
def test_other_shapes_are_refused(shape: tuple[int, ...], processor: FastActionProcessor) -> None:
    with pytest.raises(ValueError, match="shape"):
        processor(np.zeros(shape))


def test_ragged_and_foreign_actions_are_refused(processor: FastActionProcessor) -> None:
    with pytest.raises(ValueError, match=r"\(4, 3\), \(10, 3\)"):
        processor([np.zeros((4, 3)), np.zeros((10, 3))])
    for bad in (np.array([[["a"]]]), np.zeros((1, H, D), complex), np.zeros((1, H, D), bool)):
        with pytest.raises(TypeError, match="real numbers"):
            processor(bad)


def test_out_of_range_clamps_errs_or_follows_the_published_class(
    processor: FastActionProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    x = smooth(5)
    x[3, :, 1] = 50.0
    x[4, :, 0] = -50.0
    ids = processor(x)
    assert warnings_in(caplog) == [
        "2 coefficients in 2 of 5 chunks are outside the fitted range "
        f"[{processor.min_token}, {processor.max_token}], first 1581 at chunk 3, frequency 0, "
        "dim 1: normalise as in the fit, or fit on wider data; clamped at both ends"
    ]
    back = quantize(processor.decode(ids), processor.scale)
    want = np.clip(quantize(x, processor.scale), processor.min_token, processor.max_token)
    np.testing.assert_array_equal(back, want)
    processor.on_range = "error"
    with pytest.raises(errors.VocabularyError, match=r"1581 .* chunk 3, frequency 0, dim 1"):
        processor(x)
    assert processor(x[:3]) == ids[:3]
    processor.on_range = "Error"
    with pytest.raises(ValueError, match="on_range must be one of clamp, error, published"):
        processor(x[:3])
    processor.on_range = "published"
    assert processor(x)[4] == ids[4]
    assert processor(x)[3] != ids[3]


def test_symbols_whose_bytes_were_never_seen_are_not_dropped_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In range, yet no chunk of the fit held them: BPE without an unknown token leaves them out."""
    x = np.zeros((40, 1, 2))
    x[:, 0, 0] = np.where(np.arange(40) % 2, -6, 6)
    sparse = FastActionProcessor.fit(x)
    x[7, 0, 0] = -5
    ids = sparse(x)
    assert warnings_in(caplog)[-1].startswith(
        "1 of 40 chunks hold coefficients that no chunk of the fit held, as -50"
    )
    status = sparse.decode_batch(ids)[1]
    assert np.flatnonzero(status).tolist() == [7]


def test_the_batch_methods_agree(
    processor: FastActionProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    x = smooth(20)
    lists = processor(x)
    ids, offsets = processor.encode_batch(x)
    assert (ids.dtype, offsets.dtype) == (np.int32, np.int64)
    assert [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)] == lists
    want, status = processor.decode_batch(lists)
    for form in ((ids, offsets), (ids.tolist(), offsets.tolist()), (tuple(ids), tuple(offsets))):
        actions, again = processor.decode_batch(*form)
        np.testing.assert_array_equal(actions, want)
        np.testing.assert_array_equal(again, status)
    assert (want.dtype, status.dtype) == (np.float64, np.uint8)
    np.testing.assert_array_equal(processor.decode(lists), want)
    longest = max(map(len, lists))
    padded, mask = processor.encode_padded(x, longest + 2, pad_id=-1)
    assert (padded.dtype, mask.dtype, padded.shape) == (np.int32, np.bool_, (20, longest + 2))
    assert [row[m].tolist() for row, m in zip(padded, mask, strict=True)] == lists
    assert (padded[~mask] == -1).all()
    assert not warnings_in(caplog)
    padded, mask = processor.encode_padded(x, longest - 1)
    cut = sum(len(chunk) == longest for chunk in lists)
    assert warnings_in(caplog)[0].startswith(f"{cut} of 20 chunks cut to max_length {longest - 1}")
    assert [row[m].tolist() for row, m in zip(padded, mask, strict=True)] == [
        chunk[: longest - 1] for chunk in lists
    ]
    with pytest.raises(ValueError, match="max_length"):
        processor.encode_padded(x, 0)
    for bad in ([0, 1], [1, len(ids)], [0, 5, 3, len(ids)], []):
        with pytest.raises(ValueError, match="offsets"):
            processor.decode_batch(ids, bad)


def test_another_tokenizer_is_taken_up(processor: FastActionProcessor) -> None:
    """Replaced whole or by parts, with a vocabulary of the same size."""
    x = smooth(40)
    before = processor(x)
    backend = processor.tokenizer.backend_tokenizer
    split = backend.pre_tokenizer

    def same_as_new() -> None:
        fields = {name: getattr(processor, name) for name in processing_action_tokenizer._FIELDS}
        new = FastActionProcessor(copy.deepcopy(processor.tokenizer), **fields)
        ids = processor(x)
        assert ids == new(x)
        for got, want in zip(processor.decode_batch(ids), new.decode_batch(ids), strict=True):
            np.testing.assert_array_equal(got, want)

    for part in (
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        split,
    ):
        backend.pre_tokenizer = part
        same_as_new()
    assert processor(x) == before
    backend.normalizer = tokenizers.normalizers.Replace("F", "G")
    same_as_new()
    backend.normalizer = None
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="A $0", special_tokens=[("A", 1)]
    )
    same_as_new()
    backend.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    assert processor(x) == before
    processor.tokenizer.add_special_tokens({"pad_token": processor.tokenizer.decode([5])})
    same_as_new()
    model = json.loads(backend.to_str())["model"]
    entries = {entry: i for entry, i in model["vocab"].items() if i < 500}
    merges = [tuple(m) for m in model["merges"] if "".join(m) in entries]
    backend.model = tokenizers.models.BPE(
        {**entries, **{f"{i}": i for i in range(500, 512)}}, merges
    )
    same_as_new()
    assert processor(x) != before
    processor.tokenizer = FastActionProcessor.fit(smooth(300, seed=9), vocab_size=512).tokenizer
    same_as_new()


def test_padding_by_others_leaves_the_ids_alone(processor: FastActionProcessor) -> None:
    x = smooth(4)
    ids = processor(x)
    processor.bpe_tokenizer.pad_token = processor.bpe_tokenizer.convert_ids_to_tokens(0)
    processor.bpe_tokenizer(["a", "abcdef"], padding="max_length", max_length=99, truncation=True)
    assert processor(x) == ids
