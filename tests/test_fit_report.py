"""Signatures and cache entries: what makes two fits one, and which folders count as whole."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vlaprep
import vlaprep.fit
from lerobot_folder import make_rows, write_v3
from vlaprep import dataset, fit_options, fit_report, hub
from vlaprep.errors import TokenizerFormatError

COMMIT = "0123456789" * 4
ARGUMENTS = {"n_samples": 30, "chunk_size": 5, "seed": 7}


@pytest.fixture
def rows() -> Any:
    return make_rows(dict.fromkeys(range(6), (0, 12)), dim=2)


@pytest.fixture
def root(tmp_path: Path, rows: Any) -> Path:
    return write_v3(tmp_path / "data", rows)


@pytest.fixture
def signature(monkeypatch: Any) -> Any:
    """The signature of a fit that is not carried out."""
    monkeypatch.setattr(vlaprep.fit, "compute_once", lambda target, **_: target)

    def signature(root: Path | None, **options: Any) -> str:
        options = {"dataset_root": root, "cache_dir": "cache", "gate": False} | ARGUMENTS | options
        return Path(vlaprep.fit_fast_tokenizer(**options)).name

    return signature


# --------------------------------------------------------------------------------- signatures

CHANGES: list[dict[str, Any]] = [
    {"n_samples": 31},
    {"chunk_size": 6},
    {"seed": 8},
    {"action_key": "other"},
    {"scale": 11},
    {"vocab_size": 1025},
    {"max_token_length": 9_999},
    {"nan": "error"},
    {"episodes": [0, 1, 2]},
    {"exclude_episodes": [0]},
    {"dataset_repo_id": "org/name"},
]
NO_CHANGES: list[dict[str, Any]] = [
    {"scale": 10},
    {"n_samples": np.int32(30)},
    {"cache_dir": "elsewhere"},
    {"wait_timeout_s": 1.0},
    {"num_threads": 1},
    {"trust_remote_code": False},
    {"episodes": [5, 4, 3, 2, 1, 0, 0]},
]


def test_every_input_changes_the_signature(root: Path, rows: Any, signature: Any) -> None:
    rows["other"] = rows["action"]
    root = write_v3(root.with_name("two columns"), rows)
    seen = [signature(root), *(signature(root, **change) for change in CHANGES)]
    assert len(set(seen)) == len(CHANGES) + 1
    assert all(len(s) == 16 and int(s, 16) >= 0 for s in seen)


@pytest.mark.parametrize("change", NO_CHANGES, ids=str)
def test_what_cannot_change_a_byte_is_not_in_the_signature(
    root: Path, signature: Any, change: dict[str, Any]
) -> None:
    assert signature(root, **change) == signature(root)


def test_local_data_are_told_by_their_content(root: Path, rows: Any, signature: Any) -> None:
    moved = shutil.copytree(root, root.with_name("moved"))
    assert signature(moved) == signature(root)
    repacked = write_v3(root.with_name("repacked"), rows, compression="zstd", groups=[5, 40])
    assert signature(repacked) == signature(root)
    rows["action"][:, 1] += 1e-3
    assert signature(write_v3(root.with_name("other"), rows)) != signature(root)


def test_library_versions_and_rules_are_in_the_signature(
    root: Path, signature: Any, monkeypatch: Any
) -> None:
    before = {signature(root)}
    from importlib import metadata

    for change in (
        (metadata, "version", lambda package: f"99.{package}"),
        (fit_options, "FORMAT_VERSION", 99),
        (fit_report, "FORMAT_VERSION", 98),
        (type(fit_options.CONVENTIONS["pi052"]), "rule_version", 99),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(*change)
            now = signature(root)
        assert now not in before
        before.add(now)


def test_a_local_base_is_told_by_its_files(root: Path, tmp_path: Path, signature: Any) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "processor_config.json").write_text("{}")
    seen = [signature(root), signature(root, base_tokenizer_name=str(base))]
    twin = shutil.copytree(base, tmp_path / "twin")
    assert signature(root, base_tokenizer_name=str(twin)) == seen[1]
    (base / "processor_config.json").write_text("{} ")
    seen.append(signature(root, base_tokenizer_name=str(base)))
    seen.append(signature(root, base_tokenizer_name=str(base), trust_remote_code=False))
    assert len(set(seen)) == 4


def test_data_and_bases_on_the_hub_are_told_by_their_commit(
    root: Path, signature: Any, monkeypatch: Any
) -> None:
    asked = []

    def resolve(repo_id: str, revision: str | None = None, *, repo_type: str = "dataset") -> str:
        asked.append((repo_id, revision, repo_type))
        return (revision or COMMIT)[-1] * 40

    monkeypatch.setattr(hub, "resolve_revision", resolve)
    seen = [
        signature(None, dataset_repo_id="org/name"),
        signature(None, dataset_repo_id="org/other"),
        signature(None, dataset_repo_id="org/name", revision="v3.1"),
        signature(None, dataset_repo_id="org/name", episodes=[1, 2]),
        signature(None, dataset_repo_id="org/name", exclude_episodes=[1]),
        signature(root, base_tokenizer_name="org/fast"),
    ]
    assert len(set(seen)) == len(seen)
    assert asked[2] == ("org/name", "v3.1", "dataset")
    assert asked[-1] == ("org/fast", None, "model")
    assert signature(None, dataset_repo_id="org/name", episodes=[2, 1, 2]) == seen[3]
    same = {"dataset_repo_id": "org/name", "episodes": [3, 2, 1], "exclude_episodes": [3]}
    assert signature(None, **same) == seen[3]


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.floats(-9, 9)))
def test_the_order_of_inputs_does_not_matter(inputs: dict[str, Any]) -> None:
    turned = dict(reversed(inputs.items()))
    assert fit_report.signature(turned) == fit_report.signature(inputs)
    assert fit_report.signature({**inputs, "one more": 1}) != fit_report.signature(inputs)


def test_digests_tell_dtype_shape_and_values() -> None:
    arrays = [
        np.arange(6),
        np.arange(6).reshape(2, 3),
        np.arange(6).astype(np.int32),
        np.arange(1, 7),
    ]
    assert len({fit_report.digest_arrays(array) for array in arrays}) == len(arrays)
    swapped = arrays[0].astype(arrays[0].dtype.newbyteorder(">"))
    assert fit_report.digest_arrays(swapped) == fit_report.digest_arrays(arrays[0])


# ------------------------------------------------------------------------------ cache entries


@pytest.fixture
def light_build(monkeypatch: Any) -> list[Path]:
    """Builds that write two small files in place of a tokenizer; the folders they were given."""
    built = []

    def build(folder: Path, sample: Any, base: Any, *, inputs: Any, **_: Any) -> None:
        built.append(folder)
        (folder / "tokenizer.json").write_text("{}")
        (folder / "deep").mkdir()
        (folder / "deep" / "code.py").write_text("")
        fit_report.write_report(folder, inputs, {"draws": {}, "validation": None})

    monkeypatch.setattr(vlaprep.fit, "build_tokenizer", build)
    return built


def fit(root: Path | None, cache: Path, **options: Any) -> Path:
    options = {"dataset_root": root, "cache_dir": cache, "gate": False} | ARGUMENTS | options
    return Path(vlaprep.fit_fast_tokenizer(**options))


def edit_report(folder: Path, **changes: Any) -> None:
    path = folder / fit_report.REPORT_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def in_place_of(path: Path) -> None:
    path.unlink()
    path.mkdir()


BREAKAGES: dict[str, Any] = {
    "no report": lambda f: (f / "fit_report.json").unlink(),
    "empty report": lambda f: (f / "fit_report.json").write_text(""),
    "half a report": lambda f: (f / "fit_report.json").write_bytes(
        (f / "fit_report.json").read_bytes()[:60]
    ),
    "report of bytes": lambda f: (f / "fit_report.json").write_bytes(b"\xff\xfe\x00"),
    "report nested beyond reason": lambda f: (f / "fit_report.json").write_text("[" * 100_000),
    "report is a folder": lambda f: in_place_of(f / "fit_report.json"),
    "a file is a folder": lambda f: in_place_of(f / "tokenizer.json"),
    "report is a list": lambda f: (f / "fit_report.json").write_text("[]"),
    "other signature": lambda f: edit_report(f, signature="0" * 16),
    "newer report": lambda f: edit_report(f, format_version=99),
    "no list of files": lambda f: edit_report(f, files={}),
    "a file absent": lambda f: (f / "deep" / "code.py").unlink(),
    "a file cut": lambda f: (f / "tokenizer.json").write_text("{"),
    "a file of the same length": lambda f: (f / "tokenizer.json").write_text("[]"),
    "only an empty sentinel": lambda f: [
        shutil.rmtree(f),
        f.mkdir(),
        (f / "processor_config.json").touch(),
    ],
    "a file in its place": lambda f: [shutil.rmtree(f), f.write_text("")],
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_entry_is_fitted_again_with_a_warning(
    root: Path,
    tmp_path: Path,
    light_build: list[Path],
    caplog: pytest.LogCaptureFixture,
    breakage: str,
) -> None:
    folder = fit(root, tmp_path / "cache")
    whole = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert fit(root, tmp_path / "cache") == folder
    assert len(light_build) == 1
    BREAKAGES[breakage](folder)
    caplog.clear()
    assert fit(root, tmp_path / "cache") == folder
    assert len(light_build) == 2
    told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(told) == 1
    assert str(folder) in told[0]
    assert {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == whole
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [folder.name]


def test_files_that_others_add_do_no_harm(
    root: Path, tmp_path: Path, light_build: list[Path]
) -> None:
    folder = fit(root, tmp_path / "cache")
    (folder / "__pycache__").mkdir()
    (folder / "README.md").touch()
    (folder / ".DS_Store").touch()
    fit(root, tmp_path / "cache")
    assert len(light_build) == 1


def test_a_hit_of_hub_data_needs_no_data(
    root: Path, tmp_path: Path, light_build: list[Path], monkeypatch: Any
) -> None:
    opened = []
    real = dataset.open_dataset

    def open_dataset(place: Any, **options: Any) -> Any:
        opened.append((place, options["revision"]))
        return real(root, episodes=options["episodes"])

    monkeypatch.setattr(hub, "resolve_revision", lambda *_, **__: COMMIT)
    monkeypatch.setattr(dataset, "open_dataset", open_dataset)
    folder = fit(None, tmp_path / "cache", dataset_repo_id="org/name")
    assert opened == [("org/name", COMMIT)]
    assert fit_report.read_report(folder)["inputs"]["dataset"]["commit"] == COMMIT
    assert fit(None, tmp_path / "cache", dataset_repo_id="org/name") == folder
    assert opened == [("org/name", COMMIT)]


def test_reports_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    with pytest.raises(TokenizerFormatError, match=r"no fit_report\.json in"):
        fit_report.read_report(tmp_path)
    (tmp_path / fit_report.REPORT_NAME).write_text('{"format_version": 2}')
    with pytest.raises(TokenizerFormatError, match="newer"):
        fit_report.read_report(tmp_path)


def test_what_lies_beside_the_files_is_of_no_matter(
    root: Path, tmp_path: Path, light_build: list[Path]
) -> None:
    folder = fit(root, tmp_path / "cache")
    (folder / "stray").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    assert fit(root, tmp_path / "cache") == folder
    assert len(light_build) == 1
