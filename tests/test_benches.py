"""The Python benches work and their sides agree; no time is looked at here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import data
import paired
import run
import suite

ROOT = Path(__file__).resolve().parent.parent
EPISODES = 8


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> data.Config:
    return data.Config(tmp_path_factory.mktemp("bench"), EPISODES)


def test_every_kernel_and_both_jobs_have_a_bench() -> None:
    rooms = {name.split("-")[0] for name in suite.SUITE}
    assert rooms >= {"scan", "episodes", "fit", "quantile", "gather", "dct", "rank", "job"}
    for variant in data.VARIANTS:
        assert {f"scan-{variant}", f"episodes-{variant}"} <= set(suite.SUITE)


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
    assert len(rows) == 2 + 5
    assert {line.count("|") for line in rows} == {7}
    page = tmp_path / "README.md"
    page.write_text(f"before\n{run.BEGIN}\nold\n{run.END}\nafter\n", encoding="utf-8")
    run.update(page, said)
    text = page.read_text(encoding="utf-8")
    assert said in text
    assert "old" not in text
    assert (text[:7], text[-7:]) == ("before\n", "\nafter\n")


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        ("debug", [], "release build"),
        ("debug", ["--update-readme", "--allow-debug"], "of a release build"),
        ("release", ["--update-readme", "dct"], "takes all benches"),
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
