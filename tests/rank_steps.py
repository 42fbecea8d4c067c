"""What processes must answer, step for step, whatever carries their process group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lerobot_folder import make_rows, write_v3

WORLD_SIZE = 3
STEPS = ["shared", "local", "raises", "seed", "absent", "tampered", "digests", "shared"]
PATIENCE_S = 120

Answers = list[dict[str, Any]]


def prepare(work: Path) -> Path:
    """Put the dataset where the workers look for it."""
    write_v3(work / "data", make_rows(dict.fromkeys(range(4), (0, 12))))
    return work


def read_answers(work: Path, world_size: int = WORLD_SIZE) -> Answers:
    paths = [work / f"answers-{rank}.json" for rank in range(world_size)]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


class Steps:
    """Tests of the answers; a subclass has them made, by the fixture ``answers``."""

    def test_no_step_leaves_the_processes_in_different_collectives(self, answers: Answers) -> None:
        for step in STEPS:
            together = [answer[step]["together"] for answer in answers]
            assert together == [together[0]] * WORLD_SIZE
            assert [name for name, _ in together[0]] == [step] * WORLD_SIZE

    def test_all_get_the_same_folder(self, answers: Answers) -> None:
        folders = {answer["shared"]["folder"] for answer in answers}
        assert len(folders) == 1
        assert [path.name for path in Path(folders.pop()).parent.glob(".*")] == []

    def test_caches_of_their_own_hold_the_same(self, answers: Answers) -> None:
        assert len({answer["local"]["folder"] for answer in answers}) == WORLD_SIZE
        digests = {answer[step]["digest"] for answer in answers for step in ("local", "shared")}
        assert len(digests) == 1
        assert len(digests.pop()) == 64

    def test_who_raises_says_why_and_the_others_go_on(self, answers: Answers) -> None:
        good, lost, wrong = (answer["raises"] for answer in answers)
        assert "folder" in good
        assert lost["error"] == "DatasetNotFoundError"
        assert wrong["error"] == "ValueError"
        assert "chunk_size" in wrong["message"]

    def test_other_arguments_are_named(self, answers: Answers) -> None:
        for answer in answers:
            assert answer["seed"]["error"] == "RanksDisagreeError"
            message = answer["seed"]["message"]
            assert message.startswith("1 of 3 processes do not hold the tokenizer that 2 hold")
            assert "rank 1 on " in message
            assert "inputs.seed (7 instead of 42)" in message

    def test_who_has_no_folder_says_so_to_all(self, answers: Answers) -> None:
        assert answers[1]["absent"]["error"] == "TokenizerFormatError"
        assert "there is no fit_report.json" in answers[1]["absent"]["message"]
        for answer in (answers[0], answers[2]):
            assert answer["absent"]["error"] == "RanksDisagreeError"
            assert "has none (TokenizerFormatError: there is no" in answer["absent"]["message"]

    def test_a_folder_that_was_changed_is_found(self, answers: Answers) -> None:
        assert answers[1]["tampered"]["error"] == "TokenizerFormatError"
        for answer in (answers[0], answers[2]):
            assert answer["tampered"]["error"] == "RanksDisagreeError"
            assert "rank 1 on" in answer["tampered"]["message"]
            assert "tokenizer.json is not what the fit wrote" in answer["tampered"]["message"]

    def test_digests_are_compared_too(self, answers: Answers) -> None:
        for answer in answers:
            assert answer["digests"]["error"] == "RanksDisagreeError"
            assert "digest (fedcba9876543210 instead of 0" in answer["digests"]["message"]
