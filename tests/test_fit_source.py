"""Which episodes a fit draws from, and which it is tried on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vlaprep
from lerobot_folder import make_rows, write_meta, write_v3
from test_action_space import write_robot
from test_fit_trust import fit, smooth_rows
from vlaprep.action_space import ActionRequest
from vlaprep.errors import DatasetFormatError, EpisodeSelectionError, NoChunksError
from vlaprep.fit_report import read_report
from vlaprep.fit_source import Selection

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_robot(tmp_path / "data", smooth_rows())


def episodes(folder: Path) -> int:
    """How many could be drawn from."""
    count: int = read_report(folder)["draws"]["episodes"]
    return count


@pytest.mark.parametrize("ids", [[0], [0, 1], [3], []])
@pytest.mark.parametrize("kind", [list, tuple, set, np.array, iter])
def test_left_out_is_left_out_in_any_kind_of_list(
    root: Path, tmp_path: Path, ids: list[int], kind: Any
) -> None:
    of_ids = kind(ids) if kind is not np.array else np.array(ids, dtype=np.int64)
    folder = fit(root, tmp_path / "cache", exclude_episodes=of_ids)
    assert episodes(folder) == 12 - len(ids)


@pytest.mark.parametrize("name", ["episodes", "exclude_episodes"])
@pytest.mark.parametrize("wrong", [0, 3, "3", 2.0])
def test_ids_that_are_no_list(root: Path, tmp_path: Path, name: str, wrong: Any) -> None:
    with pytest.raises(EpisodeSelectionError, match=r"must be listed, such as \[0, 4\], got"):
        fit(root, tmp_path / "cache", **{name: wrong})


def test_tasks_of_any_kind_are_one_selection() -> None:
    for one in ([1, 0], np.array([0, 1, 1]), (np.int64(0), 1), {0, 1}, iter([1, 0])):
        assert Selection.of(tasks=one).tasks == [0, 1]
    for one in (1, np.int64(1), np.uint8(1)):
        assert Selection.of(tasks=one).tasks == [1]
        assert [type(task) for task in Selection.of(tasks=one).tasks or ()] == [int]
    assert Selection.of(tasks=["1", 1, "open"]).tasks == [1, "1", "open"]
    for wrong in ([True], [None], [1.0], True, 2.5):
        with pytest.raises(EpisodeSelectionError, match="is no number or text"):
            Selection.of(tasks=wrong)


def test_texts_that_look_like_numbers_are_texts_first(tmp_path: Path) -> None:
    root = write_v3(tmp_path / "data", make_rows({e: (e % 3, 20) for e in range(7)}))
    write_meta(root, tasks={0: "1", 1: "pour", 2: "pour"})
    for tasks, count in (("1", 3), (1, 2), ([1, "1"], 5), ("2", 2), ("pour", 4), (["pour", 2], 4)):
        assert episodes(fit(root, tmp_path / "cache", tasks=tasks)) == count
    with pytest.raises(EpisodeSelectionError, match="there is no task '7'"):
        fit(root, tmp_path / "cache", tasks="7")


def test_a_share_of_any_kind(root: Path, tmp_path: Path) -> None:
    for share in (0.25, np.float64(0.25), np.float32(0.25)):
        told = read_report(fit(root, tmp_path / "cache", validation_episodes=share))
        assert told["validation"]["episodes"] == 3
    for wrong in (1, True, np.int64(3)):
        with pytest.raises(ValueError, match="neither a share between 0 and 1 nor a list"):
            fit(root, tmp_path / "cache", validation_episodes=wrong)
    with pytest.raises(ValueError, match="validation_samples must be at most"):
        fit(root, tmp_path / "cache", validation_samples=10**13)


def test_windows_that_cover_the_dataset_leave_held_out_episodes_alone(
    root: Path, tmp_path: Path
) -> None:
    seen = set()
    for held in range(12):
        folder = fit(
            root, tmp_path / "cache", coverage="all", n_samples=4, validation_episodes=[held]
        )
        told = read_report(folder)
        assert told["validation"]["held_out"] is True
        assert held not in {at["episode_index"] for at in told["coverage"]["chunks_added"]}
        audit = vlaprep.audit_tokenizer(folder, root, exclude_episodes=[held])
        assert audit.unencodable == 0
        assert told["coverage"]["windows"] == audit.windows
        seen |= {at["episode_index"] for at in told["coverage"]["chunks_added"]}
    assert len(seen) > 3


def test_an_episode_that_gave_a_covering_window_is_not_held_out(root: Path, tmp_path: Path) -> None:
    folder = fit(root, tmp_path / "cache", coverage="all", n_samples=4)
    told = read_report(folder)
    drawn, _ = vlaprep.sample_chunks(
        np.arange(12), 14 + 3 * np.arange(12), chunk_size=6, n_samples=4, seed=7
    )
    gave = {*drawn.tolist(), *(at["episode_index"] for at in told["coverage"]["chunks_added"])}
    assert gave > {*drawn.tolist()}
    assert told["validation"]["episodes"] == 12 - len(gave)


def test_what_a_sweep_tells_of_windows_that_join_nothing_is_in_the_key(
    root: Path, tmp_path: Path
) -> None:
    rows = smooth_rows()
    rows["action"][-1, 0] = np.nan  # the last window of all: no draw, and no cover, has it
    other = write_robot(tmp_path / "other", rows)
    sampled = {"n_samples": 60, "validation_samples": 0}
    assert fit(root, tmp_path / "cache", **sampled) == fit(other, tmp_path / "cache", **sampled)
    folder = fit(root, tmp_path / "cache", coverage="all", **sampled)
    told = read_report(folder)["coverage"]
    again = fit(other, tmp_path / "cache", coverage="all", **sampled)
    skipped = read_report(again)["coverage"]
    assert told["chunks_added"] == skipped["chunks_added"], "else this tests nothing"
    assert (told["windows_skipped"], skipped["windows_skipped"]) == (0, 1)
    assert again != folder


def test_a_value_that_is_not_finite_is_named_where_it_lies(tmp_path: Path) -> None:
    many = {"nan": "error", "n_samples": 400}
    for column, dim, options, message in (
        ("observation.state", 1, {"relative": ["y"]}, "'observation.state' .*frame 5, dim 1 of"),
        ("action", 3, {"dims": ["z", "grip"]}, "'action' .*frame 5, dim 3 of"),
        ("action", 0, {"relative": ["x"], "tail": "clamp"}, "'action' .*frame 5, dim 0 of"),
    ):
        rows = smooth_rows()
        rows[column][5, dim] = np.nan
        root = write_robot(tmp_path / f"{column}{dim}", rows)
        with pytest.raises(DatasetFormatError, match=f"column {message}"):
            fit(root, tmp_path / "cache", **many, **options)
    rows = smooth_rows()
    rows["action"][13, 2] = np.inf  # the last frame of the first episode
    root = write_robot(tmp_path / "last", rows)
    with pytest.raises(DatasetFormatError, match="episode 0, frame 13, dim 2"):
        fit(root, tmp_path / "cache", tail="clamp", episodes=[0], **many)


def test_a_trial_on_broken_episodes_says_so(tmp_path: Path) -> None:
    rows = smooth_rows()
    rows["action"][rows["episode_index"] == 3] = np.nan
    root = write_robot(tmp_path / "data", rows)
    with pytest.raises(NoChunksError, match="of validation_episodes: no action chunk"):
        fit(root, tmp_path / "cache", validation_episodes=[3])


def test_a_request_has_one_form_before_the_data_are_there() -> None:
    def form(**options: Any) -> Any:
        return ActionRequest.of(**options).identity()

    assert form(relative=["b", "a", "a"]) == form(relative="a, b") != form(relative="a")
    assert form(absolute=[2, "x"]) == form(absolute=["x", 2])
    assert form(state_key="elsewhere") == form() == form(relative=[])
    assert form(state_key="elsewhere", relative=[0]) != form(relative=[0])
    assert form(dims=[1, 0]) != form(dims=[0, 1])


def test_windows_that_no_draw_holds_are_refused_too_where_all_are_to_be_covered(
    tmp_path: Path,
) -> None:
    rows = make_rows({0: (0, 30), 1: (0, 400)}, dim=2)
    rows["action"][200] = np.nan
    root = write_v3(tmp_path / "data", rows)
    options = {"dataset_root": root, "cache_dir": tmp_path / "cache", "n_samples": 4, "seed": 1}
    options |= {"chunk_size": 5, "nan": "error", "gate": False, "validation_samples": 0}
    vlaprep.fit_fast_tokenizer(**options)
    with pytest.raises(vlaprep.DatasetFormatError, match="5 windows of column 'action'"):
        vlaprep.fit_fast_tokenizer(**options, coverage="all")
