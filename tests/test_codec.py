"""`ActionCodec` as a data loader sees it: what it takes, refuses, warns of and gives back."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vlaprep
from action_chunks import D, H, Tensor, fitted, smooth, warnings_in
from test_structure import in_fresh_process
from vlaprep import ActionCodec, ChunkStatus, errors
from vlaprep import codec as codec_module
from vlaprep._codec_package import PackageEngine
from vlaprep.processing_action_tokenizer import FastActionProcessor, quantize

NAMES = ("arm7", "padded32", "pusht", "wide")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved tokenizer, fitted on `smooth`."""
    path = tmp_path_factory.mktemp("saved")
    fitted().save_pretrained(path)
    return path


def with_package(codec: ActionCodec) -> ActionCodec:
    numbers = (codec.scale, codec.min_token, codec.max_token, codec.time_horizon)
    object.__setattr__(codec, "_engine", PackageEngine(codec.tokenizer, *numbers))
    return codec


@pytest.fixture(params=["native", "package"])
def codec(request: pytest.FixtureRequest, folder: Path) -> ActionCodec:
    """That tokenizer as a codec, by each of the engines."""
    codec_module._report_horizon.cache_clear()
    codec = ActionCodec.from_pretrained(folder)
    return with_package(codec) if request.param == "package" else codec


def in_lists(ids: np.ndarray, offsets: np.ndarray) -> list[list[int]]:
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]


# ------------------------------------------------------------------------ the published class


@pytest.mark.parametrize("name", NAMES)
def test_ids_and_actions_are_those_of_the_published_class(name: str, golden: Path) -> None:
    folder = golden / "fast" / name
    tokens = json.loads((folder / "tokens.json").read_text())
    with np.load(folder / "arrays.npz") as arrays:
        probe, decoded, wild = arrays["probe"], arrays["decoded"], arrays["wild"]
    codec = ActionCodec.from_pretrained(folder / "processor")
    ids, offsets = codec.encode_batch(probe)
    assert in_lists(ids, offsets) == tokens["probe"]
    actions, status = codec.decode_batch(ids, offsets)
    assert np.abs(actions - decoded).max() < 1e-6
    assert not status.any()
    published = ActionCodec.from_pretrained(folder / "processor", on_range="published")
    assert in_lists(*published.encode_batch(wild)) == tokens["wild"]
    actions, status = codec.decode_batch(tokens["broken"])
    assert not actions.any()
    assert status.all()


def test_both_layouts_load_with_and_without_a_shape(golden: Path, tmp_path: Path) -> None:
    saved = golden / "fast/arm7/processor"
    shutil.copytree(saved, tmp_path / "five", copy_function=shutil.copyfile)
    (tmp_path / "five/bpe_tokenizer").mkdir()
    (tmp_path / "five/tokenizer.json").rename(tmp_path / "five/bpe_tokenizer/tokenizer.json")
    config = json.loads((saved / "processor_config.json").read_text())
    del config["time_horizon"], config["action_dim"]
    (tmp_path / "five/processor_config.json").write_text(json.dumps(config))
    shapeless = ActionCodec.from_pretrained(tmp_path / "five")
    assert (shapeless.time_horizon, shapeless.action_dim) == (None, None)
    x = smooth(4, 50, 7)
    ids = shapeless.encode_batch(x)
    for got, want in zip(ids, ActionCodec.from_pretrained(saved).encode_batch(x), strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match="time_horizon= and action_dim="):
        shapeless.decode_batch(*ids)
    actions, _ = shapeless.decode_batch(*ids, time_horizon=50, action_dim=7)
    assert actions.shape == x.shape


# ---------------------------------------------------------------------------------- encoding


