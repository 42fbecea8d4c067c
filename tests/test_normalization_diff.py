"""What sets a normalisation apart from another, from statistics, or from a policy's config."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from enum import Enum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from transformers import AutoProcessor

from action_chunks import fitted, smooth
from vlaprep import FastActionProcessor, fit_fast_tokenizer
from vlaprep.errors import DatasetNotFoundError, TokenizerFormatError
from vlaprep.normalization import Normalization

if TYPE_CHECKING:
    from pathlib import Path


def labelled(**changes: Any) -> Normalization:
    fields: dict[str, Any] = {
        "convention": "lerobot",
        "mode": "MIN_MAX",
        "lo": [0.1, -1.0],
        "hi": [2.0, 1.0],
        "dim_names": ("x", "gripper"),
        "relative": (True, False),
    }
    return Normalization(**{**fields, **changes})


class Mode(Enum):
    MIN_MAX = "MIN_MAX"
    QUANTILES = "QUANTILES"


class Kind(str, Enum):
    ACTION = "ACTION"
    STATE = "STATE"


@pytest.mark.parametrize(
    ("other", "sentences"),
    [
        (labelled(), []),
        (labelled().to_dict(), []),
        (labelled(dim_names=None), []),
        (labelled(convention="openpi"), ["convention is 'lerobot' here but 'openpi' there"]),
        (labelled(mode="QUANTILES"), ["mode is 'MIN_MAX' here but 'QUANTILES' there"]),
        (labelled(hi=[2.0, 1.5]), ["dim 1 (gripper) has max 1.0 here but 1.5 there"]),
        (
            labelled(lo=[0.2, -1.0], hi=[3.0, 1.0]),
            ["dim 0 (x) has min 0.1 here but 0.2 there, max 2.0 here but 3.0 there"],
        ),
        (labelled(dim_names=["x", "y"]), ["dim 1 is 'gripper' here but 'y' there"]),
        (
            labelled(relative=None),
            ["dims relative to the state are dim 0 (x) here but none there"],
        ),
        (
            Normalization("lerobot", "MIN_MAX", [0], [1]),
            ["actions have 2 dims here but 1 there"],
        ),
        ({"action": {"min": [0.1, -1.0], "max": [2.0, 1.0]}}, []),
        ({"min": [0.1, -1], "max": [2, 7]}, ["dim 1 (gripper) has max 1.0 here but 7.0 there"]),
        ({"min": [0.1], "max": [2.0]}, ["actions have 2 dims here but 1 there"]),
        ({"normalization_mapping": {"ACTION": "MIN_MAX", "STATE": "MEAN_STD"}}, []),
        (
            {"normalization_mapping": {"STATE": "MIN_MAX"}},
            ["mode is 'MIN_MAX' here but 'IDENTITY' there"],
        ),
        (
            SimpleNamespace(
                normalization_mapping={"ACTION": Mode.QUANTILES},
                output_features={"action": SimpleNamespace(shape=(7,))},
                use_relative_actions=False,
            ),
            [
                "mode is 'MIN_MAX' here but 'QUANTILES' there",
                "actions have 2 dims here but 7 there",
                "actions are relative to the state here but absolute there",
            ],
        ),
        (
            SimpleNamespace(
                norm_map={Kind.ACTION: Mode.MIN_MAX, Kind.STATE: Mode.QUANTILES},
                features={"action": {"type": "ACTION", "shape": [2]}},
                stats={"action": {"min": np.float32([0.1, -1]), "max": np.float32([2, 9])}},
            ),
            ["dim 1 (gripper) has max 1.0 here but 9.0 there"],
        ),
    ],
)
def test_differences_are_told_in_sentences(other: Any, sentences: list[str]) -> None:
    assert labelled().differences(other) == sentences


def test_differences_of_what_is_nothing_of_the_kind(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not int"):
        labelled().differences(3)
    with pytest.raises(DatasetNotFoundError):
        labelled().differences(tmp_path)
    with pytest.raises(TokenizerFormatError):
        labelled().differences({"convention": "lerobot", "mode": "MIN_MAX"})


def test_float32_statistics_are_compared_as_such() -> None:
    coarse = labelled(lo=[0.1, 0.3])
    fine = labelled(convention="openpi", lo=[0.1, 0.3])
    assert coarse.lo[0] != fine.lo[0]
    assert coarse.differences(fine) == ["convention is 'lerobot' here but 'openpi' there"]
    assert fine.differences(coarse) == ["convention is 'openpi' here but 'lerobot' there"]
    assert coarse.differences({"min": [0.1, 0.3], "max": [2.0, 1.0]}) == []


# ------------------------------------------------------------------------------ the processor


def test_a_processor_tells_differences_after_saving(tmp_path: Path) -> None:
    processor = fitted()
    norm = Normalization.fit(smooth(20), convention="openpi", mode="QUANTILES")
    processor.normalization = norm.to_dict()
    processor.save_pretrained(tmp_path)
    stats = {"action": {"q01": norm.lo.tolist(), "q99": (norm.hi + np.eye(3)[2]).tolist()}}
    automatic = AutoProcessor.from_pretrained(tmp_path, trust_remote_code=True)
    for loaded in (processor, FastActionProcessor.from_pretrained(tmp_path), automatic):
        assert loaded.normalization == norm.to_dict()
        assert loaded.check(norm) == []
        (told,) = loaded.check(stats)
        assert told.startswith("dim 2 has q99 ")
        assert loaded.check({"normalization_mapping": {"ACTION": "MIN_MAX"}}) == [
            "mode is 'QUANTILES' here but 'MIN_MAX' there"
        ]
    again = pickle.loads(pickle.dumps(processor))
    assert again.check(norm) == []


def test_a_processor_without_a_normalisation_says_so(golden: Path, tmp_path: Path) -> None:
    with pytest.raises(TokenizerFormatError, match="no normalization to check"):
        fitted().check({})
    fitted().save_pretrained(tmp_path)
    path = tmp_path / "processor_config.json"
    config = json.loads(path.read_text())
    assert config.pop("normalization") is None
    path.write_text(json.dumps(config))  # as a folder of before there was such a field
    assert FastActionProcessor.from_pretrained(tmp_path).normalization is None
    path.write_text(json.dumps(config | {"normalization": "pi052"}))
    with pytest.raises(TokenizerFormatError, match=r"type of normalization.*'str'"):
        FastActionProcessor.from_pretrained(tmp_path)


def test_a_check_needs_vlaprep(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = fitted()
    processor.normalization = labelled().to_dict()
    monkeypatch.setitem(sys.modules, "vlaprep.normalization", None)
    with pytest.raises(ImportError, match="pip install vlaprep"):
        processor.check(labelled())


def test_a_fit_keeps_its_normalisation_in_the_processor(root: Path, tmp_path: Path) -> None:
    folder = fit_fast_tokenizer(
        dataset_root=root, cache_dir=tmp_path / "cache", n_samples=40, chunk_size=5
    )
    processor = FastActionProcessor.from_pretrained(folder)
    assert processor.check(Normalization.from_pretrained(folder)) == []
    shutil.rmtree(folder)
    assert processor.check({"normalization_mapping": {"ACTION": "MEAN_STD"}}) == [
        "mode is 'QUANTILES' here but 'MEAN_STD' there"
    ]
