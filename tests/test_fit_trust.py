"""A fit in the space that its policy trains in, tried on what it has not seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reference
import vlaprep
from lerobot_folder import Rows, make_rows, write_v3
from test_action_space import robot_rows, write_robot
from vlaprep.conventions import CONVENTIONS
from vlaprep.errors import EpisodeSelectionError, FitGateError, TokenizerFormatError
from vlaprep.fit_report import read_report
from vlaprep.normalization import Normalization

MIN_MAX = {"convention": "lerobot", "normalization_mode": "MIN_MAX"}
SMALL = {"n_samples": 60, "chunk_size": 6, "seed": 7, "gate": False}


def fit(root: Path, cache: Path, **options: Any) -> Path:
    return Path(vlaprep.fit_fast_tokenizer(dataset_root=root, cache_dir=cache, **SMALL | options))


def smooth_rows(episodes: int = 12) -> Rows:
    rows = robot_rows(tuple(14 + 3 * e for e in range(episodes)))
    at = np.arange(len(rows["action"]))[:, None]
    for key in ("action", "observation.state"):
        dims = rows[key].shape[1]
        rows[key] = np.sin(at * np.linspace(0.05, 0.2, dims) + rows[key][:1]).astype(np.float32)
    return rows


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_robot(tmp_path / "data", smooth_rows())


def fitted_chunks(root: Path, report: dict[str, Any]) -> np.ndarray:
    """The raw chunks of a fit of plain actions."""
    dataset = vlaprep.open_dataset(root)
    table = dataset.episodes
    draws = {name: report["inputs"][name] for name in ("chunk_size", "n_samples", "seed")}
    return dataset.read_chunks(
        *vlaprep.sample_chunks(table.episode_index, table.length, **draws), draws["chunk_size"]
    )


# ------------------------------------------------------------------------------- conventions


@pytest.mark.parametrize(
    ("name", "mode"), [(n, m) for n, rule in CONVENTIONS.items() for m in rule.modes]
)
def test_the_tokenizer_is_that_of_the_convention(
    root: Path, tmp_path: Path, name: str, mode: str
) -> None:
    folder = fit(root, tmp_path / "cache", convention=name, normalization_mode=mode)
    report = read_report(folder)
    raw = fitted_chunks(root, report)
    norm = Normalization.fit(raw, convention=name, mode=mode)
    stored = Normalization.from_pretrained(folder)
    assert (stored.convention, stored.mode, stored.dim_names) == (
        name,
        mode,
        ("x", "y", "z", "grip", "2"),
    )
    assert [stored.lo.tobytes(), stored.hi.tobytes()] == [norm.lo.tobytes(), norm.hi.tobytes()]
    want = vlaprep.FastActionProcessor.fit(norm.normalize(raw))
    want.save_pretrained(tmp_path / "want")
    names = ("tokenizer.json", "bpe_tokenizer/tokenizer.json")
    saved = next(name for name in names if (folder / name).exists())
    assert (folder / saved).read_bytes() == (tmp_path / "want" / saved).read_bytes()


@pytest.mark.parametrize("source", ["dataset", "meta", "path", "mapping", "object"])
def test_statistics_come_from_where_they_are_asked_for(
    root: Path, tmp_path: Path, source: str
) -> None:
    taken = vlaprep.open_dataset(root).stats("action", q=(0.01, 0.99))["action"]
    stats = {"action": {"q01": taken.quantiles[0].tolist(), "q99": taken.quantiles[1].tolist()}}
    (root / "meta/stats.json").write_text(json.dumps(stats))
    norm = Normalization.from_stats(stats, convention="openpi", mode="QUANTILES")
    given = {
        "dataset": "dataset",
        "meta": "meta",
        "path": root / "meta/stats.json",
        "mapping": stats,
        "object": norm,
    }[source]
    folder = fit(root, tmp_path / "cache", convention="openpi", statistics=given)
    stored = Normalization.from_pretrained(folder)
    assert stored.lo.tolist() == norm.lo.tolist()
    # All dims are at hand, those that are encoded are picked.
    folder = fit(root, tmp_path / "cache", convention="openpi", statistics=given, dims=["z", "x"])
    stored = Normalization.from_pretrained(folder)
    assert stored.hi.tolist() == norm.hi[[2, 0]].tolist()
    assert stored.dim_names == ("z", "x")


def test_statistics_of_absolute_actions_are_not_those_of_relative_ones(
    root: Path, tmp_path: Path
) -> None:
    for source in ("dataset", "meta"):
        with pytest.raises(ValueError, match="absolute actions and do not fit relative ones"):
            fit(root, tmp_path / "cache", statistics=source, relative=[0])
    given = Normalization.fit(np.zeros((3, 2, 5), np.float32), convention="pi052")
    with pytest.raises(ValueError, match="convention='lerobot' is not that of the given"):
        fit(root, tmp_path / "cache", statistics=given, convention="lerobot")


def test_a_check_says_what_differs(root: Path, tmp_path: Path) -> None:
    folder = fit(root, tmp_path / "cache", convention="lerobot", statistics="dataset")
    processor = vlaprep.FastActionProcessor.from_pretrained(folder)
    dataset = vlaprep.open_dataset(root)
    norm = Normalization.from_dataset(dataset, convention="lerobot", mode="QUANTILES")
    assert processor.check(norm) == []
    assert processor.check({"normalization_mapping": {"ACTION": "QUANTILES"}}) == []
    (told,) = processor.check({"normalization_mapping": {"ACTION": "MEAN_STD"}})
    assert "MEAN_STD" in told
    with pytest.raises(TokenizerFormatError):
        vlaprep.FastActionProcessor.fit(np.zeros((4, 3, 1))).check(norm)


def test_a_dim_that_only_looks_constant_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = smooth_rows()
    rows["action"][:, 3] = 0.25
    rows["action"][-40:, 3] = 0.26
    root = write_robot(tmp_path / "data", rows)
    stats = {"q01": [-1, -1, -1, 0.25, -1], "q99": [1, 1, 1, 0.25, 1]}
    with pytest.raises(vlaprep.VocabularyError):
        fit(root, tmp_path / "cache", convention="lerobot", statistics=stats)
    (told,) = (r.getMessage() for r in caplog.records if "reach" in r.getMessage())
    assert "dim grip reach 1e+06" in told or "dim grip" in told


# --------------------------------------------------------------------------- block by block


@pytest.mark.parametrize("options", [{}, MIN_MAX], ids=["quantiles", "extremes"])
@pytest.mark.parametrize("block", [1, 7, 100])
def test_a_fit_does_not_depend_on_what_is_held_and_how_it_is_cut(
    root: Path, tmp_path: Path, monkeypatch: Any, options: dict[str, Any], block: int
) -> None:
    want = fit(root, tmp_path / "held", coverage="all", **options)
    monkeypatch.setattr("vlaprep.fit_sample.HELD_VALUES", 0)
    monkeypatch.setattr("vlaprep.fit_chunks.BLOCK_VALUES", block * 30)
    got = fit(root, tmp_path / "streamed", coverage="all", num_threads=2, **options)
    assert got.name == want.name
    for path in want.rglob("*"):
        if path.is_file():
            assert (got / path.relative_to(want)).read_bytes() == path.read_bytes()


def test_windows_that_are_not_finite_do_not_disturb_the_order(
    tmp_path: Path, monkeypatch: Any
) -> None:
    rows = smooth_rows()
    rows["action"][::37, 1] = np.nan
    root = write_robot(tmp_path / "data", rows)
    want = fit(root, tmp_path / "held")
    monkeypatch.setattr("vlaprep.fit_sample.HELD_VALUES", 0)
    got = fit(root, tmp_path / "streamed")
    assert (got / "fit_report.json").read_bytes() == (want / "fit_report.json").read_bytes()


# ----------------------------------------------------------------- relative, padding, tails


def test_relative_actions_are_fitted_relative(root: Path, tmp_path: Path) -> None:
    folder = fit(root, tmp_path / "cache", absolute=["grip", "2"], max_action_dim=8, coverage="all")
    report = read_report(folder)
    dataset, rows = vlaprep.open_dataset(root), smooth_rows()
    table = dataset.episodes
    drawn = vlaprep.sample_chunks(
        table.episode_index, table.length, chunk_size=6, n_samples=60, seed=7
    )
    raw = dataset.read_chunks(*drawn, 6)
    state = dataset.read_chunks(*drawn, 1, "observation.state")
    raw[..., :3] -= state[..., :3]
    norm = Normalization.from_pretrained(folder)
    assert norm.relative == (True, True, True, False, False)
    assert norm.lo.tolist() == Normalization.fit(raw).lo.tolist()
    processor = vlaprep.FastActionProcessor.from_pretrained(folder)
    assert processor.action_dim == 8
    assert report["actions"]["relative"] == [0, 1, 2]
    # Every window of the dataset, relative, comes back with its symbols.
    chunks = []
    for episode, length in zip(table.episode_index.tolist(), table.length.tolist(), strict=True):
        of_episode = rows["episode_index"] == episode
        windows = reference.windows(rows["action"][of_episode], 6).copy()
        windows[..., :3] -= rows["observation.state"][of_episode][: length - 5, None, :3]
        chunks.append(windows)
    normal = np.pad(norm.normalize(np.concatenate(chunks)), ((0, 0), (0, 0), (0, 3)))
    back = processor.decode(processor(normal))
    assert np.array_equal(
        np.around(reference.dct(back) * 10), np.around(reference.dct(normal) * 10)
    )
    audit = vlaprep.audit_tokenizer(folder, root)
    assert (audit.windows, audit.unencodable) == (len(normal), 0)
    plain = vlaprep.audit_tokenizer(fit(root, tmp_path / "cache", max_action_dim=8), root)
    assert plain.windows == len(normal)


def test_clamped_tails_are_swept_and_fitted(root: Path, tmp_path: Path) -> None:
    folder = fit(root, tmp_path / "cache", tail="clamp", coverage="all", per="frame", n_samples=9)
    audit = vlaprep.audit_tokenizer(folder, root)
    frames = int(vlaprep.open_dataset(root).episodes.length.sum())
    assert (audit.windows, audit.unencodable) == (frames, 0)
    assert (
        read_report(fit(root, tmp_path / "cache", tail="clamp", chunk_size=20))["draws"][
            "episodes_too_short"
        ]
        == 0
    )  # though some have 14 frames
    assert sum(episode.windows for episode in audit.by_episode) == 0


@pytest.mark.parametrize("per", ["episode", "frame", "task"])
@pytest.mark.parametrize("replace", [True, False])
def test_the_modes_of_sampling_reach_the_fit(
    root: Path, tmp_path: Path, per: Any, replace: bool
) -> None:
    folder = fit(root, tmp_path / "cache", per=per, replace=replace)
    assert read_report(folder)["draws"]["chunks"] == 60


# -------------------------------------------------------------------------------- which data


def test_tasks_by_number_and_text(root: Path, tmp_path: Path) -> None:
    by_number = fit(root, tmp_path / "cache", tasks=[1])
    assert read_report(by_number)["draws"]["episodes"] == 6
    by_text = fit(root, tmp_path / "cache", tasks="open the drawer")
    assert by_text == by_number
    for wrong, message in (
        ("pour tea", r"no task 'pour tea'.*0 'stack the cups', 1 'open"),
        (7, "no task 7"),
        ([], "tasks= is empty"),
        ([5], "none of those selected"),
    ):
        with pytest.raises(EpisodeSelectionError, match=message):
            fit(root, tmp_path / "cache", tasks=wrong)


def test_a_missing_id_is_named(root: Path, tmp_path: Path) -> None:
    for options in (
        {"episodes": [0, 77]},
        {"exclude_episodes": [77]},
        {"validation_episodes": [77]},
    ):
        with pytest.raises(EpisodeSelectionError, match="77"):
            fit(root, tmp_path / "cache", **options)


# --------------------------------------------------------------------------- held-out proof


def test_the_trial_is_on_episodes_that_gave_no_chunk(root: Path, tmp_path: Path) -> None:
    few = fit(root, tmp_path / "cache", n_samples=5)
    assert read_report(few)["validation"]["held_out"] is True
    assert read_report(few)["validation"]["episodes"] == 7
    all_visited = read_report(fit(root, tmp_path / "cache"))["validation"]
    assert (all_visited["held_out"], all_visited["episodes"]) == (False, 12)
    share = read_report(fit(root, tmp_path / "cache", validation_episodes=0.25))
    assert share["validation"]["held_out"] is True
    assert (share["validation"]["episodes"], share["draws"]["episodes"]) == (3, 9)
    named = read_report(fit(root, tmp_path / "cache", validation_episodes=[3, 8]))
    assert named["draws"]["episodes"] == 10
    for wrong in (list(range(12)), 0.99):
        with pytest.raises(EpisodeSelectionError, match="both need one"):
            fit(root, tmp_path / "cache", validation_episodes=wrong)
    with pytest.raises(ValueError, match="no share"):
        fit(root, tmp_path / "cache", validation_episodes=1.5)


def test_the_numbers_of_the_trial(root: Path, tmp_path: Path) -> None:
    folder = fit(root, tmp_path / "cache", validation_episodes=[3], validation_samples=40)
    told = read_report(folder)["validation"]
    dataset, norm = vlaprep.open_dataset(root), Normalization.from_pretrained(folder)
    seed = int(np.random.SeedSequence([7, 1]).generate_state(1)[0])
    length = dataset.episodes.length[[3]]
    raw = dataset.read_chunks(
        *vlaprep.sample_chunks([3], length, chunk_size=6, n_samples=40, seed=seed), 6
    )
    processor = vlaprep.FastActionProcessor.from_pretrained(folder)
    normal = norm.normalize(raw)
    ids = processor(normal)
    decoded = processor.decode(ids)
    error = decoded - normal.astype(np.float64)
    assert told["normalized"]["rmse"] == pytest.approx(np.sqrt((error**2).mean()))
    assert told["normalized"]["rmse_by_dim"] == pytest.approx(np.sqrt((error**2).mean((0, 1))))
    units = norm.unnormalize(decoded) - raw
    assert told["dataset_units"]["rmse_by_dim"] == pytest.approx(np.sqrt((units**2).mean((0, 1))))
    symbols = np.around(reference.dct(normal) * 10)
    same = symbols == np.around(reference.dct(decoded) * 10)
    assert told["exact_symbols"] == pytest.approx(same.mean())
    counts = [len(chunk) for chunk in ids]
    assert told["tokens"]["max"] == max(counts)
    assert sum(told["tokens"]["chunks_by_length"].values()) == 40
    assert told["names"] == ["x", "y", "z", "grip", "2"]
    shown = json.loads((folder / "fit_examples.json").read_text())
    assert len(shown["chunks"]) == 8
    first = shown["chunks"][0]
    np.testing.assert_allclose(first["original"], raw[0], atol=1e-6)
    np.testing.assert_allclose(first["decoded"], norm.unnormalize(decoded[0]), atol=1e-6)
    assert first["ids"] == ids[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 1.0}, r"RMSE 0\.\d+ is over max_reconstruction_rmse=0\.1"),
        ({"max_dim_rmse": 1e-6}, r"of dim x is over .*of dim y is over"),
        ({"max_tokens": 1}, r"\d\d\.\d% of chunks take over max_tokens=1, up to \d+"),
    ],
)
@pytest.mark.parametrize("held", [None, 0.2])
def test_gates_refuse_to_publish(
    root: Path, tmp_path: Path, options: dict[str, Any], message: str, held: float | None
) -> None:
    options = {**options, "validation_episodes": held}
    cache = tmp_path / "cache"
    with pytest.raises(FitGateError, match=message):
        fit(root, cache, gate=True, **options)
    assert [path for path in cache.iterdir() if path.is_dir()] == []
    folder = fit(root, cache, gate=False, **options)
    # What lies there is no way around a bound.
    with pytest.raises(FitGateError, match=str(folder)):
        fit(root, cache, gate=True, **options)
    loose = {"max_reconstruction_rmse": None, "max_dim_rmse": None, "max_tokens": None}
    assert fit(root, cache, gate=True, **options | loose) == folder


def test_a_good_tokenizer_passes_the_gates(root: Path, tmp_path: Path) -> None:
    folder = fit(root, tmp_path / "cache", gate=True, n_samples=400, validation_episodes=0.2)
    told = read_report(folder)["validation"]
    assert told["normalized"]["rmse"] < 0.1


def test_constant_dims_have_no_error_that_matters(tmp_path: Path) -> None:
    rows = make_rows(dict.fromkeys(range(4), (0, 20)), dim=2)
    rows["action"][:, 0] = np.sin(np.arange(80) / 9)
    rows["action"][:, 1] = 3.0
    root = write_v3(tmp_path / "data", rows)
    folder = fit(root, tmp_path / "cache", gate=True, max_dim_rmse=0.1)
    assert read_report(folder)["validation"]["constant_dims"] == [1]


def test_bounds_that_make_no_sense(root: Path, tmp_path: Path) -> None:
    for name in ("max_reconstruction_rmse", "max_dim_rmse", "max_tokens"):
        with pytest.raises(ValueError, match=f"{name} must be a positive number"):
            fit(root, tmp_path / "cache", gate=True, **{name: -1})
    with pytest.raises(ValueError, match="validation_samples must not be negative"):
        fit(root, tmp_path / "cache", validation_samples=-1)


# --------------------------------------------------------------------------------- the key

CHANGES: list[dict[str, Any]] = [
    {"convention": "lerobot"},
    {"convention": "lerobot", "normalization_mode": "MEAN_STD"},
    {"statistics": "dataset"},
    {"statistics": {"q01": [-1.0] * 5, "q99": [1.0] * 5}},
    {"statistics": {"q01": [-1.0] * 5, "q99": [1.5] * 5}},
    {"dims": ["x"]},
    {"dims": ["x", "y"]},
    {"dims": ["y", "x"]},
    {"relative": ["x"]},
    {"relative": ["y"]},
    {"max_action_dim": 6},
    {"per": "frame"},
    {"replace": False},
    {"tail": "clamp"},
    {"tasks": [1]},
    {"validation_samples": 0},
    {"validation_samples": 10},
    {"validation_episodes": 0.2},
    {"validation_episodes": [2]},
    {"episodes": [0, 1, 2]},
    {"exclude_episodes": [0]},
    {"coverage": "all"},
    {"alphabet": "symbols"},
    {"compatible": True},
]
SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"dims": ["x", "y"]}, {"dims": "0:2"}),
    ({"relative": ["x", "y"]}, {"absolute": ["z", "grip", "2"]}),
    ({"relative": ["y", "x"]}, {"relative": [0, 1]}),
    ({}, {"convention": "pi052", "normalization_mode": "QUANTILES"}),
    ({}, {"relative": []}),
    ({}, {"max_reconstruction_rmse": 0.5, "max_tokens": 3}),
    ({}, {"gate": False}),
    ({"tasks": [1, 0]}, {"tasks": [0, 1, 1]}),
    ({"validation_episodes": [4, 2]}, {"validation_episodes": np.array([2, 4, 4])}),
    ({}, {"num_threads": 1}),
]


@pytest.fixture
def key(monkeypatch: Any, root: Path) -> Any:
    """The name of the folder of a fit that is not carried out."""
    monkeypatch.setattr(vlaprep.fit, "compute_once", lambda target, **_: target)
    monkeypatch.setattr(vlaprep.fit.fit_report, "read_report", lambda _: {})
    monkeypatch.setattr(vlaprep.fit.Gates, "check", lambda *_: None)

    def key(**options: Any) -> str:
        return fit(root, Path("cache"), **{"gate": True} | options).name

    return key


def test_every_option_that_can_change_a_byte_is_in_the_key(key: Any) -> None:
    seen = {json.dumps(change): key(**change) for change in CHANGES} | {"": key()}
    assert len(set(seen.values())) == len(seen), sorted(seen.items(), key=lambda item: item[1])


@pytest.mark.parametrize(("one", "other"), SAME, ids=str)
def test_nothing_else_is(key: Any, one: Any, other: Any) -> None:
    assert key(**one) == key(**other)


def test_other_statistics_are_another_key_though_the_draws_are_the_same(
    root: Path, tmp_path: Path, key: Any
) -> None:
    stats = {"action": {"q01": [-1.0] * 5, "q99": [1.0] * 5}}
    path = root / "meta/stats.json"
    path.write_text(json.dumps(stats))
    before = key(statistics="meta")
    assert key(statistics=path) == key(statistics=stats) != before
    stats["action"]["q99"][2] = 1.25
    path.write_text(json.dumps(stats))
    assert key(statistics="meta") != before
