"""The processor on disk and in other processes: folders, the file alone, workers."""

from __future__ import annotations

import copy
import doctest
import importlib.util
import inspect
import json
import multiprocessing
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast

from action_chunks import fitted, smooth
from vlaprep import errors, processing_action_tokenizer
from vlaprep.processing_action_tokenizer import FastActionProcessor


@pytest.fixture
def processor() -> FastActionProcessor:
    """Fitted on `smooth`; one's own, for it remembers its last call."""
    return fitted()


# ------------------------------------------------------------------------------ save and load


def test_the_same_fit_saves_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        processor = FastActionProcessor.fit(smooth(100))
        processor.bpe_tokenizer(["abc"], padding=False, truncation=True, max_length=5)
        written = processor.save_pretrained(tmp_path / name)
    FastActionProcessor.from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "c")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted(Path(path).name for path in written)
    assert written[-1].endswith("processor_config.json")
    for name in names:
        first = (tmp_path / "a" / name).read_bytes()
        assert first == (tmp_path / "b" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()
    source = Path(processing_action_tokenizer.__file__)
    assert (tmp_path / "a" / source.name).read_bytes() == source.read_bytes()
    with pytest.raises(ValueError, match="push_to_hub"):
        processor.save_pretrained(tmp_path / "d", push_to_hub=True)


def test_fields_and_options_come_back(tmp_path: Path, processor: FastActionProcessor) -> None:
    processor.save_pretrained(tmp_path / "sub")
    again = FastActionProcessor.from_pretrained(tmp_path, subfolder="sub", on_range="error")
    for field in ("scale", "vocab_size", "min_token", "max_token", "action_dim", "time_horizon"):
        assert getattr(again, field) == getattr(processor, field)
    assert again.on_range == "error"
    assert FastActionProcessor.from_pretrained(tmp_path / "sub").on_range == "clamp"
    other = FastActionProcessor.from_pretrained(tmp_path / "sub", time_horizon=20)
    assert other.time_horizon == other.called_time_horizon == 20
    with pytest.raises(ValueError, match=r"^on_range must be one of"):
        FastActionProcessor.from_pretrained(tmp_path / "sub", on_range="wrap")


def test_numbers_of_numpy_are_saved_as_numbers(tmp_path: Path) -> None:
    horizon, dim = np.array([10, 3])
    processor = FastActionProcessor.fit(
        smooth(20), np.float32(10), np.int64(300), time_horizon=horizon, action_dim=dim
    )
    for i, one in enumerate(
        (processor, FastActionProcessor(processor.tokenizer, 10, 300, np.int32(-40), np.int32(7)))
    ):
        one.save_pretrained(tmp_path / str(i))
        again = FastActionProcessor.from_pretrained(tmp_path / str(i))
        assert (again.scale, again.max_token) == (one.scale, one.max_token)


def with_config(folder: Path, **changes: Any) -> None:
    path = folder / "processor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def with_text(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)


BROKEN = {
    "no config": (lambda f: (f / "processor_config.json").unlink(), "processor_config.json"),
    "empty config": (lambda f: with_text(f, "processor_config.json", ""), "processor_config.json"),
    "a list": (
        lambda f: with_text(f, "processor_config.json", "[]"),
        "no object in processor_config.json",
    ),
    "torn": (lambda f: with_text(f, "processor_config.json", '{"sc'), "processor_config.json"),
    "no text": (lambda f: (f / "tokenizer.json").write_bytes(b"\xff\xfe"), "tokenizer.json"),
    "no min_token": (lambda f: with_config(f, min_token=None), "min_token is None"),
    "text": (lambda f: with_config(f, action_dim="7"), "action_dim is '7'"),
    "bool": (lambda f: with_config(f, vocab_size=True), "vocab_size is True"),
    "scale": (lambda f: with_config(f, scale=-1), "scale is -1"),
    "range": (lambda f: with_config(f, max_token=10**6), "max_token is 1000000"),
    "shape": (lambda f: with_config(f, time_horizon=0), "time_horizon"),
    "newer": (lambda f: with_config(f, format_version=99), "format_version 99"),
    "no bpe": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json"),
    "torn bpe": (lambda f: with_text(f, "tokenizer.json", '{"model":'), "tokenizer.json"),
    "odd bpe": (lambda f: with_text(f, "tokenizer.json", '{"model": 3}'), "tokenizer.json"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_named(
    name: str, tmp_path: Path, processor: FastActionProcessor
) -> None:
    folder = tmp_path / "saved"
    processor.save_pretrained(folder)
    spoil, text = BROKEN[name]
    spoil(folder)
    with pytest.raises(errors.TokenizerFormatError, match=text) as caught:
        FastActionProcessor.from_pretrained(folder)
    assert str(folder) in str(caught.value)


def test_other_tokenizers_are_refused(tmp_path: Path, processor: FastActionProcessor) -> None:
    processor.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    bpe = json.loads(path.read_text(encoding="utf-8"))
    plain = bpe | {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}
    missing = bpe | {"model": {**bpe["model"], "merges": [["no", "such"]]}}
    words = bpe | {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}
    for model, text in (
        (plain, "no FAST"),
        (missing, "cannot load .*tokenizer.json"),
        (words, "no BPE of FAST: .*WordLevel"),
    ):
        path.write_text(json.dumps(model), encoding="utf-8")
        with pytest.raises(errors.TokenizerFormatError, match=text):
            FastActionProcessor.from_pretrained(tmp_path)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (tmp_path / "no", str(tmp_path / "no"), "./no", "a/b/c", "~/no", file):
        with pytest.raises(errors.TokenizerFormatError, match="neither a folder nor a Hub id"):
            FastActionProcessor.from_pretrained(path)


def test_a_hub_id_goes_through_snapshot_download(
    tmp_path: Path, processor: FastActionProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor.save_pretrained(tmp_path)
    asked: list[Any] = []

    def download(repo_id: str, **options: Any) -> str:
        asked.append((repo_id, options.pop("allow_patterns") is not None, options))
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    there = {"revision": "abc", "token": None, "x": 1}
    elsewhere = FastActionProcessor.from_pretrained("org/fast", cache_dir="c", **there)
    # Otherwise vlaprep's own download is used where there is one: tests/test_publish_load.py.
    monkeypatch.setattr(processing_action_tokenizer, "download_tokenizer", None)
    alone = FastActionProcessor.from_pretrained("org/fast", **there)
    assert alone(smooth(3)) == elsewhere(smooth(3)) == processor(smooth(3))
    wanted = {"revision": "abc"}
    assert asked == [("org/fast", True, wanted | {"cache_dir": "c"}), ("org/fast", True, wanted)]


def test_which_ranges_can_be_read_off_a_vocabulary() -> None:
    """Folders of the published class do not say max_token; the docstring lists the vague ones."""
    character_of = {byte: c for c, byte in processing_action_tokenizer._BYTE_OF.items()}
    vague = []
    for span in range(400):  # a fit that saw every symbol, which leaves the most room
        raw = [chr(code) for code in range(span + 1)]
        seen = {character_of[byte] for character in raw for byte in character.encode()}
        vocabulary = {character: i for i, character in enumerate(sorted(seen.union(raw)))}
        if processing_action_tokenizer._alphabet_size(vocabulary) != span + 1:
            vague.append(span)
    assert vague == [193, 194, *range(255, 323)]


# ------------------------------------------------------------------------------ the one file


def test_the_file_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy without vlaprep has error classes of its own that callers catch in the same way."""
    source = Path(processing_action_tokenizer.__file__)
    copied = Path(shutil.copy(source, tmp_path / "alone.py"))
    monkeypatch.setitem(sys.modules, "vlaprep", None)
    monkeypatch.setitem(sys.modules, "vlaprep.errors", None)
    spec = importlib.util.spec_from_file_location("alone", copied)
    assert spec is not None
    assert spec.loader is not None
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    for name in ("NoChunksError", "TokenizerFormatError", "VocabularyError"):
        ours = getattr(errors, name)
        builtins = {base for base in ours.__mro__ if base.__module__ == "builtins"}
        own = getattr(alone, name)
        assert own is not ours
        assert builtins == {base for base in own.__mro__ if base.__module__ == "builtins"}
    with pytest.raises(AssertionError, match="range"):
        alone.FastActionProcessor.fit(smooth(4) * 1e3)


def test_the_recipe_that_both_generations_of_transformers_accept() -> None:
    """Spec of the class: what transformers 4.57 and 5 read off its signature and name."""
    parameters = inspect.signature(FastActionProcessor.__init__).parameters
    assert next(iter(parameters)) == "self"
    assert list(parameters)[1:5] == ["tokenizer", "scale", "vocab_size", "min_token"]
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    assert FastActionProcessor.attributes == ["tokenizer"]
    assert FastActionProcessor.tokenizer_class == "AutoTokenizer"
    assert FastActionProcessor._auto_class == "AutoProcessor"
    assert "Tokenizer" not in f"{FastActionProcessor.__module__}.{FastActionProcessor.__name__}"
    with pytest.raises(AttributeError):
        FastActionProcessor.fit(smooth(4)).bpe_tokenizer = None


def test_a_tokenizer_of_ones_own(processor: FastActionProcessor) -> None:
    bpe = tokenizers.Tokenizer.from_str(processor.bpe_tokenizer.backend_tokenizer.to_str())
    own = FastActionProcessor(
        PreTrainedTokenizerFast(tokenizer_object=bpe), 10, 512, processor.min_token
    )
    assert own.max_token == processor.max_token
    assert own(smooth(3)) == processor(smooth(3))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_give_the_same_ids(method: str, processor: FastActionProcessor) -> None:
    x = smooth(8)
    ids = processor(x)  # used before the fork (R02)
    with multiprocessing.get_context(method).Pool(2) as pool:
        work = pool.map_async(processor, [x] * 4)
        assert work.get(timeout=60) == [ids] * 4


def test_copies_behave_alike(processor: FastActionProcessor) -> None:
    x = smooth(8)
    for twin in (pickle.loads(pickle.dumps(processor)), copy.deepcopy(processor)):
        assert twin(x) == processor(x)
        np.testing.assert_array_equal(twin.decode(twin(x)), processor.decode(processor(x)))


def test_examples_run() -> None:
    result = doctest.testmod(processing_action_tokenizer)
    assert result.attempted > 10
    assert result.failed == 0


def test_importing_it_loads_no_scipy_or_torch() -> None:
    code = (
        "import sys, vlaprep.processing_action_tokenizer; "
        "sys.exit([m for m in ('scipy', 'torch', 'pyarrow') if m in sys.modules] or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
