"""Dims by name, index and range; relative actions; padding; tails past the end of an episode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vlaprep
from lerobot_folder import Rows, make_rows, write_meta, write_v3
from vlaprep.action_space import ActionRequest, ActionSpace
from vlaprep.errors import DatasetFormatError
from vlaprep.fit_chunks import ChunkReader, padded

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["x", "y", "z", "grip", "2"]


def robot_rows(lengths: tuple[int, ...] = (9, 4, 13), **options: Any) -> Rows:
    """Episodes with a state of four dims beside actions of five."""
    rows = make_rows({e: (e % 2, n) for e, n in enumerate(lengths)}, dim=5, **options)
    rng = np.random.default_rng(9)
    rows["observation.state"] = rng.normal(size=(len(rows["action"]), 4)).astype(np.float32)
    return rows


def write_robot(root: Path, rows: Rows, names: list[str] | None = NAMES) -> Path:
    write_v3(root, rows)
    feature = {"dtype": "float32", "shape": [5], "names": names}
    return write_meta(root, features={"action": feature})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_robot(tmp_path / "data", robot_rows())


def resolve(root: Path, **options: Any) -> ActionSpace:
    return ActionRequest.of(**options).resolve(vlaprep.open_dataset(root), "here")


# -------------------------------------------------------------------------------------- dims


@pytest.mark.parametrize(
    ("dims", "found"),
    [
        (["x", "grip"], (0, 3)),
        ([3, 0], (3, 0)),
        ("y, z", (1, 2)),
        (["1:3"], (1, 2)),
        ([":2", "4:"], (0, 1, 4)),
        ([range(2), slice(3, None)], (0, 1, 3, 4)),
        (["2"], (4,)),  # a name before an index
        ([2], (2,)),
        (3, (3,)),
        (slice(1, 3), (1, 2)),
        (np.array([4, 1]), (4, 1)),
        (None, None),
    ],
)
def test_dims_by_name_index_and_range(root: Path, dims: Any, found: Any) -> None:
    space = resolve(root, dims=dims)
    assert space.dims == found
    assert space.names == tuple(NAMES[dim] for dim in (range(5) if found is None else found))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": ["w"]}, r"no dim 'w' in column 'action' of dataset here: its dims are x, y, z"),
        ({"dims": [5]}, r"no dim 5 .* or 0 to 4"),
        ({"dims": [-1]}, "no dim -1"),
        ({"dims": ["3:9"]}, "no dim '3:9'"),
        ({"relative": ["w"]}, "no dim 'w'"),
        ({"absolute": ["gripper"]}, "no dim 'gripper'"),
        ({"relative": ["2"]}, "dim 4 .* cannot be relative: the state .* has 4 dims"),
        (
            {"relative": [0], "state_key": "state"},
            "no column 'state'.*observation.state.*state_key",
        ),
    ],
)
def test_unknown_dims_are_errors_that_list_the_known(
    root: Path, options: Any, message: str
) -> None:
    with pytest.raises(DatasetFormatError, match=message):
        resolve(root, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": [0, "x"]}, "twice"),
        ({"dims": []}, "names no dim"),
        ({"dims": " "}, "names no dim"),
        ({"max_action_dim": 4}, "less than the 5 dims"),
        ({"max_action_dim": 0}, "at least 1"),
        ({"relative": [0], "absolute": [1]}, "pass one"),
        ({"tail": "wrap"}, "tail must be one of exclude, clamp"),
        ({"dims": [slice(0, 4, 2)]}, "has a step"),
    ],
)
def test_what_makes_no_sense(root: Path, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(root, **options)


def test_without_names_there_are_indices(tmp_path: Path) -> None:
    root = write_robot(tmp_path / "data", robot_rows(), names=None)
    assert resolve(root, dims=["1:3"]).dims == (1, 2)
    with pytest.raises(DatasetFormatError, match="have no names, but are 0 to 4"):
        resolve(root, dims=["x"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": {"x", "y"}}, "is a set, which has no order"),
        ({"dims": [True, False, True, True, False]}, r"dims= is a mask.*np\.flatnonzero"),
        ({"relative": np.array([True, False])}, "relative= is a mask"),
        ({"absolute": (False, True)}, "absolute= is a mask"),
        ({"relative": [1.0]}, r"relative= holds 1.0, which is no name, index or range"),
        ({"relative": [None]}, r"relative= holds None"),
        ({"dims": 2.5}, r"dims= holds 2.5"),
    ],
)
def test_what_is_no_dim(root: Path, options: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        resolve(root, **options)


def test_odd_names_are_names(tmp_path: Path) -> None:
    root = write_robot(tmp_path / "data", robot_rows(), ["左,手", "0:3", " x", "", "grip\n"])
    assert resolve(root, dims=["grip\n", " x", "左,手", "0:3", ""]).dims == (4, 2, 0, 1, 3)


def test_a_name_that_two_dims_share_is_none(tmp_path: Path) -> None:
    root = write_robot(tmp_path / "data", robot_rows(), ["x", "x", "z", "grip", "2"])
    for options in ({"dims": ["x"]}, {"relative": ["x"]}, {"absolute": ["x", "2"]}):
        with pytest.raises(DatasetFormatError, match=r"2 dims of .* are called 'x': name them by"):
            resolve(root, **options)
    assert resolve(root, dims=[1, "z"]).dims == (1, 2)


def test_only_dims_that_are_encoded_need_a_state(root: Path) -> None:
    # Dim 4 has none, and is not asked for.
    assert resolve(root, dims="0:4", absolute="grip").relative == (0, 1, 2)
    # Where no dim is relative nothing is read of a state, be it there or not.
    for options in ({"absolute": "0:5"}, {"dims": [1], "relative": [0]}, {"relative": ""}):
        space = resolve(root, state_key="nowhere", **options)
        assert (space.relative, space.state_key) == ((), None)


def test_it_goes_through_json(root: Path) -> None:
    space = resolve(root, dims=["grip", "x"], absolute=["grip", 4], tail="clamp", max_action_dim=8)
    assert ActionSpace.from_dict(space.to_dict()) == space
    assert space.relative == (0,)
    assert space.relative_mask(2) == (False, True)
    assert not space.by_row


# ------------------------------------------------------------------------------------ chunks


def by_hand(rows: Rows, space: ActionSpace, episode: int, start: int, horizon: int) -> np.ndarray:
    """One chunk, frame by frame."""
    of_episode = rows["episode_index"] == episode
    actions, states = rows["action"][of_episode], rows["observation.state"][of_episode]
    chunk = np.stack([actions[min(start + t, len(actions) - 1)] for t in range(horizon)])
    for dim in space.relative:
        chunk[:, dim] = chunk[:, dim] - states[start, dim]
    return chunk if space.dims is None else chunk[:, list(space.dims)]


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    horizon=st.integers(1, 14),
    relative=st.sets(st.integers(0, 3)),
    dims=st.none() | st.permutations(range(5)).flatmap(lambda p: st.just(p[:3])),
    tail=st.sampled_from(["exclude", "clamp"]),
    data=st.data(),
)
def test_chunks_are_those_of_the_frames(
    tmp_path_factory: Any,
    lengths: list[int],
    horizon: int,
    relative: set[int],
    dims: Any,
    tail: Any,
    data: Any,
) -> None:
    rows = robot_rows(tuple(lengths))
    root = write_robot(tmp_path_factory.mktemp("data") / "data", rows)
    space = resolve(root, relative=sorted(relative), dims=dims, tail=tail)
    beyond = 0 if tail == "clamp" else horizon - 1
    windows = [(e, s) for e, n in enumerate(lengths) for s in range(n - beyond)]
    if not windows:
        return
    picks = data.draw(st.lists(st.sampled_from(windows), min_size=1, max_size=9))
    episode, start = (np.array(column) for column in zip(*picks, strict=True))
    got = ChunkReader(vlaprep.open_dataset(root), space, horizon).read(episode, start)
    want = np.stack([by_hand(rows, space, e, s, horizon) for e, s in picks])
    assert got.dtype == np.float32
    assert got.tobytes() == want.tobytes()


def test_padding_adds_zeros_behind_the_last_dim() -> None:
    chunks = np.ones((2, 3, 2), np.float32)
    assert padded(chunks, None) is padded(chunks, 2) is chunks
    wide = padded(chunks, 5)
    assert wide.shape == (2, 3, 5)
    assert (wide[..., 2:] == 0).all()
