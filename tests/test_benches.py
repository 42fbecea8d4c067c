"""The Python benches work and their sides agree; no time is looked at here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bars
import data
import paired
import peer_files
import run
import suite

ROOT = Path(__file__).resolve().parent.parent
EPISODES = 8


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> data.Config:
    return data.Config(tmp_path_factory.mktemp("bench"), EPISODES)


def test_every_kernel_and_both_jobs_have_a_bench() -> None:
    rooms = {name.split("-")[0] for name in suite.SUITE}
    assert rooms >= {"scan", "episodes", "fit", "quantile", "gather", "dct", "sweep", "rank", "job"}
    for variant in data.VARIANTS:
        wanted = {f"scan-{variant}", f"scan-{variant}-1thread", f"episodes-{variant}"}
        assert wanted <= set(suite.SUITE)


@pytest.mark.parametrize("name", suite.SUITE)
def test_all_sides_give_the_same_answer(name: str, config: data.Config) -> None:
    case = replace(suite.SUITE[name](config), fresh=False, memory=False)
    result = paired.measure(name, case, config, rounds=1)
    assert {paired.NUMPY, paired.OURS} <= set(result.seconds) == set(case.sides)
    assert all(len(seconds) == 1 and seconds[0] > 0 for seconds in result.seconds.values())


@pytest.mark.parametrize("side", [paired.NUMPY, paired.OURS])
def test_a_run_in_a_process_of_its_own(side: str, config: data.Config) -> None:
    ran = paired.run_apart("job-speed-rec", side, 1, config)
    here = suite.SUITE["job-speed-rec"](config).sides[side](0)
    assert ran.seconds > 0
    assert ran.peak >= 0
    paired.assert_equal(ran.answer, here)


def test_a_wrong_answer_ends_the_run(config: data.Config) -> None:
    case = paired.Case("x", {paired.NUMPY: lambda _: {1: 10}, paired.OURS: lambda _: {1: 20}})
    with pytest.raises(AssertionError):
        paired.measure("x", case, config, rounds=1)


def test_there_are_fewer_pairs_where_a_run_is_long(config: data.Config) -> None:
    assert (paired.rounds_for(5.0), paired.rounds_for(5.1)) == (7, 3)
    case = paired.Case("x", dict.fromkeys([paired.NUMPY, paired.OURS], lambda _: 1))
    assert paired.measure("x", case, config).rounds == 7


def test_a_file_per_episode_is_never_more_than_5000(config: data.Config) -> None:
    large = replace(config, episodes=32_000)
    assert large.of("v21").episodes == 5_000
    assert large.of("rec") == large
    assert config.of("v21") == config
    root = large.folder / f"v21-5000-g{data.GENERATION}"
    root.mkdir()
    assert data.dataset(large, "v21") == root


def test_every_bar_belongs_to_a_side_of_a_bench(config: data.Config) -> None:
    for table in bars.BARS.values():
        for name, bar in table.items():
            sides = suite.SUITE[name](config).sides
            unknown = set(bar.times) - set(sides)
            assert unknown <= (set() if peer_files.HAS_POLARS else {suite.POLARS}), name


def test_a_bar_is_held_against_the_median_and_the_memory(config: data.Config) -> None:
    bar = bars.Bar({paired.NUMPY: 2, suite.POLARS: 3}, lambda _: 10**6)

    def verdicts(ratio: float, rounds: int, peak: int) -> list[str]:
        seconds = {paired.NUMPY: [ratio] * rounds, paired.OURS: [1.0] * rounds}
        result = paired.Result("x", seconds, {paired.OURS: peak})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bars, "BARS", {"all": {"x": bar, "y": bar}})
            found = bars.verdicts({"x": result}, config)
        return [verdict.verdict for verdict in found["all"]]

    assert verdicts(2.0, 7, 10**6) == ["reached", "not measured", "reached"]
    few = "NOT REACHED; too few pairs (6)"
    assert verdicts(1.9, 6, 10**6 + 1) == [few, "not measured", "NOT REACHED"]
    assert verdicts(6.0, 3, 1)[0] == "reached"


def test_the_bar_of_a_scans_memory_has_room_for_result_and_footers(config: data.Config) -> None:
    bar = bars.BARS["scan and statistics"]["scan-rec"].memory
    assert bar is not None
    frames = int(data.lengths_and_tasks(config.episodes, config.tasks)[0].sum())
    footers = bar(config) - 64 * 10**6 - frames * (8 + 14 * 4)
    (path,) = data.dataset(config, "rec").glob("data/*/*.parquet")
    assert 1_000 < footers < path.stat().st_size


def test_a_reference_run_draws_as_many_chunks_as_ours() -> None:
    for episodes in (8, 12, 500, *data.EPISODES.values()):
        samples = data.Config(ROOT, episodes).n_samples
        assert min(512, 32 * episodes) <= samples <= 1024
        assert samples % episodes == 0 or episodes > samples


def test_ratios_are_taken_round_by_round() -> None:
    seconds = {paired.NUMPY: [2.0, 9.0, 8.0], paired.OURS: [1.0, 3.0, 2.0]}
    assert paired.Result("x", seconds).ratios(paired.NUMPY) == [2.0, 3.0, 4.0]
    shown = run.table([paired.Result("x", seconds, {paired.NUMPY: 5_000_000, paired.OURS: 10**6})])
    assert shown.splitlines()[-1] == "| x | 8.0 s | 2.0 s | 3.0 (2.0 to 4.0) |  | 5 MB → 1 MB |"


def test_the_table_and_its_place_in_the_readme(
    config: data.Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ["rank-*", "dct"]
    options = ["--episodes", str(EPISODES), "--folder", str(config.folder), "--rounds", "2"]
    run.main([*wanted, *options, "--allow-debug"])
    said = capsys.readouterr().out
    rows = [line for line in said.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(run.chosen(wanted, list(suite.SUITE)))
    assert {line.count("|") for line in rows} == {7}
    page = tmp_path / "README.md"
    page.write_text(f"before\n{run.BEGIN}\nold\n{run.END}\nafter\n", encoding="utf-8")
    run.update(page, said)
    text = page.read_text(encoding="utf-8")
    assert said in text
    assert "old" not in text
    assert (text[:7], text[-7:]) == ("before\n", "\nafter\n")


def test_bars_are_printed_after_the_table(
    config: data.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--episodes", str(EPISODES), "--folder", str(config.folder), "--rounds", "1"]
    run.main(["episodes-*", *options, "--bars", "--allow-debug"])
    said = capsys.readouterr().out
    assert "The bars are for size L, 32,000 episodes, not for these 8." in said
    table, verdicts = said.split("Bars of scan and statistics:")
    assert len([line for line in table.splitlines() if line.startswith("|")]) == 2 + 1
    assert [line.split(" | ")[1] for line in verdicts.strip().splitlines()[2:]] == [
        "NumPy / vlaprep",
        "pyarrow, row-group statistics / vlaprep",
    ]
    assert verdicts.count("too few pairs (1)") == 2


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        ("debug", [], "release build"),
        ("debug", ["--update-readme", "--allow-debug"], "of a release build"),
        ("release", ["--update-readme", "dct"], "takes all benches"),
        ("release", ["--update-readme", "--bars"], "takes all benches"),
        ("release", ["no-such-bench"], "there are: scan-rec"),
    ],
)
def test_what_would_mislead_is_refused(
    build: str, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run._native, "__build__", build)
    with pytest.raises(SystemExit, match=message):
        run.main([*options, "--folder", str(tmp_path)])


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("nothing to fill", encoding="utf-8")
    with pytest.raises(SystemExit, match="lacks the marks"):
        run.update(page, "table")
    assert page.read_text(encoding="utf-8") == "nothing to fill"


def test_datasets_are_made_once(config: data.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    root = data.dataset(config, "rec")

    def fail(*_: Any) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(data, "_build", fail)
    assert data.dataset(config, "rec") == root
