"""The command line: what goes to which stream, exit codes, help, options."""

from __future__ import annotations

import inspect
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import vlaprep
from command_line import CLEAN, COMMAND, SMALL_FIT, execute, run, run_json
from vlaprep import cli, cli_options, cli_session, coordinate, jobs
from vlaprep.speed import SPEED_PERCENTILES_PATH

COMMANDS = ("speed", "fit", "inspect", "audit", "demo")


# ------------------------------------------------------------------------ streams, exit codes


def test_people_read_stderr_and_programs_stdout(root: Path) -> None:
    read = execute("speed", root)
    assert (read.returncode, read.stdout) == (0, "")
    assert "wipe the ta" in read.stderr
    assert str(root / SPEED_PERCENTILES_PATH) in read.stderr  # in one piece, however long
    parsed = execute("speed", root, "--json")
    assert (parsed.returncode, parsed.stderr) == (0, "")
    assert json.loads(parsed.stdout)["file"]["state"] == "kept"


@pytest.mark.parametrize("command", ["speed", "fit", "inspect"])
def test_a_bad_dataset_is_one_clean_message(command: str, tmp_path: Path) -> None:
    ran = execute(command, tmp_path / "nowhere")
    assert (ran.returncode, ran.stdout) == (1, "")
    _, error = ran.stderr.splitlines()
    assert error.startswith("error: ")
    assert str(tmp_path / "nowhere") in error


@pytest.mark.parametrize("debug", [{"arguments": ["--debug"]}, {"env": {"VLAPREP_DEBUG": "1"}}])
def test_debug_shows_the_traceback(debug: dict[str, Any], tmp_path: Path) -> None:
    arguments, env = debug.get("arguments", []), debug.get("env", {})
    ran = execute("speed", tmp_path / "nowhere", *arguments, **env)
    assert ran.returncode == 1
    assert "Traceback" in ran.stderr
    assert "DatasetNotFoundError" in ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["train"],
        ["speed"],
        ["speed", "x", "--no-such-option"],
        ["speed", "x", "--ties", "left"],
        ["fit", "x", "--n-samples", "0"],
        ["fit", "x", "--nan", "keep"],
        ["fit", "x", "--max-error", "0.1"],
        ["fit", "x", "--scales", "5"],
        ["fit", "x", "--vocab-sizes", "512"],
        ["fit", "x", "--advise", "--scales", "5,ten"],
        ["fit", "x", "--advise", "--vocab-sizes", "512.5"],
        ["inspect", "x", "--no-stats", "--column", "action"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_json_without_a_stdout_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(OSError, match="stdout is closed"):
        cli_session.Session("audit", as_json=True).finish({})


def test_usage_errors_of_the_executable_go_to_stderr() -> None:
    ran = execute("speed")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "DATASET" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_fault_of_ours_is_not_dressed_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: object, **__: object) -> None:
        raise KeyError("a fault")

    monkeypatch.setattr(jobs, "run_speed", faulty)
    with pytest.raises(KeyError):
        run("speed", root)


def test_other_errors_tell_where_to_look_further(tmp_path: Path, root: Path) -> None:
    (tmp_path / "file").touch()
    ran = run("fit", root, *SMALL_FIT, "--cache-dir", tmp_path / "file")
    assert ran.exit_code == 1
    assert "--debug" in ran.stderr


