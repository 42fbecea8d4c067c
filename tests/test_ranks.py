"""Ranks, their barrier, and whether all hold the same: with real processes and without torch."""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import vlaprep
from fake_ranks import Barrier
from rank_steps import PATIENCE_S, STEPS, WORLD_SIZE, Answers, Steps, prepare, read_answers
from vlaprep import fit_report, ranks
from vlaprep.errors import RanksDisagreeError, TokenizerFormatError
from vlaprep.ranks import Ranks, barrier_after, meet_after, verify_ranks

WORKER = Path(__file__).with_name("rank_worker.py")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What processes answer that reach each other by files."""
    work = prepare(tmp_path_factory.mktemp("ranks"))
    command = [sys.executable, str(WORKER), str(work), *STEPS, "--files"]
    crew = [
        subprocess.Popen([*command, str(rank), str(WORLD_SIZE)], stderr=subprocess.PIPE)
        for rank in range(WORLD_SIZE)
    ]
    said = [member.communicate(timeout=PATIENCE_S)[1].decode() for member in crew]
    assert [member.returncode for member in crew] == [0] * WORLD_SIZE, "\n".join(said)
    return read_answers(work)


class TestPlainProcesses(Steps):
    """The steps of all, without torch."""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that nobody launched."""
    for pair in ranks._RANK_VARIABLES:
        for name in pair:
            monkeypatch.delenv(name, raising=False)
    for module in ("accelerate.state", "torch.distributed"):
        monkeypatch.delitem(sys.modules, module, raising=False)


class TestRanks:
    def test_alone(self) -> None:
        found = Ranks.detect()
        assert found == Ranks() == Ranks(0, 1, True)
        found.barrier()

    @pytest.mark.parametrize("index", [0, 3])
    def test_a_given_accelerator(self, index: int) -> None:
        accelerator = Barrier(4, index)
        found = Ranks.detect(accelerator)
        assert (found.rank, found.world_size, found.is_main) == (index, 4, index == 0)
        found.barrier()
        assert accelerator.waits == 1
        assert Ranks.detect(found) is found

    def test_an_accelerator_with_three_names_only(self) -> None:
        bare = SimpleNamespace(
            num_processes=2, is_main_process=False, wait_for_everyone=lambda: None
        )
        assert not Ranks.detect(bare).is_main

    def test_one_process_never_waits(self) -> None:
        accelerator = Barrier(1, 0)
        Ranks.detect(accelerator).barrier()
        assert accelerator.waits == 0

    def test_accelerates_state_when_initialised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        state = Barrier(2, 1)

        class PartialState:
            _shared_state: dict[str, int] = {}  # noqa: RUF012 (as accelerate has it)

            def __new__(cls) -> Any:
                assert cls._shared_state, "asking must not initialise"
                return state

        module: Any = SimpleNamespace(PartialState=PartialState)
        monkeypatch.setitem(sys.modules, "accelerate.state", module)
        assert Ranks.detect() == Ranks()
        PartialState._shared_state["num_processes"] = 2
        found = Ranks.detect()
        assert (found.rank, found.world_size, found.is_main) == (1, 2, False)
        found.barrier()
        assert state.waits == 1

    def test_torch_distributed_when_initialised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        waits: list[str] = []
        module: Any = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: False,
            get_rank=lambda: 0,
            get_world_size=lambda: 8,
            barrier=lambda: waits.append("torch"),
        )
        monkeypatch.setitem(sys.modules, "torch.distributed", module)
        assert Ranks.detect() == Ranks()
        module.is_initialized = lambda: True
        found = Ranks.detect()
        assert (found.rank, found.world_size, found.is_main) == (0, 8, True)
        found.barrier()
        assert waits == ["torch"]
        module.is_available = lambda: False
        assert Ranks.detect() == Ranks()

    @pytest.mark.parametrize(
        ("variables", "expected"),
        [
            ({"RANK": "3", "WORLD_SIZE": "4"}, Ranks(3, 4, False)),
            ({"RANK": "0", "WORLD_SIZE": "4"}, Ranks(0, 4, True)),
            ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, Ranks(1, 2, False)),
            ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, Ranks(2, 4, False)),
            ({"PMI_RANK": "0", "PMI_SIZE": "4"}, Ranks(0, 4, True)),
            ({"RANK": "1", "WORLD_SIZE": "8", "LOCAL_RANK": "0"}, Ranks(1, 8, False)),
            (
                {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
                Ranks(1, 2, False),
            ),
            ({"RANK": "3"}, Ranks()),
            ({"RANK": "x", "WORLD_SIZE": "4"}, Ranks()),
            ({"RANK": "0", "WORLD_SIZE": "1", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, Ranks()),
        ],
    )
    def test_environment(
        self, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: Ranks
    ) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        found = Ranks.detect()
        assert found == expected
        found.barrier()
        assert found.gather("me") == (None if expected.world_size > 1 else ["me"])


