"""What the card of a published tokenizer tells of its actions and of its trial."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vlaprep
from test_action_space import robot_rows, write_robot
from vlaprep import publish
from vlaprep.model_card import model_card

NAME = "org/fast"
OF_A_POLICY = {"dims": ["grip", "x", "y"], "absolute": ["grip", "2"], "max_action_dim": 8}


def fit(folder: Path, **options: Any) -> Path:
    data = write_robot(folder / "data", robot_rows((14, 20, 17, 25, 31)))
    small = {"chunk_size": 6, "n_samples": 40, "gate": False, "cache_dir": folder / "cache"}
    return Path(vlaprep.fit_fast_tokenizer(dataset_root=data, **small | options))


def card_of(folder: Path) -> tuple[str, dict[str, Any]]:
    report = json.loads((folder / "fit_report.json").read_text())
    return publish.draft(folder, NAME).card, report


def section(card: str, name: str) -> str:
    return card.split(f"\n## {name}\n")[1].split("\n## ")[0]


def rows(table: str) -> list[list[str]]:
    """Cells of the last table, its head first."""
    lines = [line for line in table.rstrip().split("\n\n")[-1].splitlines() if line[0] == "|"]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if set(row) != {"---"}]


def test_the_card_tells_how_a_chunk_is_made(tmp_path: Path) -> None:
    card, _ = card_of(fit(tmp_path, tail="clamp", **OF_A_POLICY))
    told = section(card, "Action space")
    steps = re.findall(r"^\d\. (.*)$", told, re.MULTILINE)
    assert steps == [
        "6 consecutive frames of column `action`, the last frame of the episode repeated past its "
        "end",
        "minus `observation.state` at the first of them, in the relative dims",
        "the dims below, in that order",
        "normalisation",
        "zeros up to 8 dims",
    ]
    assert rows(told) == [
        ["dim", "name", "dim of the column", "relative"],
        ["0", "grip", "3", ""],
        ["1", "x", "0", "yes"],
        ["2", "y", "1", "yes"],
    ]


def test_plain_actions_need_few_words(tmp_path: Path) -> None:
    card, report = card_of(fit(tmp_path))
    told = section(card, "Action space")
    assert re.findall(r"^\d\. (.*)$", told, re.MULTILINE) == [
        "6 consecutive frames of column `action`",
        "normalisation",
    ]
    assert "relative" not in told
    assert [row[1] for row in rows(told)[1:]] == report["actions"]["names"]


@pytest.mark.parametrize("options", [{}, OF_A_POLICY], ids=["plain", "padded"])
def test_the_code_of_the_card_runs(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = fit(tmp_path, **options)
    card, report = card_of(folder)
    (code,) = re.findall(
        r"^```python\n((?:import numpy as np\n)?import vlaprep.*?)^```",
        card,
        re.MULTILINE | re.DOTALL,
    )
    code, found = re.subn(r"^.*download_tokenizer.*\n", "", code, flags=re.MULTILINE)
    assert found == 2, "the import, and the call, which wants the Hub"
    examples = json.loads((folder / "fit_examples.json").read_text())["chunks"]
    names: dict[str, Any] = {
        "folder": folder,
        "chunks": np.array([chunk["original"] for chunk in examples], dtype=np.float32),
    }
    exec(code, names)
    decoded = [chunk["decoded"] for chunk in examples]
    np.testing.assert_allclose(names["actions"], decoded, atol=1e-3)
    assert names["ids"].tolist() == [i for chunk in examples for i in chunk["ids"]]
    assert names["actions"].shape[2] == report["draws"]["action_dim"]


def test_the_card_tells_the_trial(tmp_path: Path) -> None:
    card, report = card_of(fit(tmp_path, validation_episodes=[1, 4], validation_samples=30))
    told, trial = section(card, "Trial"), report["validation"]
    assert "30 chunks of 2 held-out episodes, which gave the fit no chunk" in told
    tokens, normal, units = trial["tokens"], trial["normalized"], trial["dataset_units"]
    for line in (
        f"| RMSE, normalised | {normal['rmse']:.6g} |",
        f"| share of coefficients that come back exactly | {trial['exact_symbols']:.6g} |",
        f"| share of them out of the fitted range | {trial['symbols_out_of_range']:.6g} |",
        f"| tokens a chunk, 50 % | {tokens['p50']:.6g} |",
        f"| tokens a chunk, 99 % | {tokens['p99']:.6g} |",
        f"| tokens a chunk, at most | {tokens['max']} |",
    ):
        assert line in told
    head, *by_dim = rows(told)
    units_name = "units of the data set"
    assert head[:5] == [
        *("dim", "name", "RMSE, normalised"),
        *(f"{what}, {units_name}" for what in ("RMSE", "max")),
    ]
    for dim, row in enumerate(by_dim):
        numbers = (normal["rmse_by_dim"], units["rmse_by_dim"], units["max_by_dim"])
        assert row[:2] == [str(dim), trial["names"][dim]]
        assert row[2:5] == [f"{values[dim]:.6g}" for values in numbers]
        assert row[5] == f"{trial['clipped_values'][dim]:.6g}"
    assert len(by_dim) == 5


def test_the_card_says_where_nothing_was_held_out(tmp_path: Path) -> None:
    told = section(card_of(fit(tmp_path))[0], "Trial")
    assert "256 further chunks of the same 5 episodes" in told
    assert "none was held out" in told
    untried = section(card_of(fit(tmp_path, validation_samples=0))[0], "Trial")
    assert "was not tried" in untried


def test_a_report_without_actions_and_trial_has_a_card(tmp_path: Path) -> None:
    folder = fit(tmp_path)
    report = json.loads((folder / "fit_report.json").read_text())
    config = json.loads((folder / "processor_config.json").read_text())
    del report["actions"], report["validation"]
    card = model_card(NAME, config, report)
    assert "## Normalisation" in card
    assert "## Trial" not in card
    assert "## Action space" not in card
