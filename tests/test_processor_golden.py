"""The processor against the published FAST class: golden fits, ids, decodes, saved folders."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from vlaprep.processing_action_tokenizer import ChunkStatus, FastActionProcessor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("engine")

NAMES = ("arm7", "padded32", "pusht", "wide")


@dataclass(frozen=True)
class Published:
    """What the published class was given and what it answered."""

    folder: Path
    arrays: dict[str, np.ndarray]
    tokens: dict[str, Any]

    @property
    def bpe(self) -> dict[str, Any]:
        return json.loads((self.folder / "processor" / "tokenizer.json").read_text("utf-8"))

    def fit(self) -> FastActionProcessor:
        spec = self.tokens["spec"]
        return FastActionProcessor.fit(
            list(self.arrays["fit_chunks"]), spec["scale"], spec["vocab"]
        )

    def load(self, **options: Any) -> FastActionProcessor:
        return FastActionProcessor.from_pretrained(self.folder / "processor", **options)


@pytest.fixture(params=NAMES)
def published(request: pytest.FixtureRequest, golden: Path) -> Published:
    folder = golden / "fast" / request.param
    with np.load(folder / "arrays.npz") as arrays:
        return Published(folder, dict(arrays), json.loads((folder / "tokens.json").read_text()))


def test_fit_gives_the_same_vocabulary_merges_and_settings(published: Published) -> None:
    processor = published.fit()
    ours = json.loads(processor.bpe_tokenizer.backend_tokenizer.to_str())
    assert list(ours["model"]["vocab"].items()) == list(published.bpe["model"]["vocab"].items())
    assert ours["model"]["merges"] == published.bpe["model"]["merges"]
    assert ours == published.bpe
    assert processor.min_token == published.tokens["min_token"]
    spec = published.tokens["spec"]
    assert (processor.time_horizon, processor.action_dim) == (spec["horizon"], spec["dim"])


@pytest.mark.parametrize("loaded", [False, True])
def test_ids_and_decode_of_the_probe(published: Published, loaded: bool) -> None:
    processor = published.load() if loaded else published.fit()
    ids = processor(published.arrays["probe"])
    assert ids == published.tokens["probe"]
    assert np.abs(processor.decode(ids) - published.arrays["decoded"]).max() < 1e-6


def test_values_outside_the_range_as_published(published: Published) -> None:
    processor = published.load(on_range="published")
    ids = processor(published.arrays["wild"])
    assert ids == published.tokens["wild"]
    actions, status = processor.decode_batch(ids)
    good = status == ChunkStatus.OK
    assert np.abs(actions - published.arrays["wild_decoded"])[good].max(initial=0) < 1e-6
    # Where the published class reads U+FFFD as coefficient 65533 the actions go into the hundreds.
    assert not actions[~good].any()
    assert (np.abs(published.arrays["wild_decoded"][good]) < 10).all()


def test_values_outside_the_range_are_clamped_at_both_ends(
    published: Published, caplog: pytest.LogCaptureFixture
) -> None:
    processor = published.load()
    ids = processor(published.arrays["wild"])
    (record,) = (r for r in caplog.records if "outside the fitted range" in r.getMessage())
    assert record.levelno == logging.WARNING
    assert "of 8 chunks" in record.getMessage()
    assert processor.decode(ids).shape == published.arrays["wild"].shape


def test_broken_lists_are_zeros(published: Published, capfd: pytest.CaptureFixture[str]) -> None:
    processor, broken = published.load(), published.tokens["broken"]
    actions, status = processor.decode_batch(broken)
    np.testing.assert_array_equal(actions, published.arrays["broken_decoded"])
    assert (status != ChunkStatus.OK).all()
    assert status[-1] == ChunkStatus.UNKNOWN_ID
    np.testing.assert_array_equal(processor.decode(broken), actions)
    assert capfd.readouterr().out == ""


def test_max_token_is_read_off_the_vocabulary(published: Published) -> None:
    assert published.load().max_token == published.fit().max_token


def test_both_layouts_load(published: Published, tmp_path: Path) -> None:
    """transformers 5 puts the tokenizer of the published class into a folder of its own."""
    shutil.copytree(published.folder / "processor", tmp_path / "five")
    (tmp_path / "five" / "bpe_tokenizer").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / "five" / name).rename(tmp_path / "five" / "bpe_tokenizer" / name)
    processor = FastActionProcessor.from_pretrained(tmp_path / "five")
    assert processor(published.arrays["probe"]) == published.tokens["probe"]


def test_shapes_that_were_not_saved(published: Published, tmp_path: Path) -> None:
    """The published class drops its keyword-only fields: null, or not there at all."""
    for number, drop in enumerate((False, True)):
        folder = tmp_path / str(number)
        shutil.copytree(published.folder / "processor", folder, copy_function=shutil.copyfile)
        config = json.loads((folder / "processor_config.json").read_text())
        for field in ("time_horizon", "action_dim"):
            config[field] = None
            if drop:
                del config[field]
        (folder / "processor_config.json").write_text(json.dumps(config))
        processor = FastActionProcessor.from_pretrained(folder)
        with pytest.raises(ValueError, match="time_horizon= and action_dim="):
            processor.decode(published.tokens["probe"])
        spec = published.tokens["spec"]
        shape = {"time_horizon": spec["horizon"], "action_dim": spec["dim"]}
        for shape_of_this_call in (shape, {}):  # then that of the last call
            decoded = processor.decode(published.tokens["probe"], **shape_of_this_call)
            assert np.abs(decoded - published.arrays["decoded"]).max() < 1e-6


def test_a_saved_copy_equals_the_original(published: Published, tmp_path: Path) -> None:
    processor = published.load()
    processor.save_pretrained(tmp_path)
    again = FastActionProcessor.from_pretrained(tmp_path)
    assert again(published.arrays["probe"]) == published.tokens["probe"]
    ours = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert ours == published.bpe