def test_every_form_of_the_same_numbers_gives_the_same_ids(codec: ActionCodec) -> None:
    x = (smooth(4) * 16).round().astype(np.float16) / np.float16(16)
    want = in_lists(*codec.encode_batch(x.astype(np.float32)))
    assert want == fitted()(x)
    wide = np.zeros((4, H, 2 * D), np.float32)
    wide[:, :, ::2] = x
    unaligned = np.frombuffer(b"x" + x.astype(np.float64).tobytes(), np.float64, offset=1)
    read_only = x.astype(np.float32)
    read_only.flags.writeable = False
    forms = [
        x, x.astype(np.float64), x.astype(">f4"), x.astype(np.longdouble), wide[:, :, ::2],
        np.asfortranarray(x), x.tolist(), list(x), tuple(x), Tensor(x), [Tensor(c) for c in x],
        unaligned.reshape(x.shape), x.astype(np.float32)[::-1][::-1], read_only,
    ]  # fmt: skip
    for form in forms:
        assert in_lists(*codec.encode_batch(form)) == want
    assert [in_lists(*codec.encode_batch(chunk))[0] for chunk in x] == want
    whole = np.sign(x)
    for kind in (np.int8, np.int64):
        got = codec.encode_batch(whole.astype(kind))
        np.testing.assert_array_equal(got[0], codec.encode_batch(whole)[0])


def test_an_empty_batch_gives_no_ids(codec: ActionCodec) -> None:
    for nothing in ([], np.zeros((0, H, D)), np.zeros((0, H, D), np.float32), np.zeros((0, 4, 9))):
        ids, offsets = codec.encode_batch(nothing)
        assert (ids.dtype, ids.size, offsets.tolist()) == (np.int32, 0, [0])
        padded, mask = codec.encode_padded(nothing, 8)
        assert padded.shape == mask.shape == (0, 8)
    actions, status = codec.decode_batch(ids, offsets)
    assert (actions.shape, status.shape) == ((0, H, D), (0,))
    assert codec.decode_batch([])[0].shape == (0, H, D)


@pytest.mark.parametrize("shape", [(3,), (0, D), (2, 0, D), (2, H, 0), (2, 2, H, D)])
def test_other_shapes_are_refused(shape: tuple[int, ...], codec: ActionCodec) -> None:
    with pytest.raises(ValueError, match="shape"):
        codec.encode_batch(np.zeros(shape))