class TestBarrier:
    def test_it_is_met_once_whatever_the_block_does(self) -> None:
        accelerator = Barrier(2, 0)
        with barrier_after(Ranks.detect(accelerator)):
            assert accelerator.waits == 0
        assert accelerator.waits == 1
        for error in (ValueError("eels"), KeyboardInterrupt(), SystemExit(3)):
            accelerator.waits = 0
            with pytest.raises(type(error)) as caught, barrier_after(Ranks.detect(accelerator)):
                raise error
            assert caught.value is error
            assert accelerator.waits == 1

    def test_what_the_block_raised_says_more_than_a_barrier_that_breaks(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken() -> None:
            raise RuntimeError("connection closed by peer")

        some = Ranks(0, 2, True, broken)
        with pytest.raises(ValueError, match="eels"), barrier_after(some):
            raise ValueError("eels")
        assert "connection closed by peer" in caplog.text
        with pytest.raises(RuntimeError, match="closed by peer"), barrier_after(some):
            pass

    def test_a_function_that_meets_keeps_its_face(self) -> None:
        accelerator = Barrier(2, 1)

        @meet_after
        def answer(*, accelerator: Any = None) -> int:
            """Tell."""
            return 42

        assert answer(accelerator=accelerator) == 42
        assert (accelerator.waits, answer.__name__, answer.__doc__) == (1, "answer", "Tell.")

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({}, None),
            ({"chunk_size": 0}, ValueError),
            ({"chunk_size": 1000}, vlaprep.NoChunksError),
            ({"dataset_root": "nowhere"}, vlaprep.DatasetNotFoundError),
            ({"base_tokenizer_name": "no such base"}, TokenizerFormatError),
            ({"episodes": [99]}, vlaprep.EpisodeSelectionError),
            ({"vocab_size": 2}, vlaprep.VocabularyError),
        ],
        ids=str,
    )
    def test_a_fit_meets_once_on_every_path(
        self, tmp_path: Path, options: dict[str, Any], error: type[Exception] | None
    ) -> None:
        prepare(tmp_path)
        some = {"dataset_root": tmp_path / "data", "n_samples": 20, "chunk_size": 5} | options
        for _ in range(2):  # the second time is a hit, or fails again
            accelerator = Barrier(4, 3)
            some |= {"accelerator": accelerator}
            if error is None:
                vlaprep.fit_fast_tokenizer(cache_dir=tmp_path / "cache", **some)
            else:
                with pytest.raises(error):
                    vlaprep.fit_fast_tokenizer(cache_dir=tmp_path / "cache", **some)
            assert accelerator.waits == 1

    def test_one_process_waits_for_nobody(self, tmp_path: Path) -> None:
        accelerator = Barrier(1, 0)
        with pytest.raises(ValueError, match="no dataset"):
            vlaprep.fit_fast_tokenizer(cache_dir=tmp_path, accelerator=accelerator)
        assert accelerator.waits == 0


def write_fit(folder: Path, seed: int = 1, text: str = "{}", **results: Any) -> Path:
    """A folder as a fit leaves it, without a fit."""
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(text)
    fit_report.write_report(folder, {"seed": seed, "dataset": {"commit": "c0"}}, results)
    return folder


def told_to(others: list[Any]) -> Ranks:
    """Rank 0 of several, where the others answer what is given."""
    return Ranks(0, len(others) + 1, True, lambda: None, lambda mine: [mine, *others])


def seen_by_itself(folder: Path) -> Any:
    """What a process with this folder tells the others."""
    told: list[Any] = []

    def collect(mine: Any) -> list[Any]:
        told.append(mine)
        return [mine, mine]

    verify_ranks(folder, accelerator=Ranks(0, 2, True, lambda: None, collect))
    return json.loads(json.dumps(told[0]))  # plain data, that any process can read


