"""Statistics that do not come from the drawn chunks, and the dims that a fit encodes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vlaprep
from test_action_space import write_robot
from test_fit_trust import fit, smooth_rows
from vlaprep.errors import DatasetNotFoundError
from vlaprep.normalization import Normalization

if TYPE_CHECKING:
    from pathlib import Path

RULE = {"convention": "lerobot", "mode": "QUANTILES"}
SOURCES = ("dataset", "meta", "mapping", "object", "named")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rows = smooth_rows()
    rows["action"] *= np.arange(1, 6, dtype=np.float32)
    return write_robot(tmp_path / "data", rows)


def statistics(root: Path, source: str) -> tuple[Any, Normalization]:
    """What to pass, and what it is of the whole column."""
    of_all = Normalization.from_dataset(vlaprep.open_dataset(root), **RULE)
    stats = {"action": {"q01": of_all.lo.tolist(), "q99": of_all.hi.tolist()}}
    (root / "meta/stats.json").write_text(json.dumps(stats))
    given = {"mapping": stats, "object": replace(of_all, dim_names=None), "named": of_all}
    return given.get(source, source), of_all


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("dims", [[4, 3, 2, 1, 0], [1, 0, 2, 3, 4], [2, 0], [3], range(5)])
def test_each_dim_has_its_own_statistics_in_any_order(
    root: Path, tmp_path: Path, source: str, dims: Any
) -> None:
    given, of_all = statistics(root, source)
    folder = fit(root, tmp_path / "cache", dims=dims, statistics=given, convention="lerobot")
    stored = Normalization.from_pretrained(folder)
    assert stored.lo.tolist() == of_all.lo[list(dims)].tolist()
    assert stored.hi.tolist() == of_all.hi[list(dims)].tolist()
    # What a folder holds is of its dims already.
    again = fit(root, tmp_path / "cache", dims=dims, statistics=stored)
    assert Normalization.from_pretrained(again) == stored


def test_statistics_of_another_column_are_refused(root: Path, tmp_path: Path) -> None:
    four = {"q01": [-1.0] * 4, "q99": [1.0] * 4}
    for dims in (None, "0:3"):
        with pytest.raises(ValueError, match=r"statistics of 4 dims do not fit the \d dims"):
            fit(root, tmp_path / "cache", statistics=four, dims=dims)
    names = ["y", "x", "z", "grip", "2"]
    other = Normalization(**RULE, lo=[-1] * 5, hi=[1] * 5, dim_names=names)
    with pytest.raises(ValueError, match=r"of the dims y, x, z.* are x, y, z.*dim_names=None"):
        fit(root, tmp_path / "cache", statistics=other)
    fit(root, tmp_path / "cache", statistics=replace(other, dim_names=None))


def test_a_normalization_says_which_dims_are_relative(root: Path, tmp_path: Path) -> None:
    norm = Normalization(
        **RULE, lo=[-9] * 5, hi=[9] * 5, relative=[True, True, False, False, False]
    )
    with pytest.raises(ValueError, match=r"have dims x, y relative .* the fit has no dim"):
        fit(root, tmp_path / "cache", statistics=norm)
    with pytest.raises(ValueError, match=r"have dims x, y relative .* the fit has dims y"):
        fit(root, tmp_path / "cache", statistics=norm, relative=["y"])
    absolute = replace(norm, relative=None)
    with pytest.raises(ValueError, match=r"have no dim relative .* the fit has dims x, y"):
        fit(root, tmp_path / "cache", statistics=absolute, relative=["x", "y"])
    folder = fit(root, tmp_path / "cache", statistics=norm, relative=["x", "y"])
    assert Normalization.from_pretrained(folder).relative == norm.relative
    picked = fit(root, tmp_path / "cache", statistics=norm, relative=["y"], dims=["y", "z"])
    assert Normalization.from_pretrained(picked).relative == (True, False)
    # A mapping does not say.
    stats = {"q01": [-9] * 5, "q99": [9] * 5}
    fit(root, tmp_path / "cache", statistics=stats, relative=["x"], convention="lerobot")


def test_messages_say_whose_statistics_and_what_to_do(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"statistics='meta' .*statistics='dataset' tak"):
        fit(root, tmp_path / "cache", statistics="meta")
    with pytest.raises(DatasetNotFoundError, match=r"'sampel' is none of sample, dataset, meta"):
        fit(root, tmp_path / "cache", statistics="sampel")
    rows = smooth_rows()
    rows["action"][3, 2] = np.nan
    broken = write_robot(tmp_path / "broken", rows)
    with pytest.raises(ValueError, match=r"statistics='dataset' .* dim 2 are not finite.*exclude_"):
        fit(broken, tmp_path / "cache", statistics="dataset")
    fit(broken, tmp_path / "cache", statistics="dataset", exclude_episodes=[0])


def test_only_statistics_that_count_are_in_the_key(root: Path, tmp_path: Path) -> None:
    def key(q99: list[float], **options: Any) -> Path:
        asked = {"statistics": {"q01": [-9.0] * 5, "q99": q99}, "convention": "lerobot"}
        return fit(root, tmp_path / "cache", **asked | options)

    assert key([9, 9, 9, 9, 9], dims=["x", "z"]) == key([9, 8, 9, 7, 6], dims=["x", "z"])
    assert key([9, 9, 9, 9, 9], dims=["x", "z"]) != key([9, 9, 8, 9, 9], dims=["x", "z"])
    norm = Normalization(**RULE, lo=[-9] * 5, hi=[9] * 5)
    assert key([9] * 5) == fit(root, tmp_path / "cache", statistics=norm)
    none = {"convention": "lerobot", "normalization_mode": "IDENTITY"}
    assert fit(root, tmp_path / "cache", **none) == key([9] * 5, normalization_mode="IDENTITY")