def test_what_is_no_batch_of_real_numbers_is_refused(codec: ActionCodec) -> None:
    with pytest.raises(ValueError, match=r"\(4, 3\), \(10, 3\)"):
        codec.encode_batch([np.zeros((4, 3)), np.zeros((10, 3))])
    for call in (codec.encode_batch, fitted()):
        for bad in (
            np.array([[["a"]]]), np.zeros((1, H, D), complex), np.zeros((1, H, D), bool),
            Tensor(np.zeros((1, H, D), complex)), Tensor(np.zeros((1, H, D), bool)),
            [Tensor(np.zeros((H, D), bool))],
        ):  # fmt: skip
            with pytest.raises(TypeError, match="real numbers"):
                call(bad)
        for masked in (np.ma.zeros((1, H, D)), [np.ma.zeros((H, D))]):
            with pytest.raises(TypeError, match="masked array: fill it or leave the chunks out"):
                call(masked)
    with pytest.raises(TypeError, match="masked array"):
        FastActionProcessor.fit(np.ma.zeros((9, H, D)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("threads", [1, 2])
def test_not_finite_is_named(bad: float, threads: int, codec: ActionCodec) -> None:
    x = smooth(400)
    x[321, 4, 2] = bad
    with pytest.raises(ValueError, match=rf"{bad} at chunk 321, step 4, dim 2"):
        codec.encode_batch(x, num_threads=threads)
    with pytest.raises(ValueError, match="overflow"):
        codec.encode_batch(np.full((1, H, D), 1.7e308))


@pytest.mark.parametrize("on_range", ["clamp", "published"])
def test_it_says_and_gives_what_the_processor_does(
    on_range: str,
    codec: ActionCodec,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Out of range at both ends, against the processor where vlaprep is not installed."""
    x = smooth(5)
    x[1, 2:, 0] *= 9
    x[3, :, 1] = 50.0
    x[4, :, 0] = -50.0
    monkeypatch.setattr("vlaprep.processing_action_tokenizer.Codec", None)
    processor = fitted()
    processor.on_range = on_range
    ids = processor(x)
    said = warnings_in(caplog)
    caplog.clear()
    object.__setattr__(codec, "on_range", on_range)
    assert in_lists(*codec.encode_batch(x)) == ids
    assert warnings_in(caplog) == said != []
    for got, want in zip(codec.decode_batch(ids), processor.decode_batch(ids), strict=True):
        np.testing.assert_array_equal(got, want)
    messages = []
    processor.on_range = "error"
    object.__setattr__(codec, "on_range", "error")
    for call in (processor, codec.encode_batch):
        with pytest.raises(errors.VocabularyError, match="fitted range") as caught:
            call(x)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_symbols_that_the_vocabulary_lacks_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    x = np.zeros((40, 1, 2))
    x[:, 0, 0] = np.where(np.arange(40) % 2, -6, 6)
    sparse = FastActionProcessor.fit(x)
    x[7, 0, 0] = -5
    text = sparse.bpe_tokenizer.backend_tokenizer.to_str()
    codec = ActionCodec(text, 10, 1024, sparse.min_token, sparse.max_token, 1, 2)
    caplog.clear()
    ids, offsets = codec.encode_batch(x)
    package = with_package(copy.copy(codec)).encode_batch(x)
    np.testing.assert_array_equal(ids, package[0])
    one, other = warnings_in(caplog)
    assert one == other
    assert one.startswith("1 of 40 chunks hold coefficients that no chunk of the fit held, as -50:")
    assert np.flatnonzero(codec.decode_batch(ids, offsets)[1]).tolist() == [7]


def test_padding_and_cutting(codec: ActionCodec, caplog: pytest.LogCaptureFixture) -> None:
    x = smooth(20)
    lists = in_lists(*codec.encode_batch(x))
    longest = max(map(len, lists))
    padded, mask = codec.encode_padded(x, longest + 2, pad_id=-1)
    assert (padded.dtype, mask.dtype, padded.shape) == (np.int32, np.bool_, (20, longest + 2))
    assert [row[m].tolist() for row, m in zip(padded, mask, strict=True)] == lists
    assert (padded[~mask] == -1).all()
    assert not warnings_in(caplog)
    padded, mask = codec.encode_padded(x, longest - 1)
    cut = sum(len(chunk) == longest for chunk in lists)
    assert warnings_in(caplog)[0].startswith(f"{cut} of 20 chunks cut to max_length {longest - 1}")
    assert [row[m].tolist() for row, m in zip(padded, mask, strict=True)] == [
        chunk[: longest - 1] for chunk in lists
    ]
    for call in (codec.encode_padded, fitted().encode_padded):
        for bad in (0, -1, 2.5, True):
            with pytest.raises(ValueError, match="max_length"):
                call(x, bad)
        for bad in (2**31, -(2**31) - 1, 0.5, 1.0, "0", None, True):
            with pytest.raises(ValueError, match="pad_id"):
                call(x, 30, bad)
        assert call(x, 30, np.int64(-(2**31)))[0].min() == -(2**31)


def test_threads_change_nothing(codec: ActionCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    x = smooth(700)
    want = codec.encode_batch(x)
    monkeypatch.setenv("VLAPREP_NUM_THREADS", "3")
    for threads in (2, 16, None):
        for got, expected in zip(codec.encode_batch(x, num_threads=threads), want, strict=True):
            np.testing.assert_array_equal(got, expected)
        padded = codec.encode_padded(x, 30, num_threads=threads)
        np.testing.assert_array_equal(padded[0], codec.encode_padded(x, 30)[0])
    for bad in (0, -1, "2", True, 2.0, 10**9):
        with pytest.raises(ValueError, match="num_threads"):
            codec.encode_batch(x, num_threads=bad)


# ---------------------------------------------------------------------------------- decoding


def test_each_bad_chunk_says_why(codec: ActionCodec, capfd: pytest.CaptureFixture[str]) -> None:
    x = smooth(2)
    good = in_lists(*codec.encode_batch(x))
    lists = [good[0], good[1][:-1], good[0] + good[1], [-1], [10**6], [2**70], [], good[1]]
    actions, status = codec.decode_batch(lists)
    names = [ChunkStatus(s).name for s in status]
    assert names == ["OK", "SHORT", "LONG", *["UNKNOWN_ID"] * 3, "SHORT", "OK"]
    assert not actions[1:-1].any()
    np.testing.assert_array_equal(quantize(actions[[0, -1]], 10), quantize(x, 10))
    padded, again = codec.decode_batch(lists, policy="pad")
    np.testing.assert_array_equal(again, status)
    np.testing.assert_array_equal(padded[2], actions[0])
    assert padded[1].any()
    assert not padded[3:-1].any()
    with pytest.raises(
        ValueError, match=r"6 of 8 chunks .* \(2 SHORT, 1 LONG, 3 UNKNOWN_ID\), the"
    ):
        codec.decode_batch(lists, policy="strict")
    with pytest.raises(ValueError, match="policy must be one of zero, pad, strict"):
        codec.decode_batch(lists, policy="lenient")
    assert capfd.readouterr().out == ""


def test_every_form_of_the_same_ids(codec: ActionCodec) -> None:
    ids, offsets = codec.encode_batch(smooth(20))
    want = codec.decode_batch(ids, offsets)
    lists = in_lists(ids, offsets)
    forms: list[Any] = [
        (ids.tolist(), offsets.tolist()), (tuple(ids), tuple(offsets)),
        (ids.astype(np.int64), offsets), (ids.astype(np.uint16), offsets.astype(np.int32)),
        (ids.astype(">i4"), offsets), (np.repeat(ids, 2)[::2], offsets), (lists,), (iter(lists),),
        ([np.array(chunk) for chunk in lists],), ([iter(chunk) for chunk in lists],),
    ]  # fmt: skip
    for form in forms:
        for got, expected in zip(codec.decode_batch(*form), want, strict=True):
            np.testing.assert_array_equal(got, expected)
    matrix = np.array([lists[0], lists[0]])
    np.testing.assert_array_equal(codec.decode_batch(matrix)[0], want[0][[0, 0]])
    for decode in (codec.decode_batch, fitted().decode_batch):
        for bad in ([0, 1], [1, len(ids)], [0, 5, 3, len(ids)], []):
            with pytest.raises(ValueError, match="offsets"):
                decode(ids, np.array(bad, dtype=np.int64))
        for uneven in (offsets.astype(float), [0, 1.5, len(ids)], ["0", len(ids)], [[0], [1]]):
            with pytest.raises(TypeError, match="offsets must be whole numbers"):
                decode(ids, uneven)
        for flat in (ids, ids.tolist()):
            with pytest.raises(TypeError, match="flat ids need offsets"):
                decode(flat)


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1.0]], [["a"]], [None], np.array([[1.0]])])
def test_what_is_no_list_of_ids_is_a_type_error(tokens: Any, codec: ActionCodec) -> None:
    with pytest.raises(TypeError, match="list of ids per chunk"):
        codec.decode_batch(tokens)


def test_another_width_is_refused_and_another_horizon_reported_once(
    codec: ActionCodec, caplog: pytest.LogCaptureFixture
) -> None:
    for call in (
        lambda: codec.encode_batch(smooth(2)[:, :, :2]),
        lambda: codec.decode_batch([[]], action_dim=2),
    ):
        with pytest.raises(ValueError, match=r"action_dim 2 .* action_dim 3"):
            call()
    for _ in range(3):
        ids, offsets = codec.encode_batch(smooth(3, 4))
        assert codec.decode_batch(ids, offsets, time_horizon=4)[1].tolist() == [0, 0, 0]
        assert codec.decode_batch(ids, offsets)[1].tolist() == [ChunkStatus.SHORT] * 3
    assert warnings_in(caplog) == ["time_horizon 4 differs from the 10 of the fit"]


def test_a_shape_that_cannot_be_is_an_error(codec: ActionCodec) -> None:
    for decode in (codec.decode_batch, fitted().decode_batch):
        for horizon in (10**12, 2**62, 0, -1, 2**70, 1.5, [], True, "10"):
            with pytest.raises(ValueError, match=r"time_horizon|steps"):
                decode([[1]], time_horizon=horizon)
        for dim in (0, -1, 1.5, [], True, 2**70):
            with pytest.raises(ValueError, match="action_dim"):
                decode([[1]], action_dim=dim)


# ------------------------------------------------------------------------------------- object


def test_it_never_changes_and_copies_are_equal(codec: ActionCodec) -> None:
    x = smooth(6)
    want = codec.encode_batch(x)
    for name in ("scale", "tokenizer", "_engine", "new"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(codec, name, 1)
    for twin in (pickle.loads(pickle.dumps(codec)), copy.deepcopy(codec), copy.copy(codec)):
        assert twin == codec
        assert hash(twin) == hash(codec)
        for got, expected in zip(twin.encode_batch(x), want, strict=True):
            np.testing.assert_array_equal(got, expected)
    assert len(repr(codec)) < 200
    state = codec.__getstate__()
    for spoilt in ({}, {**state, "scale": 0}, {**state, "more": 1}):
        with pytest.raises(ValueError, match=r"scale|no state"):
            twin.__setstate__(spoilt)
        assert twin == codec
    blank = object.__new__(ActionCodec)
    with pytest.raises(ValueError, match="no state"):
        blank.__setstate__({})


@pytest.mark.parametrize(
    "change",
    [
        {"scale": 0}, {"scale": np.nan}, {"scale": 1e-320}, {"scale": 1e-301},
        {"scale": 10**400}, {"scale": True}, {"vocab_size": 0}, {"min_token": 0.5},
        {"min_token": 10**30}, {"min_token": 2**61}, {"min_token": -(2**51)},
        {"max_token": 10**6}, {"max_token": -(10**6)}, {"time_horizon": 0},
        {"action_dim": True}, {"on_range": "wrap"},
    ],
)  # fmt: skip
def test_settings_are_checked(change: dict[str, Any], codec: ActionCodec) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        dataclasses.replace(codec, **change)
    if "vocab_size" not in change:
        with pytest.raises(ValueError, match=next(iter(change))):
            FastActionProcessor(fitted().tokenizer, **{"min_token": codec.min_token, **change})


@pytest.mark.parametrize("name", ["config", "version", "tokenizer", "folder", "field", "no fast"])
def test_a_broken_folder_is_named(name: str, folder: Path, tmp_path: Path) -> None:
    saved = Path(shutil.copytree(folder, tmp_path / "saved"))
    config, bpe = saved / "processor_config.json", saved / "tokenizer.json"
    fields = json.loads(config.read_text())
    if name == "config":
        config.unlink()
    elif name == "version":
        config.write_text(json.dumps({**fields, "format_version": 99}))
    elif name == "field":
        config.write_text(json.dumps({**fields, "scale": "10"}))
    elif name == "tokenizer":
        bpe.write_bytes(b"\xff\xfe")
    elif name == "no fast":
        bpe.write_text(bpe.read_text(encoding="utf-8").replace(r'"\u0000"', r'"\ue000"'))
    else:
        saved = tmp_path / "nowhere"
    with pytest.raises(errors.TokenizerFormatError) as caught:
        ActionCodec.from_pretrained(saved)
    assert str(saved) in str(caught.value)


def test_it_needs_no_transformers() -> None:
    loaded = in_fresh_process(
        "import sys, vlaprep\n"
        "codec = vlaprep.ActionCodec.from_pretrained('tests/golden/fast/pusht/processor')\n"
        "codec.decode_batch(*codec.encode_batch([[[0.0, 0.0]] * 16])); print(*sys.modules)"
    ).split()
    assert "vlaprep.codec" in loaded
    assert not {"transformers", "tokenizers", "torch", "scipy", "huggingface_hub"} & {*loaded}


def test_the_public_names() -> None:
    assert vlaprep.ActionCodec is ActionCodec
    assert vlaprep.ChunkStatus is ChunkStatus