def test_interrupt_leaves_nothing(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    arguments = ["fit", str(root), "--cache-dir", str(cache), "--n-samples", "4000"]
    with subprocess.Popen(
        [*COMMAND, *arguments], env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 60
        while not list(cache.glob(".*.tmp")):  # the folder being built
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=100)
    assert (process.returncode, stdout) == (130, "")
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    assert list(cache.iterdir()) == []


def test_a_reader_that_goes_away_is_no_traceback(root: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = subprocess.run(
            [*COMMAND, "speed", str(root), "--json"],
            env=CLEAN,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert ran.returncode == 1
    assert ran.stderr == ""


def test_the_command_line_starts_without_the_heavy_packages() -> None:
    code = "import sys; from vlaprep import cli; print(*sorted(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert "typer" in loaded
    assert not loaded & {"transformers", "pyarrow", "huggingface_hub", "tokenizers", "torch"}


def test_logging_is_as_it_was_after_a_command(root: Path) -> None:
    names = ("vlaprep", "py.warnings", *cli_session.TOLD_BY_INFO)
    before = [(logging.getLogger(n).level, list(logging.getLogger(n).handlers)) for n in names]
    run("speed", root)
    run("speed", root / "nowhere")
    after = [(logging.getLogger(n).level, list(logging.getLogger(n).handlers)) for n in names]
    assert after == before


def test_waiting_for_another_process_is_told(root: Path, tmp_path: Path) -> None:
    target = Path(run_json("fit", root, *SMALL_FIT, "--cache-dir", tmp_path)["folder"])
    shutil.rmtree(target)
    with coordinate.file_lock(target, 1):
        ran = run("fit", root, *SMALL_FIT, "--cache-dir", tmp_path, "--wait-timeout-s", "0.2")
    assert ran.exit_code == 1
    assert f"waiting for the lock {tmp_path}" in ran.stderr
    assert "error: waited 0.2 s" in ran.stderr


# ------------------------------------------------------------------------------- help, options


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_an_example(command: str) -> None:
    text = run(command, "--help").stdout
    example = text.split("Example:")[1]
    assert f"\n    vlaprep {command} " in example
    assert {line for line in text.splitlines() if len(line) > 80} == set()
    assert f"  {command} " in run("--help").stdout


def test_version() -> None:
    assert run("--version").stdout == f"vlaprep {vlaprep.__version__}\n"


def test_underscores_and_dashes_both_work(root: Path, tmp_path: Path) -> None:
    assert run_json("speed", root, "--dry_run")["file"]["dry_run"] is True
    cache = ["--cache_dir", tmp_path / "cache"]
    options = [option.replace("-", "_").replace("__", "--") for option in SMALL_FIT]
    assert options[0] == "--n_samples"
    fitted = run_json("fit", root, *options, *cache)
    assert fitted["inputs"]["n_samples"] == 64
    assert run_json("fit", root, *SMALL_FIT, *cache)["cached"] is True


def test_fit_has_every_argument_of_the_function_with_its_default() -> None:
    function = inspect.signature(vlaprep.fit_fast_tokenizer).parameters
    command = inspect.signature(cli.fit).parameters
    asked = {name: parameter.default for name, parameter in command.items()}
    wanted = {name: parameter.default for name, parameter in function.items()}
    for name in ("dataset", "as_json", "debug", "cache_dir"):
        asked.pop(name)
    for name in ("advise", "scales", "vocab_sizes", "max_error"):
        asked.pop(name)  # of vlaprep.advise_tokenizer
    wanted.pop("accelerator")  # an object of the process
    for name in ("dataset_repo_id", "cache_dir"):  # no default there
        wanted.pop(name)
    for name in ("nan", "coverage", "alphabet", "per", "tail"):
        asked[name] = asked[name].value
    assert asked == wanted
    assert len(wanted) > 12


@pytest.mark.parametrize(
    ("text", "ids"),
    [("3", [3]), ("0:3", [0, 1, 2]), ("5,0:2, 1", [0, 1, 5]), ("[2, 4]", [2, 4])],
)
def test_episodes_are_ids_and_ranges(text: str, ids: list[int], root: Path) -> None:
    answer = run_json("speed", root, "--dry-run", "--episodes", text)
    assert answer["episodes"] == len(ids)
    assert cli_options.ids_of(text) == ids


@pytest.mark.parametrize("text", ["", "a", "1:", ":5", "3:3", "-1", "1.5", "1,,2", "0:99999999999"])
def test_what_is_no_selection_is_wrong_usage(text: str, root: Path) -> None:
    assert run("speed", root, f"--episodes={text}").exit_code == 2
    assert run("fit", root, f"--exclude-episodes={text}").exit_code == 2
