"""Bases of a fit: what of a foreign processor class is used, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vlaprep
from hub_server import Repo, folder_files, serve
from lerobot_folder import make_rows, write_v3
from vlaprep import fit_base
from vlaprep.errors import TokenizerFormatError
from vlaprep.fit_report import defect, read_report

CHUNKS = np.zeros((3, 4, 2), np.float32)


def foreign(monkeypatch: Any, folder: Path, processor: Any) -> fit_base.Base:
    """A base in a folder whose loading gives `processor`."""
    base = fit_base.open_base(str(folder), trust_remote_code=True)
    monkeypatch.setattr(type(base), "load", lambda self, folder: processor)
    return base


class PlainFit:
    """A class whose ``fit`` takes what the published one takes."""

    def fit(self, action_data: Any, scale: float = 10, vocab_size: int = 1024) -> Any:
        return action_data, scale, vocab_size


def test_a_base_gets_a_list_of_chunks_and_nothing_else(monkeypatch: Any, tmp_path: Path) -> None:
    base = foreign(monkeypatch, tmp_path, PlainFit())
    data, scale, vocab_size = base.fit([CHUNKS[:2], CHUNKS[2:]], fit_base.FIT_DEFAULTS)
    assert type(data) is list
    assert [chunk.shape for chunk in data] == [(4, 2)] * 3
    assert type(scale) is int, "the default of the class itself"
    assert vocab_size == 1024


def test_settings_that_differ_reach_a_base_that_takes_them(
    monkeypatch: Any, tmp_path: Path
) -> None:
    base = foreign(monkeypatch, tmp_path, PlainFit())
    assert base.fit(CHUNKS, {**fit_base.FIT_DEFAULTS, "scale": 25.0})[1] == 25.0
    with pytest.raises(ValueError, match="does not take max_token_length"):
        base.fit(CHUNKS, {**fit_base.FIT_DEFAULTS, "max_token_length": 5})


def test_a_base_without_fit_is_an_import_error(monkeypatch: Any, tmp_path: Path) -> None:
    base = foreign(monkeypatch, tmp_path, object())
    with pytest.raises(ImportError, match=r"no \.fit .*update"):
        base.fit([CHUNKS[:2], CHUNKS[2:]], fit_base.FIT_DEFAULTS)


def test_a_folder_that_is_no_processor(tmp_path: Path) -> None:
    base = fit_base.open_base(str(tmp_path), trust_remote_code=True)
    with pytest.raises(TokenizerFormatError) as caught:
        base.fit([CHUNKS[:2], CHUNKS[2:]], fit_base.FIT_DEFAULTS)
    for word in (str(tmp_path), "cannot load", "4.57, 5.0, 5.5 and 5.24", "built-in"):
        assert word in str(caught.value)


CHILD = """
import json, sys
from pathlib import Path
import vlaprep
root, cache, base = sys.argv[1:4]
options = json.loads(sys.argv[4])
try:
    print(vlaprep.fit_fast_tokenizer(
        dataset_root=root, cache_dir=cache, base_tokenizer_name=base, n_samples=30, chunk_size=6,
        **options,
    ))
except Exception as error:
    print(type(error).__name__, error)
"""


def fit_in_child(root: Path, cache: Path, base: Path, **options: Any) -> str:
    """A fit through AutoProcessor, offline, with a module cache of its own."""
    home = cache.parent / "hf"
    offline = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(home / "m")}
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(root), str(cache), str(base), json.dumps(options)],
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_v3(tmp_path / "data", make_rows({e: (0, 10 + e) for e in range(6)}, dim=3))


def test_a_saved_folder_is_a_base_by_auto_processor(root: Path, tmp_path: Path) -> None:
    arguments = {"dataset_root": root, "n_samples": 30, "chunk_size": 6}
    base = Path(vlaprep.fit_fast_tokenizer(cache_dir=tmp_path / "a", vocab_size=300, **arguments))
    want = Path(vlaprep.fit_fast_tokenizer(cache_dir=tmp_path / "a", **arguments))
    got = Path(fit_in_child(root, tmp_path / "b", base))
    assert defect(got, got.name) is None
    # Only the class survives: its vocabulary of 300 is not inherited.
    assert read_report(got)["tokens"] == read_report(want)["tokens"]
    for name in read_report(want)["files"]:
        assert (got / name).read_bytes() == (want / name).read_bytes(), name


def test_where_a_base_cannot_be_loaded_its_class_will_do(root: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    vlaprep.FastActionProcessor.fit(np.ones((4, 6, 3))).save_pretrained(base)
    (base / "tokenizer.json").unlink()
    folder = Path(fit_in_child(root, tmp_path / "cache", base))
    assert defect(folder, folder.name) is None
    assert (folder / "processing_action_tokenizer.py").is_file()


def test_code_that_is_not_trusted_is_not_run(root: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    vlaprep.FastActionProcessor.fit(np.ones((4, 6, 3))).save_pretrained(base)
    (base / "processing_action_tokenizer.py").write_text("raise SystemExit('it was run')")
    told = fit_in_child(root, tmp_path / "cache", base, trust_remote_code=False)
    assert "it was run" not in told
    assert told.startswith("TokenizerFormatError transformers")
    assert "trust_remote_code=False" in told
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


HUB_CHILD = """
import json, sys, vlaprep
print(vlaprep.fit_fast_tokenizer(
    dataset_repo_id="org/data", base_tokenizer_name="org/fast", cache_dir=sys.argv[1],
    n_samples=30, chunk_size=6,
))
"""


def test_data_and_base_from_the_hub(root: Path, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    vlaprep.FastActionProcessor.fit(np.ones((4, 6, 3))).save_pretrained(tmp_path / "base")
    files = folder_files(root) | {"videos/one.mp4": b"never asked for"}
    base_files = folder_files(tmp_path / "base") | {"model.safetensors": b"never asked for"}
    repos = {"org/data": Repo(files), "org/fast": Repo(base_files, kind="models")}
    with serve(repos) as hub:
        ran = hub.run(HUB_CHILD, tmp_path / "hf", args=(tmp_path / "cache",))
        assert ran.returncode == 0, ran.stderr
        folder = Path(ran.stdout.strip())
        assert defect(folder, folder.name) is None
        inputs = read_report(folder)["inputs"]
        assert inputs["dataset"]["commit"] == repos["org/data"].main
        assert inputs["base"]["commit"] == repos["org/fast"].main
        assert not [path for path in hub.paths() if "videos" in path or "safetensors" in path]

        hub.forget()
        again = hub.run(HUB_CHILD, tmp_path / "another hf", args=(tmp_path / "cache",))
        assert again.stdout == ran.stdout
        # A hit: what main points to is asked once a repository, no file is.
        assert [path.split("/")[-2] for path in hub.paths()] == ["revision", "revision"]
