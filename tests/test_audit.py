"""Which windows a tokenizer cannot encode: against brute force, and as the command tells it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reference
import vlaprep
from command_line import run, run_json
from lerobot_folder import make_rows, write_v2, write_v3
from published_fast import PublishedFast
from test_action_space import robot_rows, write_robot
from test_cover import HORIZON, SMALL, exactly, fit, rare_rows
from vlaprep.audit import encodable_symbols
from vlaprep.errors import (
    DatasetFormatError,
    EpisodeSelectionError,
    NoChunksError,
    TokenizerFormatError,
)
from vlaprep.normalization import Normalization

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=[write_v2, write_v3], ids=["v2", "v3"])
def root(request: Any, tmp_path: Path) -> Path:
    return request.param(tmp_path / "data", rare_rows())


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    """A tokenizer of the first episodes alone."""
    return fit(root, tmp_path / "cache", episodes=[0, 1])


def brute(root: Path, codec: vlaprep.ActionCodec, norm: Normalization) -> list[tuple[int, int]]:
    """Windows that do not come back exactly."""
    dataset, bad = vlaprep.open_dataset(root), []
    for episode in dataset.episodes.episode_index.tolist():
        windows = reference.windows(dataset.read("action", [episode])["action"], HORIZON)
        starts = np.flatnonzero(np.isfinite(windows).all(axis=(1, 2)))
        exact = exactly(codec, norm.normalize(windows[starts]))
        bad += [(episode, start) for start in starts[~exact].tolist()]
    return bad


def listed(audit: vlaprep.Audit) -> list[tuple[int, int]]:
    return [(e, start) for e, first, end in audit.runs.tolist() for start in range(first, end)]


def test_it_finds_the_windows_that_do_not_come_back(root: Path, folder: Path) -> None:
    codec = vlaprep.ActionCodec.from_pretrained(folder)
    want = brute(root, codec, Normalization.from_pretrained(folder))
    assert want
    for threads in (1, 2, 7):
        audit = vlaprep.audit_tokenizer(folder, root, num_threads=threads)
        assert listed(audit) == want
    assert (audit.unencodable, audit.windows_skipped, audit.ok) == (len(want), HORIZON, False)
    assert audit.windows == sum(30 + 5 * e - HORIZON + 1 for e in range(6)) - HORIZON
    assert audit.share == len(want) / audit.windows
    assert (audit.normalization, audit.chunk_size, audit.action_dim) == ("stored", HORIZON, 3)
    assert [e.episode_index for e in audit.by_episode] == sorted({e for e, _ in want})
    assert sum(e.unencodable for e in audit.by_episode) == len(want)
    for episode in audit.by_episode:
        starts = [start for e, start in want if e == episode.episode_index]
        assert (episode.first_start, episode.unencodable) == (starts[0], len(starts))
        assert episode.windows == 30 + 5 * episode.episode_index - HORIZON + 1
    assert set(audit.missing.values()) <= set(want)
    assert json.loads(json.dumps(audit.to_dict()))["share"] == audit.share


def test_a_tokenizer_that_covers_all_is_fine(root: Path, tmp_path: Path) -> None:
    folder = fit(root, tmp_path / "cache", coverage="all")
    audit = vlaprep.audit_tokenizer(folder, root)
    assert (audit.ok, audit.share, audit.by_episode, audit.missing) == (True, 0.0, (), {})


def test_a_published_folder_is_read_for_what_its_vocabulary_spells(
    root: Path, folder: Path, tmp_path: Path
) -> None:
    norm = Normalization.from_pretrained(folder)
    rows = vlaprep.open_dataset(root).read("action", [0])["action"]
    chunks = norm.normalize(reference.windows(rows, HORIZON)).astype(np.float64)
    published = tmp_path / "published"
    PublishedFast.fit(list(chunks), 20.0).save_pretrained(str(published))
    codec = vlaprep.ActionCodec.from_pretrained(published, on_range="published")
    want = brute(root, codec, norm)
    assert want
    with pytest.raises(ValueError, match="time horizon: pass chunk_size="):
        vlaprep.audit_tokenizer(published, root)
    audit = vlaprep.audit_tokenizer(published, root, chunk_size=HORIZON, normalization=norm)
    assert listed(audit) == want
    assert audit.normalization == "given"
    # A tokenizer that the native codec does not take is judged alike.
    text = (published / "bpe_tokenizer" / "tokenizer.json").read_text()
    other = json.loads(text)
    other["model"]["dropout"] = 0.0
    other["model"]["unk_token"] = "!"
    slow = tmp_path / "slow"
    shutil.copytree(published, slow)
    (slow / "bpe_tokenizer" / "tokenizer.json").write_text(json.dumps(other))
    (codec, known), (_, fast) = encodable_symbols(slow), encodable_symbols(published)
    assert codec.scale == 20.0
    assert known.first == fast.first
    assert known.known.tolist() == fast.known.tolist()
    # The package raises where its unknown token is none of the vocabulary.
    other["model"]["unk_token"] = "no such entry"
    (slow / "bpe_tokenizer" / "tokenizer.json").write_text(json.dumps(other))
    codec, known = encodable_symbols(slow)
    assert known.known.tolist() == fast.known.tolist()
    far = np.full((1, HORIZON, 3), 20.0)
    with pytest.raises(TokenizerFormatError, match="cannot encode chunk 0: Unk token"):
        replace(codec, on_range="published").encode_batch(far)


def test_normalisation_is_stored_or_sampled_or_none(root: Path, folder: Path) -> None:
    options: Any = {"n_samples": 12, "seed": 7, "episodes": [0, 1]}
    stored = vlaprep.audit_tokenizer(folder, root)
    sampled = vlaprep.audit_tokenizer(folder, root, normalization="sample", **options)
    assert (stored.normalization, sampled.normalization) == ("stored", "sample")
    of_two = vlaprep.audit_tokenizer(folder, root, episodes=[0, 1])
    assert sampled.runs.tolist() == of_two.runs.tolist(), "the fit drew the same"
    (folder / "fit_report.json").unlink()  # as in a folder that save_pretrained wrote
    assert vlaprep.audit_tokenizer(folder, root, **options) == of_two, "the processor knows it too"
    path = folder / "processor_config.json"
    config = json.loads(path.read_text())
    for bad in ([], {"convention": "pi052"}, {**config["normalization"], "lo": "x"}):
        path.write_text(json.dumps({**config, "normalization": bad}))
        with pytest.raises(TokenizerFormatError, match=r"cannot read .*processor_config\.json: "):
            vlaprep.audit_tokenizer(folder, root)
    path.write_text(json.dumps({**config, "normalization": None}))
    again = vlaprep.audit_tokenizer(folder, root, **options)
    assert again == sampled
    with pytest.raises(TokenizerFormatError, match=r"no normalization is stored in .*='sample'"):
        vlaprep.audit_tokenizer(folder, root, normalization="stored")
    raw = vlaprep.audit_tokenizer(folder, root, normalization="none")
    assert raw.unencodable > 0


def test_selections(root: Path, folder: Path) -> None:
    one = vlaprep.audit_tokenizer(folder, root, episodes=[5, 0], exclude_episodes=[5])
    assert (one.episodes, one.windows) == (1, 30 - HORIZON + 1)
    assert one.episodes_too_short == 0
    with pytest.raises(EpisodeSelectionError):
        vlaprep.audit_tokenizer(folder, root, episodes=[77])


def test_what_makes_no_sense_is_refused(root: Path, folder: Path, tmp_path: Path) -> None:
    refuse: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1"),
        ({"chunk_size": 56}, NoChunksError, "the longest of 6 episodes has 55 frames"),
        ({"normalization": "z-score"}, ValueError, "normalization must be one of"),
        ({"action_key": "speed"}, ValueError, "no action column 'speed'"),
    ]
    for options, kind, message in refuse:
        with pytest.raises(kind, match=message):
            vlaprep.audit_tokenizer(folder, root, **options)
    with pytest.raises(TokenizerFormatError):
        vlaprep.audit_tokenizer(tmp_path / "nowhere", root)
    narrow = write_v3(tmp_path / "narrow", make_rows({0: (0, 30)}, dim=2))
    with pytest.raises(ValueError, match=r"has 2 dims, but tokenizer .* fitted to 3"):
        vlaprep.audit_tokenizer(folder, narrow)
    rows = make_rows({0: (0, 30)}, dim=3)
    rows["action"][:] = np.nan
    with pytest.raises(NoChunksError, match="all 23 windows"):
        vlaprep.audit_tokenizer(folder, write_v3(tmp_path / "nan", rows))


# ------------------------------------------------------------------------------- command line


def test_the_command_exits_with_3_where_something_is_lost(
    root: Path, folder: Path, tmp_path: Path
) -> None:
    audit = vlaprep.audit_tokenizer(folder, root)
    told = run("audit", folder, root, "--json")
    assert told.exit_code == 3
    answer = json.loads(told.stdout)
    assert answer["unencodable"] == audit.unencodable
    assert {k: answer[k] for k in audit.to_dict()} == json.loads(json.dumps(audit.to_dict()))
    shown = run("audit", folder, root)
    assert (shown.exit_code, shown.stdout) == (3, "")
    assert f"{audit.unencodable} of {audit.windows} windows" in shown.stderr.replace(",", "")
    fine = run_json("audit", fit(root, tmp_path / "cache", coverage="all"), root)
    assert fine["unencodable"] == 0
    again = fit(root, tmp_path / "cache", coverage="all", episodes=[0, 1])
    some = run_json("audit", again, root, "--episodes", "0:2", "--chunk_size", HORIZON)
    assert (some["episodes"], some["unencodable"]) == (2, 0)
    assert run("audit", again, root).exit_code == 3


def test_the_command_says_what_is_wrong(root: Path, folder: Path, tmp_path: Path) -> None:
    assert run("audit", tmp_path / "nowhere", root).exit_code == 1
    assert run("audit", folder, tmp_path / "nowhere").exit_code == 1
    assert run("audit", folder).exit_code == 2
    assert run("audit", folder, root, "--normalization", "z-score").exit_code == 2


def test_the_command_fits_with_coverage(root: Path, tmp_path: Path) -> None:
    options = ("--n-samples", SMALL["n_samples"], "--chunk-size", HORIZON, "--scale", 20)
    arguments = ("fit", root, "--cache-dir", tmp_path / "cache", *options)
    answer = run_json(*arguments, "--coverage", "all")
    assert answer["coverage"]["every_window_checked"]
    shown = run(*arguments, "--coverage", "all")
    assert f"all {answer['coverage']['windows']} windows, by" in shown.stderr
    assert run(*arguments, "--coverage", "most").exit_code == 2


# ------------------------------------------------------------------------- the space of the fit


@pytest.mark.parametrize("options", [{"relative": ["x", "y"]}, {"tail": "clamp"}, {"dims": [3, 0]}])
def test_windows_are_those_of_the_fit_however_they_are_scaled(tmp_path: Path, options: Any) -> None:
    root = write_robot(tmp_path / "data", robot_rows((30, 7, 25)))
    folder = fit(root, tmp_path / "cache", convention="openpi", gate=False, **options)
    stored = Normalization.from_pretrained(folder)
    want = vlaprep.audit_tokenizer(folder, root)
    given = vlaprep.audit_tokenizer(folder, root, normalization=stored)
    assert (listed(given), given.windows) == (listed(want), want.windows)
    raw = vlaprep.audit_tokenizer(folder, root, normalization="none")
    assert (raw.windows, raw.action_dim) == (want.windows, want.action_dim)
    sampled = vlaprep.audit_tokenizer(folder, root, normalization="sample", n_samples=20, seed=7)
    assert sampled.normalization == "sample"


def test_a_sample_is_scaled_by_the_convention_of_the_fit(tmp_path: Path) -> None:
    root = write_robot(tmp_path / "data", robot_rows((30, 7, 25)))
    same = {"n_samples": 9, "seed": 3}
    folder = fit(root, tmp_path / "cache", convention="lerobot", gate=False, **same)
    want = vlaprep.audit_tokenizer(folder, root)
    assert want.unencodable > 0
    assert listed(vlaprep.audit_tokenizer(folder, root, normalization="sample", **same)) == listed(
        want
    )


def test_datasets_that_lack_what_the_fit_had(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = write_robot(tmp_path / "data", robot_rows((30, 7, 25)))
    narrow = write_v3(tmp_path / "narrow", make_rows({0: (0, 30)}, dim=2))
    of_dims = fit(root, tmp_path / "cache", dims=["grip"], gate=False)
    padded = fit(
        root,
        tmp_path / "cache",
        convention="openpi",
        normalization_mode="IDENTITY",
        max_action_dim=8,
        dims="0:2",
        gate=False,
    )
    assert vlaprep.audit_tokenizer(padded, narrow).action_dim == 2
    wide = write_v3(tmp_path / "wide", make_rows({0: (0, 30)}, dim=7))
    rest = fit(
        write_v3(tmp_path / "five", make_rows({0: (0, 30)}, dim=5)),
        tmp_path / "cache",
        convention="openpi",
        normalization_mode="IDENTITY",
        max_action_dim=8,
        gate=False,
    )
    with pytest.raises(ValueError, match=r"has 7 dims, but tokenizer .* was fitted to 5"):
        vlaprep.audit_tokenizer(rest, wide)
    with pytest.raises(DatasetFormatError, match="fitted to dim 3 of column 'action', which has 2"):
        vlaprep.audit_tokenizer(of_dims, narrow)
    relative = fit(root, tmp_path / "cache", relative=[1], dims=[1], gate=False)
    with pytest.raises(
        DatasetFormatError, match=r"no column 'observation.state' in dataset .*arrow"
    ):
        vlaprep.audit_tokenizer(relative, narrow)
    rows = robot_rows((30,))
    rows["observation.state"] = rows["observation.state"][:, :1].copy()
    with pytest.raises(
        DatasetFormatError, match=r"dim 1 of column 'observation.state', which has 1"
    ):
        vlaprep.audit_tokenizer(relative, write_robot(tmp_path / "state", rows))
    assert not caplog.records
    renamed = write_robot(tmp_path / "renamed", robot_rows((30,)), ["a", "b", "c", "d", "e"])
    vlaprep.audit_tokenizer(of_dims, renamed)
    (told,) = (record.getMessage() for record in caplog.records)
    assert "called d in dataset" in told
    assert "called grip in the fit" in told
