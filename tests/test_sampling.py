from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import reference
from vlaprep.draws import draw_distinct, draw_repeating
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
        ([4, 1], [-2, 5], {}, "length of episode 4 is -2"),
        ([1, 2], [2**62, 5], {}, "more than 4611686018427387904 frames"),
        ([1], [5], {"per": "epsiode"}, "per must be one of 'episode', 'frame', 'task', got 'eps"),
        ([1], [5], {"tail": "pad"}, "tail must be one of 'exclude', 'clamp', got 'pad'"),
        ([1], [5], {"replace": "no"}, "replace must be one of True, False, got 'no'"),
        ([1], [5], {"per": "task"}, "per='task' needs task_index"),
        ([1], [5], {"per": "frame", "task_index": [1]}, "for per='task' only, got per='frame'"),
        ([1, 2], [5, 5], {"per": "task", "task_index": [1]}, r"2 episodes, got shape \(1,\)"),
        ([1], [5], {"per": "task", "task_index": [1.5]}, "task_index must hold integers"),
        ([1, 2], [2**32, 2**33], {"replace": False}, "too many to draw without replacement"),
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


# ----------------------------------------------------------------------------- other modes

MODES = [
    {"per": per, "replace": replace, "tail": tail}
    for per in ("episode", "frame", "task")
    for replace in (True, False)
    for tail in ("exclude", "clamp")
]
modes = st.sampled_from(MODES)
tables = st.lists(  # (id, length, task), of ids that have gaps
    st.tuples(st.integers(0, 10**6), st.integers(0, 25), st.integers(-1, 3)),
    min_size=1,
    max_size=12,
    unique_by=lambda row: row[0],
)


def windows_of(table, chunk_size, tail):
    """(episode, start) of all windows."""
    return [
        (episode, start)
        for episode, length, _ in table
        for start in range(length if tail == "clamp" else length - chunk_size + 1)
    ]


def group_of(table, per):
    """Group of each episode."""
    return {e: {"episode": e, "frame": 0, "task": task}[per] for e, _, task in table}


def draw(table, mode, **counts):
    """`sample_chunks` of a table, as pairs."""
    ids, lengths, tasks = (list(column) for column in zip(*table, strict=True))
    task_index = tasks if mode["per"] == "task" else None
    return pairs(sample_chunks(ids, lengths, task_index=task_index, **mode, **counts))


