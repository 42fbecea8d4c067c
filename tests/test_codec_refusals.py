"""What hostile callers and folders meet: an error that says what is wrong, by either class."""

from __future__ import annotations

import dataclasses
import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from action_chunks import D, fitted
from vlaprep import ActionCodec, errors, kernels, processing_action_tokenizer
from vlaprep.processing_action_tokenizer import FastActionProcessor, quantize

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved tokenizer, fitted on `smooth`."""
    path = tmp_path_factory.mktemp("saved")
    fitted().save_pretrained(path)
    return path


def test_a_whole_dataset_is_no_chunk(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transform would need a matrix of steps x steps."""
    rows = np.zeros((100_000, D))
    codec = ActionCodec.from_pretrained(folder)
    free = dataclasses.replace(codec, time_horizon=None)
    messages = set()
    for native in (processing_action_tokenizer.Codec, None):
        monkeypatch.setattr(processing_action_tokenizer, "Codec", native)
        for call in (
            lambda: codec.encode_batch(rows),
            lambda: free.encode_batch(rows),
            lambda: codec.decode_batch([[1]], time_horizon=100_000),
            lambda: fitted()(rows),
            lambda: fitted().decode([[1]], time_horizon=100_000),
            lambda: FastActionProcessor.fit([rows]),
            lambda: kernels.dct_quantize(rows[None], 10),
        ):
            with pytest.raises(ValueError, match="100000 steps, where 4096 are the most") as caught:
                call()
            messages.add(str(caught.value))
    assert len(messages) == 1
    with pytest.raises(ValueError, match=f"{2**61} steps"):
        codec.decode_batch([[1]], time_horizon=2**61)
    shutil.copytree(folder, tmp_path / "saved")
    config = tmp_path / "saved/processor_config.json"
    for horizon in (4097, 2**61, 10**30):
        config.write_text(json.dumps({**json.loads(config.read_text()), "time_horizon": horizon}))
        for load in (ActionCodec.from_pretrained, FastActionProcessor.from_pretrained):
            with pytest.raises(errors.TokenizerFormatError, match=rf"saved: .*{horizon}"):
                load(tmp_path / "saved")
    longest = np.zeros((1, 4096, 1))
    assert not kernels.dct_quantize(longest, 10).any()
    assert not quantize(longest, 10).any()


def test_numbers_of_numpy_are_numbers(folder: Path) -> None:
    codec = ActionCodec.from_pretrained(folder)
    same = dataclasses.replace(codec, scale=np.float32(10), min_token=np.int16(codec.min_token))
    assert same.decode_batch([[1]])[1].tolist() == codec.decode_batch([[1]])[1].tolist()


def test_a_folder_is_no_text_of_a_tokenizer(folder: Path) -> None:
    for wrong in (folder, str(folder), "", None):
        with pytest.raises(ValueError, match="from_pretrained takes a folder"):
            ActionCodec(wrong, 10, 512, -40)  # type: ignore[arg-type]


def _two_on_one_id(bpe: dict[str, Any]) -> None:
    *_, one, other = bpe["model"]["vocab"]
    bpe["model"]["vocab"][other] = bpe["model"]["vocab"][one]


HOSTILE: dict[str, Any] = {
    "panic": lambda _, bpe: bpe["model"].update(continuing_subword_prefix="##"),
    "far": lambda config, _: config.update(min_token=2**61),
    "too far": lambda config, _: config.update(min_token=10**400),
    "huge scale": lambda config, _: config.update(scale=10**400),
    "tiny scale": lambda config, _: config.update(scale=1e-320),
    "huge horizon": lambda config, _: config.update(time_horizon=10**400),
    "one id": lambda _, bpe: _two_on_one_id(bpe),
    "deep tokenizer": lambda _, bpe: bpe.update(model=json.loads("[" * 500 + "]" * 500)),
}


@pytest.mark.parametrize("load", [ActionCodec.from_pretrained, FastActionProcessor.from_pretrained])
@pytest.mark.parametrize("name", [*HOSTILE, "deep config"])
def test_no_folder_raises_anything_else(load: Any, name: str, golden: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    shutil.copytree(golden / "fast/arm7/processor", saved, copy_function=shutil.copyfile)
    paths = saved / "processor_config.json", saved / "tokenizer.json"
    if name == "deep config":
        paths[0].write_text('{"scale":' + "[" * 100_000 + "]" * 100_000 + "}")
    else:
        files = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        HOSTILE[name](*files)
        for path, file in zip(paths, files, strict=True):
            path.write_text(json.dumps(file), encoding="utf-8")
    with pytest.raises(errors.TokenizerFormatError) as caught:
        load(saved)
    assert str(saved) in str(caught.value)


@pytest.mark.parametrize("load", [ActionCodec.from_pretrained, FastActionProcessor.from_pretrained])
@pytest.mark.parametrize("name", ["scale", "min_token", "vocab_size"])
def test_a_field_of_another_type_is_named(
    load: Any, name: str, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "saved")
    path = tmp_path / "saved/processor_config.json"
    config = json.loads(path.read_text())
    for value in ("10", None, [10], True):
        path.write_text(json.dumps({**config, name: value}))
        with pytest.raises(errors.TokenizerFormatError) as caught:
            load(tmp_path / "saved")
        assert f"{name} is {value!r}, it must be" in str(caught.value)


def test_a_wrong_argument_is_not_blamed_on_the_folder(folder: Path) -> None:
    for load in (ActionCodec.from_pretrained, FastActionProcessor.from_pretrained):
        with pytest.raises(ValueError, match=r"^on_range must be one of .* not 'Clamp'") as caught:
            load(folder, on_range="Clamp")
        assert type(caught.value) is ValueError
