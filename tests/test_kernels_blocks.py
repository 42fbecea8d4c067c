"""Kernels over rows that come block by block, against those over whole arrays."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlaprep import kernels

QS = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal in dtype, shape and value; any NaN equals any NaN, and zeros may differ in sign."""
    np.testing.assert_array_equal(got, want, strict=True)


@given(st.data(), st.sampled_from([np.float32, np.float64]), st.integers(1, 4))
def test_block_quantiles_are_those_of_the_whole(data: Any, dtype: Any, dims: int) -> None:
    shape = st.tuples(st.integers(1, 60), st.just(dims))
    ties = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf]))
    whole = data.draw(hnp.arrays(dtype, shape, elements=ties))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    same_bits(
        kernels.block_quantiles(np.split(whole, cuts) if cuts[:1] != [0] else [whole], QS),
        kernels.quantile(whole, QS),
    )


@pytest.mark.parametrize("kind", ["normal", "few", "sorted", "spike"])
@pytest.mark.parametrize("threads", [1, 3])
def test_block_quantiles_of_many_rows(kind: str, threads: int) -> None:
    rng = np.random.default_rng(1)
    whole = {
        "normal": lambda: rng.standard_normal((300_000, 2)),
        "few": lambda: rng.integers(0, 5, (300_000, 2)).astype(float),
        "sorted": lambda: np.sort(rng.standard_normal((300_000, 2)), axis=0),
        "spike": lambda: np.where(np.arange(600_000).reshape(-1, 2) % 9973 < 5, 1e6, 0.5),
    }[kind]().astype(np.float32)
    blocks = np.array_split(whole, 7)
    got = kernels.block_quantiles(blocks, QS, num_threads=threads)
    same_bits(got, kernels.quantile(whole, QS))


def test_block_moments_are_numpys_within_rounding() -> None:
    whole = np.random.default_rng(2).standard_normal((5000, 3)) * [1, 1e-3, 1e4] + [0, 5, 1e6]
    want = [whole.min(axis=0), whole.max(axis=0), whole.mean(axis=0), whole.std(axis=0)]
    got = kernels.block_moments([whole])
    for found, wanted in zip(got, want, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    for pieces in (7, 600, 5000):
        again = kernels.block_moments(np.array_split(whole, pieces))
        assert [x.tobytes() for x in again] == [x.tobytes() for x in got]
    low, *_ = kernels.block_moments([np.array([[np.nan, 1.0]]), np.array([[2.0, 0.5]])])
    assert np.isnan(low[0])
    assert low[1] == 0.5


def test_rows_in_blocks_are_checked() -> None:
    rows = np.zeros((3, 2))
    for call in (lambda x: kernels.block_quantiles(x, [0.5]), kernels.block_moments):
        with pytest.raises(ValueError, match="row"):
            call([])
        with pytest.raises(ValueError, match="one width"):
            call([rows, np.zeros((3, 1))])
        with pytest.raises(ValueError, match="2 dimension"):
            call([np.zeros(3)])
    with pytest.raises(TypeError, match="only once"):
        kernels.block_quantiles(iter([rows]), [0.5])
    with pytest.raises(ValueError, match="q must lie"):
        kernels.block_quantiles([rows], [1.5])