@given(
    mode=modes,
    table=tables,
    chunk_size=st.integers(1, 12),
    n_samples=st.integers(1, 60),
    more=st.integers(0, 300),
    seed=st.integers(0, 2**64),
)
def test_every_mode_equals_loops_over_lists(mode, table, chunk_size, n_samples, more, seed):
    there_are = len(windows_of(table, chunk_size, mode["tail"]))
    assume(there_are)
    n_samples = n_samples if mode["replace"] else min(n_samples, there_are)
    counts = {"chunk_size": chunk_size, "seed": seed, "n_draws": n_samples + more}
    per_visit = max(1, n_samples // len(table)) if mode["per"] == "episode" else 1
    want = reference.draws_by_turns(table, **mode, **counts, per_visit=per_visit)
    assert draw(table, mode, **counts, n_samples=n_samples) == want


@given(mode=modes, table=tables, seed=st.integers(0, 1000), data=st.data())
def test_every_mode_goes_on_and_passes_over_the_order_of_episodes(mode, table, seed, data):
    there_are = len(windows_of(table, 4, mode["tail"]))
    assume(there_are)
    counts = {"chunk_size": 4, "seed": seed, "n_samples": there_are}
    longer = draw(table, mode, **counts, n_draws=400)
    n_draws = data.draw(st.integers(1, 400))
    shuffled = data.draw(st.permutations(table))
    assert draw(shuffled, mode, **counts, n_draws=n_draws) == longer[:n_draws]
    if mode["per"] != "episode" or not mode["replace"]:  # the reference visits by n_samples
        assert draw(table, mode, **counts | {"n_samples": 1}, n_draws=400) == longer


@given(mode=modes, table=tables, seed=st.integers(0, 1000))
def test_without_replacement_each_window_comes_once_and_then_it_ends(mode, table, seed):
    windows = windows_of(table, 4, mode["tail"])
    assume(windows)
    mode = mode | {"replace": False}
    counts = {"chunk_size": 4, "seed": seed, "n_samples": len(windows)}
    drawn = draw(table, mode, **counts)
    assert sorted(drawn) == sorted(windows)
    assert draw(table, mode, **counts, n_draws=len(windows) + 1) == drawn


@given(mode=modes, table=tables, seed=st.integers(0, 1000))
@example(MODES[2], [(i, n, 0) for i, n in enumerate([9, 1, 30, 0, 4])], 0)
def test_groups_that_are_not_exhausted_differ_by_one_draw_at_most(mode, table, seed):
    windows = windows_of(table, 4, mode["tail"])
    assume(windows)
    group = group_of(table, mode["per"])
    size = Counter(group[episode] for episode, _ in windows)
    counts = {"chunk_size": 4, "seed": seed, "n_samples": 1}  # so the reference's visits are 1, too
    seen = dict.fromkeys(size, 0)
    most = dict.fromkeys(size, len(windows)) if mode["replace"] else size
    for episode, _ in draw(table, mode, **counts, n_draws=len(windows)):
        seen[group[episode]] += 1
        rounds = min((seen[g] for g in size if seen[g] < most[g]), default=max(most.values()))
        assert all(min(rounds, most[g]) <= seen[g] <= rounds + 1 for g in size)


def test_groups_take_turns_in_an_order_of_the_seed():
    sizes = np.array([3, 0, 1, 5])
    group = np.repeat(np.arange(4), sizes)
    first_rounds = set()
    for seed in range(100):
        drawn = group[draw_distinct(sizes, 9, np.random.default_rng(seed))].tolist()
        a, b, c = drawn[:3]
        first_rounds.add((a, b, c))
        assert {a, b, c} == {0, 2, 3}
        later = [g for g in (a, b, c) if g != 2]
        assert drawn[3:] == [*later, *later, 3, 3]
    assert len(first_rounds) == 6


def test_every_order_of_a_group_is_equally_likely():
    """24,000 groups of four are dealt in each of 24 orders 1,000 times, up to five deviations."""
    drawn = draw_distinct(np.full(24_000, 4), 96_000, np.random.default_rng(0))
    orders = drawn[np.argsort(drawn // 4, kind="stable")].reshape(-1, 4) % 4
    kinds, times = np.unique(orders, axis=0, return_counts=True)
    assert kinds.tolist() == [list(order) for order in itertools.permutations(range(4))]
    assert (abs(times - 1000) < 5 * 31).all()


@pytest.mark.parametrize("draw_windows", [draw_repeating, draw_distinct])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("size", [1, 2, 13, 40])
def test_every_place_of_a_group_is_equally_likely(draw_windows, share, size):
    """Up to five deviations, for a part of the draws that a group can give."""
    draws = 20_000 * max(1, int(share * size))
    drawn = draw_windows(np.full(20_000, size), draws, np.random.default_rng(1))
    times = np.bincount(drawn % size, minlength=size)
    mean = draws / size
    assert (abs(times - mean) <= 5 * (mean * (1 - 1 / size)) ** 0.5).all()


def test_a_frame_is_as_likely_as_another_and_a_task_as_another():
    ids, lengths, tasks = np.arange(3), np.array([109, 19, 29]), np.array([7, 7, -1])
    args = {"chunk_size": 10, "n_samples": 65_000, "seed": 5}
    episode, _ = sample_chunks(ids, lengths, **args, per="frame")
    by_frame = np.bincount(episode) / 65_000 * 130
    np.testing.assert_allclose(by_frame, [100, 10, 20], rtol=0.05)
    episode, _ = sample_chunks(ids, lengths, **args, per="task", task_index=tasks)
    assert np.bincount(episode)[2] == 32_500  # unresolved episodes are one more task
    np.testing.assert_allclose(np.bincount(episode)[:2] / 32_500 * 110, [100, 10], rtol=0.05)


# What these draws are must never change, by NumPy's version or ours.
KEPT = {
    ("episode", True): [
        (9, 942484268),
        (9, 929893134),
        (1, 35),
        (1, 3),
        (0, 2),
        (0, 0),
        (9, 202244313),
        (9, 1130604993),
    ],
    ("episode", False): [
        (9, 942484268),
        (1, 17),
        (0, 2),
        (9, 184566854),
        (1, 28),
        (0, 1),
        (9, 202244315),
        (1, 22),
    ],
    ("frame", True): [
        (9, 1662057941),
        (9, 942484243),
        (9, 184566813),
        (9, 432652496),
        (9, 202244273),
        (9, 2095133036),
        (9, 392022321),
        (9, 1171300088),
    ],
    ("frame", False): [
        (9, 1662057941),
        (9, 1405681611),
        (9, 942484244),
        (9, 929893110),
        (9, 1843824979),
        (9, 1497586420),
        (9, 2095133036),
        (9, 1634535047),
    ],
    ("task", True): [
        (9, 1405681626),
        (1, 16),
        (9, 929893134),
        (1, 34),
        (9, 184566853),
        (1, 27),
        (9, 432652531),
        (1, 1),
    ],
    ("task", False): [
        (9, 1405681626),
        (1, 16),
        (9, 929893134),
        (1, 34),
        (9, 184566855),
        (1, 28),
        (9, 432652534),
        (1, 3),
    ],
}


@pytest.mark.parametrize(("per", "replace"), KEPT)
def test_draws_are_the_same_for_ever(per, replace):
    drawn = sample_chunks(
        [0, 1, 4, 9],
        [12, 50, 3, 2**31],
        chunk_size=10,
        n_samples=8,
        seed=42,
        per=per,
        replace=replace,
        task_index=[0, 0, -1, 3] if per == "task" else None,
    )
    assert pairs(drawn) == KEPT[per, replace]


def test_distinct_draws_of_billions_of_windows_take_the_memory_of_the_draws():
    episode, start = sample_chunks(
        np.arange(8), np.full(8, 2**30), chunk_size=1, n_samples=10**5, seed=0, replace=False
    )
    assert np.bincount(episode).tolist() == [12_500] * 8
    assert len(np.unique(episode * 2**30 + start)) == 10**5


@pytest.mark.parametrize("per", ["episode", "frame"])
def test_a_quota_that_cannot_be_met_is_an_error_that_counts_the_windows(per):
    args = {"chunk_size": 10, "seed": 0, "per": per, "replace": False}
    with pytest.raises(NoChunksError) as caught:
        sample_chunks([1, 2, 3], [9, 11, 12], **args, n_samples=6)
    for word in ("n_samples=6", "3 episodes have 5 windows", "tail='exclude'", "n_samples=5 or"):
        assert word in str(caught.value)
    assert len(sample_chunks([1, 2, 3], [9, 11, 12], **args, n_samples=5)[0]) == 5
    assert len(sample_chunks([1, 2, 3], [9, 11, 12], **args, n_samples=32, tail="clamp")[0]) == 32


def test_clamped_tails_leave_only_empty_episodes_out():
    args = {"chunk_size": 10, "seed": 0, "tail": "clamp", "replace": False}
    drawn = pairs(sample_chunks([5, 6, 7], [2, 0, 1], **args, n_samples=3))
    assert sorted(drawn) == [(5, 0), (5, 1), (7, 0)]
    with pytest.raises(NoChunksError, match="all 2 episodes have no frames"):
        sample_chunks([5, 6], [0, 0], **args, n_samples=1)


def test_int64_comes_out_of_every_mode():
    for mode in MODES:
        task_index = np.array([1, 1, -1], np.int8) if mode["per"] == "task" else None
        drawn = sample_chunks(
            np.arange(3, dtype=np.uint16),
            np.array([9, 2, 8], np.int32),
            chunk_size=4,
            n_samples=5,
            seed=0,
            task_index=task_index,
            **mode,
        )
        assert [(x.dtype, x.shape) for x in drawn] == [(np.int64, (5,))] * 2
