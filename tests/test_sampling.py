from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlaprep.errors import NoChunksError
from vlaprep.sampling import sample_chunks

RUNS = json.loads((Path(__file__).parent / "golden" / "sampling.json").read_text())


def reference_passes(episode_index, length, *, chunk_size, n_samples, seed, passes=1):
    """The reference's loop, one `integers` call an episode, repeated for further passes."""
    rng = np.random.default_rng(seed)
    length_of = dict(zip(episode_index, length, strict=True))
    order = rng.permutation(sorted(length_of))
    per_episode = max(1, n_samples // len(order))
    picks: list[tuple[int, int]] = []
    for _ in range(passes):
        for episode in order:
            room = length_of[int(episode)] - chunk_size
            if room < 0:
                continue
            if len(picks) >= n_samples:
                return picks
            starts = rng.integers(0, room + 1, size=per_episode)
            picks.extend((int(episode), int(start)) for start in starts)
    return picks


def pairs(draws):
    return list(zip(*(column.tolist() for column in draws), strict=True))


@pytest.mark.parametrize("run", RUNS, ids=range(len(RUNS)))
def test_golden_picks_are_a_prefix_and_the_shortfall_is_topped_up(run):
    args = {key: run[key] for key in ("chunk_size", "n_samples", "seed")}
    got = pairs(sample_chunks(run["episode_index"], run["length"], **args))
    want = [tuple(pick) for pick in run["picks"]]
    assert got[: len(want)] == want
    assert len(got) == run["n_samples"]


def test_the_golden_runs_hold_shortfalls():
    assert len(RUNS) == 40
    assert any(len(run["picks"]) < run["n_samples"] for run in RUNS)


@given(
    seed=st.integers(0, 2**64),
    lengths=st.lists(
        st.one_of(st.integers(1, 40), st.sampled_from([2**31, 2**32 - 1, 2**32, 2**32 + 3])),
        min_size=1,
        max_size=30,
    ),
    chunk_size=st.integers(1, 30),
    n_samples=st.integers(1, 200),
)
def test_one_vectorised_call_equals_the_sequential_loop(seed, lengths, chunk_size, n_samples):
    ids = [7 * i + 3 for i in range(len(lengths))]
    args = {"chunk_size": chunk_size, "n_samples": n_samples, "seed": seed}
    if max(lengths) < chunk_size:
        with pytest.raises(NoChunksError, match=f"chunk_size={chunk_size}"):
            sample_chunks(ids, lengths, **args)
        return
    got = pairs(sample_chunks(ids, lengths, **args))
    want = reference_passes(ids, lengths, **args, passes=n_samples)
    assert got == want[:n_samples]
    assert len(got) == n_samples


@given(seed=st.integers(0, 1000), n_draws=st.integers(1, 300))
def test_more_draws_go_on_where_fewer_ended(seed, n_draws):
    ids, lengths = np.arange(20), np.arange(5, 25)
    args = {"chunk_size": 9, "n_samples": 50, "seed": seed}
    longer = pairs(sample_chunks(ids, lengths, **args, n_draws=300))
    assert pairs(sample_chunks(ids, lengths, **args, n_draws=n_draws)) == longer[:n_draws]
    assert pairs(sample_chunks(ids, lengths, **args)) == longer[:50]


def test_the_order_of_the_episodes_does_not_matter():
    ids, lengths = np.array([4, 9, 2, 30]), np.array([12, 40, 8, 20])
    args = {"chunk_size": 5, "n_samples": 10, "seed": 3}
    assert pairs(sample_chunks(ids, lengths, **args)) == pairs(
        sample_chunks(ids[::-1], lengths[::-1], **args)
    )


def test_dtypes_are_int64_whatever_comes_in():
    episode, start = sample_chunks(
        np.arange(3, dtype=np.uint8), np.full(3, 9, np.int16), chunk_size=4, n_samples=5, seed=0
    )
    assert episode.dtype == start.dtype == np.int64


def test_the_error_counts_the_episodes_and_says_the_way_out():
    with pytest.raises(NoChunksError) as caught:
        sample_chunks([1, 2, 3], [9, 8, 7], chunk_size=10, n_samples=4, seed=0)
    for word in ("all 3 episodes", "chunk_size=10", "9 frames", "smaller"):
        assert word in str(caught.value)
    with pytest.raises(NoChunksError, match="no episodes"):
        sample_chunks([], [], chunk_size=1, n_samples=4, seed=0)


@pytest.mark.parametrize(
    ("ids", "lengths", "over", "message"),
    [
        ([1, 1], [5, 5], {}, "episode 1 more than once"),
        ([1, 2], [5], {}, "equally long"),
        ([1.5, 2.5], [5, 5], {}, "episode_index must hold integers"),
        ([1, 2], [5.0, 5.0], {}, "length must hold integers"),
        ([1], [5], {"chunk_size": 0}, "at least 1"),
        ([1], [5], {"n_samples": 0}, "at least 1"),
        ([1], [5], {"n_draws": 0}, "at least 1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(ids, lengths, over, message):
    args = {"chunk_size": 2, "n_samples": 2, "seed": 0, **over}
    with pytest.raises(ValueError, match=message):
        sample_chunks(ids, lengths, **args)


@pytest.mark.parametrize("n", [0, -1, 10**9 + 1, 2**63, 2**70])
def test_counts_that_no_memory_holds(n):
    with pytest.raises(ValueError, match="at most 1000000000"):
        sample_chunks([0], [100], chunk_size=5, n_samples=n, seed=0)