class TestVerify:
    def test_one_process_gets_the_digest(self, tmp_path: Path) -> None:
        folder = write_fit(tmp_path / "a")
        digest = verify_ranks(str(folder))
        assert verify_ranks(folder) == digest == verify_ranks(write_fit(tmp_path / "b"))
        report = hashlib.sha256((folder / "fit_report.json").read_bytes()).hexdigest()
        tokenizer = hashlib.sha256(b"{}").hexdigest()
        files = [["fit_report.json", report], ["tokenizer.json", tokenizer]]
        whole = json.dumps([fit_report.read_report(folder)["signature"], files])
        assert digest == hashlib.sha256(whole.encode()).hexdigest()

    @pytest.mark.parametrize("change", ["seed", "text", "norm"])
    def test_anything_that_differs_is_another_digest(self, tmp_path: Path, change: str) -> None:
        other: dict[str, Any] = {"seed": 2, "text": "[]", "norm": {"lo": [0.5]}}
        mine = verify_ranks(write_fit(tmp_path / "a"))
        assert verify_ranks(write_fit(tmp_path / "b", **{change: other[change]})) != mine

    def test_environment_alone_compares_nothing_and_says_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "4")
        digest = verify_ranks(write_fit(tmp_path / "a"))
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        told = record.getMessage()
        assert told.startswith("nothing was compared: the environment tells of 4 processes")
        assert "init_process_group" in told
        assert digest in told

    def test_torch_is_not_imported(self, tmp_path: Path) -> None:
        code = (
            "import sys, vlaprep; vlaprep.verify_ranks(sys.argv[1]); "
            "print([m for m in ('torch', 'accelerate', 'transformers') if m in sys.modules])"
        )
        command = [sys.executable, "-c", code, str(write_fit(tmp_path / "a"))]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == "[]"

    def test_results_that_differ_are_named(self, tmp_path: Path) -> None:
        same = {"normalization": {"hi": [1.0]}}
        mine = write_fit(tmp_path / "a", text="{}", normalization={"lo": [0.0]} | same)
        other = write_fit(tmp_path / "b", text="[]", normalization={"lo": [0.5]} | same)
        answers = [seen_by_itself(mine), seen_by_itself(other)]
        with pytest.raises(RanksDisagreeError) as caught:
            verify_ranks(mine, accelerator=told_to(answers))
        told = str(caught.value)
        assert told.startswith("1 of 3 processes do not hold the tokenizer that 2 hold (rank 0 on")
        assert "rank 2 on" in told
        assert "normalization.lo ([0.5] instead of [0.0])" in told
        assert "normalization.hi" not in told
        assert "tokenizer.json" in told

    def test_most_are_right_and_a_message_has_an_end(self, tmp_path: Path) -> None:
        mine = write_fit(tmp_path / "a", seed=1)
        others = [seen_by_itself(write_fit(tmp_path / str(s), seed=s)) for s in range(2, 10)]
        others += [others[-1]]
        with pytest.raises(RanksDisagreeError) as caught:
            verify_ranks(mine, accelerator=told_to(others))
        told = str(caught.value)
        assert told.startswith("8 of 10 processes do not hold the tokenizer that 2 hold (rank 8 on")
        assert "rank 0 on" in told
        assert "inputs.seed (1 instead of 9)" in told
        assert "; and 3 more" in told
        assert len(told) < 1000

    def test_files_that_one_lacks_are_named(self, tmp_path: Path) -> None:
        mine = write_fit(tmp_path / "a")
        more = tmp_path / "b"
        more.mkdir()
        (more / "chunks.npz").write_text("more")
        (more / "tokenizer.json").write_text("{}")
        fit_report.write_report(more, {"seed": 1, "dataset": {"commit": "c0"}}, {})
        with pytest.raises(RanksDisagreeError, match=r"chunks.npz \(absent elsewhere\)"):
            verify_ranks(mine, accelerator=told_to([seen_by_itself(mine), seen_by_itself(more)]))
        with pytest.raises(RanksDisagreeError, match=r"chunks.npz \(absent\)"):
            verify_ranks(mine, accelerator=told_to([seen_by_itself(more), seen_by_itself(more)]))

    @pytest.mark.parametrize("broken", ["absent", "torn", "changed", "file"])
    def test_a_broken_folder_takes_part_with_its_error(self, tmp_path: Path, broken: str) -> None:
        folder = write_fit(tmp_path / "a")
        whole = seen_by_itself(folder)
        if broken == "absent":
            folder = tmp_path / "nowhere"
        elif broken == "torn":
            (folder / "fit_report.json").write_text("{")
        elif broken == "changed":
            (folder / "tokenizer.json").write_text("{ }")
        else:
            folder = folder / "tokenizer.json"
        told: list[Any] = []

        def collect(mine: Any) -> list[Any]:
            told.append(mine)
            return [mine, whole]

        with pytest.raises(TokenizerFormatError) as caught:
            verify_ranks(folder, accelerator=Ranks(0, 2, True, lambda: None, collect))
        assert told[0]["error"] == f"TokenizerFormatError: {caught.value}"
        mine = write_fit(tmp_path / "mine")
        with pytest.raises(RanksDisagreeError, match=r"rank 1 on .* has none \(TokenizerFormatErr"):
            verify_ranks(mine, accelerator=told_to([told[0]]))

    def test_a_folder_named_like_a_digest_is_a_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = "0123456789abcdef"
        assert verify_ranks(name) == name
        write_fit(tmp_path / name)
        monkeypatch.chdir(tmp_path)
        assert len(verify_ranks(name)) == 64
        with pytest.raises(TokenizerFormatError):
            verify_ranks(Path("f" * 16))
