"""Publishing: a checked folder becomes one commit of a model repository, or nothing happens."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import vlaprep
from action_chunks import fitted
from command_line import run, run_json
from hub_calls import ask, refused
from hub_server import READ_TOKEN, TOKEN, Faults, HubServer, Repo, folder_files, serve
from lerobot_folder import make_rows, write_v3
from vlaprep import publish
from vlaprep.errors import TokenizerFormatError
from vlaprep.model_card import BEGIN, END, merged_card, model_card

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "org/fast"
TOKENS = {"HF_TOKEN": TOKEN}
OLD_CARD = f"""---
license: mit
tags:
- towels
datasets:
- org/old
---
# Ours

Words of our own.

{BEGIN}
stale numbers
{END}

More words.
"""


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted folder; read, never written, here."""
    root = tmp_path_factory.mktemp("fit")
    data = write_v3(root / "data", make_rows(dict.fromkeys(range(6), (0, 12)), dim=2))
    options = {"cache_dir": root / "cache", "chunk_size": 5, "n_samples": 30, "vocab_size": 300}
    return Path(vlaprep.fit_fast_tokenizer(dataset_root=data, **options))


@pytest.fixture
def folder(fit: Path, tmp_path: Path) -> Path:
    """Own copy of it."""
    return Path(shutil.copytree(fit, tmp_path / fit.name))


@pytest.fixture
def hub() -> Iterator[HubServer]:
    """An empty Hub."""
    with serve({}) as server:
        yield server


def push(folder: Path, **options: Any) -> dict[str, Any]:
    return {"call": "vlaprep.push_to_hub", "folder": folder, "repo_id": NAME} | options


def published(hub: HubServer, branch: str = "main") -> dict[str, bytes]:
    repo = hub.repos[NAME]
    return repo.commits[repo.refs[branch]]


def commits(hub: HubServer) -> int:
    return sum(r.method == "POST" and "/commit/" in r.path for r in hub.requests)


# ------------------------------------------------------------------------------- what is published


def test_a_fit_is_published_whole_in_one_commit(
    hub: HubServer, folder: Path, tmp_path: Path
) -> None:
    before = folder_files(folder)
    (folder / "notes.txt").write_text("not of the fit")
    (folder / "__pycache__").mkdir()
    again = push(folder, private=True)
    commit, same = ask(hub, tmp_path, again, again, **TOKENS)
    repo = hub.repos[NAME]
    assert commit == same == repo.main
    assert repo.private
    assert commits(hub) == 1, "nothing changed, so the second time there is nothing to commit"
    assert len(repo.commits) == 2, "the first is the Hub's own"
    assert repo.messages[commit] == f"Publish FAST tokenizer {folder.name}"
    files = published(hub)
    assert files.keys() == {*before, "README.md", ".gitattributes"}
    assert {name: files[name] for name in before} == before
    assert folder_files(folder) == before | {"notes.txt": b"not of the fit"}


def test_the_card_tells_the_fit(fit: Path) -> None:
    report = json.loads((fit / "fit_report.json").read_text())
    config = json.loads((fit / "processor_config.json").read_text())
    report["inputs"]["dataset"] = {"repo_id": "org/data", "commit": "c" * 40, "episodes": None}
    report["inputs"]["action_key"] = "a|b\n<script>"
    card = model_card(NAME, config, report)
    assert card == model_card(NAME, config, report)
    assert "datasets:\n- org/data\n" in card.split("---")[1]
    normalization = report["normalization"]
    errors = report["reconstruction"]["dataset_units"]
    tokens = report["tokens"]["per_chunk"]
    wanted = [
        "c" * 40,
        "| time horizon | 5 |",
        "| action dims | 2 |",
        "| scale, steps a unit | 10 |",
        "| vocabulary asked for | 300 |",
        f"| coefficients | {config['min_token']} to {config['max_token']} |",
        "`pi052`, mode `QUANTILES`",
        *(f"| {dim} | {normalization['lo'][dim]:.6g} |" for dim in range(2)),
        *(f"{value:.6g} |" for name in ("rms", "p99", "max") for value in errors[name]),
        f"at most {tokens['max']}",
        f'AutoProcessor.from_pretrained("{NAME}", trust_remote_code=True)',
        "vlaprep.Normalization.from_pretrained(folder)",
        report["signature"],
        r"a\|b \<script\>",
    ]
    assert [text for text in wanted if text not in card] == []


def test_a_local_data_set_is_not_named_as_one_of_the_hub(fit: Path) -> None:
    card = publish.draft(fit, NAME).card
    assert "datasets:" not in card.split("---")[1]
    assert "a local folder" in card


def test_a_card_that_is_there_keeps_what_people_wrote(fit: Path) -> None:
    new = publish.draft(fit, NAME).card
    card = merged_card(new, OLD_CARD)
    assert merged_card(new, card) == card
    assert "license: mit" in card
    assert card.index("towels") < card.index("robotics")
    assert "org/old" not in card
    assert "stale numbers" not in card
    words = ["Words of our own.", BEGIN, "## Normalisation", END, "More words."]
    assert sorted(words, key=card.index) == words
    plain = merged_card(new, "# Ours\n")
    assert plain.startswith("---\nlibrary_name")
    assert sorted(["# Ours", BEGIN, END], key=plain.index) == ["# Ours", BEGIN, END]
    with pytest.raises(ValueError, match="parsing"):
        merged_card(new, "---\n{{ mustache }}: [\n---\n# Ours\n")


def test_what_was_checked_is_uploaded(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from vlaprep import publish\n"
        "wanted = publish.draft(sys.argv[1], 'org/fast')\n"
        "Path(sys.argv[1], 'tokenizer.json').write_text('{}')\n"
        "print(publish.publish(wanted).commit)"
    )
    checked = (folder / "tokenizer.json").read_bytes()
    ran = hub.run(code, tmp_path, args=(folder,), **TOKENS)
    assert ran.stdout.strip() == hub.repos[NAME].main, ran.stderr
    assert published(hub)["tokenizer.json"] == checked


def test_an_earlier_tokenizer_gives_way_and_other_files_stay(
    hub: HubServer, folder: Path, tmp_path: Path
) -> None:
    old = {"README.md": OLD_CARD.encode(), "LICENSE": b"MIT", "figure.png": b"png"}
    stale = {"bpe_tokenizer/tokenizer.json": b"{}", "special_tokens_map.json": b"{}"}
    hub.repos[NAME] = Repo(old | stale | {"tokenizer.json": b"{}"}, kind="models")
    ask(hub, tmp_path, push(folder, commit_message="New towels"), **TOKENS)
    files = published(hub)
    assert files.keys() == {*folder_files(folder), *old}
    assert b"More words." in files["README.md"]
    repo = hub.repos[NAME]
    assert repo.messages == {repo.main: "New towels"}

    plain = tmp_path / "plain"
    fitted().save_pretrained(plain)
    ask(hub, tmp_path, push(plain, without_report=True), **TOKENS)
    assert "fit_report.json" not in published(hub), "else its normalisation would be believed"
    assert "fit_examples.json" not in published(hub)


def test_branches_and_pull_requests(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    hub.repos[NAME] = Repo({"README.md": OLD_CARD.encode()}, kind="models")
    first = hub.repos[NAME].main
    there = push(folder, revision="v2")
    branch, pull = ask(hub, tmp_path, there, push(folder, create_pr=True), **TOKENS)
    refs = hub.repos[NAME].refs
    assert refs == {"main": first, "v2": branch, "refs/pr/1": pull}
    assert published(hub, "v2") == published(hub, "refs/pr/1")
    proposal = push(folder, create_pr=True, commit_message="from a reader")
    gone = push(folder, create_pr=True, revision="v9")
    answers = ask(hub, tmp_path, proposal, gone, HF_TOKEN=READ_TOKEN)
    assert answers[0] == refs["refs/pr/2"]
    refused(answers[1], "PublishError", "no such branch")
    assert hub.repos[NAME].main == first


def test_large_files_go_to_their_own_storage(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    hub.lfs_from = 5_000
    hub.faults = Faults(first=1, status=503, only="PUT /lfs/")
    commit = ask(hub, tmp_path, push(folder), HF_HUB_DISABLE_XET="1", **TOKENS)
    assert commit == hub.repos[NAME].main
    files = folder_files(folder)
    assert {name: published(hub)[name] for name in files} == files
    large = {hashlib.sha256(data).hexdigest() for data in files.values() if len(data) >= 5_000}
    assert hub.blobs.keys() == large
    assert large


# ------------------------------------------------------------------------------ what is refused


def with_report(folder: Path, **changes: Any) -> None:
    path = folder / "fit_report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


TORN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a file cut": (lambda f: (f / "tokenizer.json").write_text("{"), "tokenizer.json is not what"),
    "a file absent": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json cannot be read"),
    "half a report": (lambda f: (f / "fit_report.json").write_text('{"sig'), "torn"),
    "a newer report": (lambda f: with_report(f, format_version=99), "newer"),
    "no files": (lambda f: with_report(f, files={}), "lists no files"),
    "other inputs": (lambda f: with_report(f, inputs={"seed": 1}), "not that of its inputs"),
    "no report": (lambda f: (f / "fit_report.json").unlink(), "without_report=True"),
    "no folder": (shutil.rmtree, "is no folder"),
}


@pytest.mark.parametrize("name", TORN)
def test_what_is_not_a_whole_fit_is_refused(folder: Path, name: str) -> None:
    spoil, words = TORN[name]
    spoil(folder)
    with pytest.raises(TokenizerFormatError, match=words) as caught:
        vlaprep.push_to_hub(folder, NAME)
    assert str(folder) in str(caught.value)


def test_a_folder_without_a_report_has_to_be_a_tokenizer(tmp_path: Path) -> None:
    fitted().save_pretrained(tmp_path)
    (tmp_path / "secret.json").write_text("{}")
    wanted = publish.draft(tmp_path, NAME, without_report=True)
    assert wanted.files.keys() == {path.name for path in tmp_path.iterdir()} - {"secret.json"}
    assert wanted.signature is None
    assert "no report of the fit" in wanted.card
    source = tmp_path / "processing_action_tokenizer.py"
    for spoil, words in (
        ((tmp_path / "tokenizer.json", "{"), "tokenizer.json"),
        ((source, None), source.name),
        ((tmp_path / "processor_config.json", "[]"), "processor_config.json is no JSON object"),
        ((tmp_path / "processor_config.json", None), "no processor_config.json"),
    ):
        path, text = spoil
        whole = path.read_bytes()
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(TokenizerFormatError, match=words) as caught:
            publish.draft(tmp_path, NAME, without_report=True)
        assert str(tmp_path) in str(caught.value)
        path.write_bytes(whole)


def test_names_that_are_none(folder: Path) -> None:
    for name in ("fast", "org/fast/x", "", "org/.x"):
        with pytest.raises(ValueError, match="no Hub id"):
            vlaprep.push_to_hub(folder, name)
    with pytest.raises(ValueError, match="is a commit"):
        vlaprep.push_to_hub(folder, NAME, revision="a" * 40)


def test_who_may_not_write_is_told_why(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    files = {"README.md": b"#"}
    hub.repos |= {
        "org/data": Repo(files),
        "org/open": Repo(files, kind="models"),
        "org/shut": Repo(files, kind="models", private=True),
        "org/odd": Repo({"README.md": b"---\n{{x}}: [\n---\n"}, kind="models"),
    }
    before = {name: dict(repo.commits) for name, repo in hub.repos.items()}

    def to(name: str, **options: Any) -> dict[str, Any]:
        return push(folder, repo_id=f"org/{name}", **options)

    own = {"token": TOKEN}
    answers = ask(
        hub,
        tmp_path,
        to("new"),
        to("new", token=False),
        to("new", token="hf_wrong"),
        to("open", token=READ_TOKEN),
        to("shut", token=READ_TOKEN),
        to("data", **own),
        to("open", private=True, **own),
        to("shut", private=False, **own),
        to("odd", **own),
    )
    words = [
        ("no token was given", "HF_TOKEN"),
        ("no token was given",),
        ("does not know the token",),
        ("may not write", "create_pr=True"),
        ("may not write",),
        ("a dataset there", "another name"),
        ("is public, but a private one", "nothing was uploaded"),
        ("is private, but a public one",),
        ("README.md", "cannot be read"),
    ]
    for answer, said in zip(answers, words, strict=True):
        refused(answer, "PublishError", *said)
        refused(answer, "OSError")
    offline = ask(hub, tmp_path, to("new", **own), HF_HUB_OFFLINE="1")
    refused(offline, "PublishError", "HF_HUB_OFFLINE")
    assert {name: repo.commits for name, repo in hub.repos.items()} == before
    hub.stop()
    refused(ask(hub, tmp_path, to("new", **own)), "PublishError", "cannot be reached", hub.endpoint)


# ------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize(
    ("status", "only"),
    [(429, "POST /api/repos/create"), (503, "POST .*/commit/"), (429, "GET .*/tree/")],
)
def test_a_busy_hub_is_waited_for(
    hub: HubServer, folder: Path, tmp_path: Path, status: int, only: str
) -> None:
    hub.faults = Faults(first=1, status=status, headers={"Retry-After": "1"}, only=only)
    commit = ask(hub, tmp_path, push(folder), **TOKENS)
    assert commit == hub.repos[NAME].main
    asked = [r for r in hub.requests if r.status == status]
    assert len(asked) == 1
    after = next(r.at for r in hub.requests[hub.requests.index(asked[0]) + 1 :])
    assert after - asked[0].at >= 1


def test_a_hub_that_keeps_refusing_is_an_error(
    hub: HubServer, folder: Path, tmp_path: Path
) -> None:
    hub.faults = Faults(every=1, headers={"Retry-After": "3600"}, only="commit")
    refused(ask(hub, tmp_path, push(folder), **TOKENS), "PublishError", "rate limit")
    assert len(hub.repos[NAME].commits) == 1


def test_a_lost_answer_makes_no_second_commit(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    hub.faults.deaf = 1
    commit = ask(hub, tmp_path, push(folder), **TOKENS)
    repo = hub.repos[NAME]
    assert commit == repo.main
    assert len(repo.commits) == 2
    assert hub.faults.deaf == 0


def test_a_branch_that_moves_is_looked_at_again(
    hub: HubServer, folder: Path, tmp_path: Path
) -> None:
    hub.repos[NAME] = repo = Repo({"README.md": b"# Ours\n"}, kind="models")
    moves = iter([{"README.md": OLD_CARD.encode(), "LICENSE": b"MIT"}])

    def meanwhile(request: str) -> None:
        if "/commit/" in request and (files := next(moves, None)):
            repo.commit(files)

    hub.before = meanwhile
    commit = ask(hub, tmp_path, push(folder), **TOKENS)
    assert commit == repo.main
    assert len(repo.commits) == 3
    assert published(hub)["LICENSE"] == b"MIT"
    assert b"More words." in published(hub)["README.md"]

    repo.commit({})
    hub.before = lambda request: repo.commit({}) if "/commit/" in request else None
    answer = ask(hub, tmp_path, push(folder), **TOKENS)
    refused(answer, "PublishError", "changed 5 times")
    assert published(hub) == {}


# -------------------------------------------------------------------- the command, transformers


def test_the_command_shows_first_and_publishes_then(
    hub: HubServer, folder: Path, tmp_path: Path
) -> None:
    shown = run("push", folder, NAME, "--dry-run")
    assert shown.exit_code == 0
    assert shown.stdout == ""
    for text in ("Would be published", folder.name, "library_name: transformers"):
        assert text in shown.stderr
    told = run_json("push", folder, NAME, "--dry-run")
    assert told["commit"] is None
    assert told["signature"] == folder.name
    assert told["card"].startswith("---\n")
    files = folder_files(folder)
    assert {name: file["bytes"] for name, file in told["files"].items()} == {
        name: len(data) for name, data in files.items()
    }

    command = "import sys; from vlaprep.cli import app; app(sys.argv[1:])"
    arguments = ("push", folder, NAME, "--private", "--json")
    ran = hub.run(command, tmp_path, args=arguments, **TOKENS)
    assert ran.returncode == 0, ran.stderr
    made = json.loads(ran.stdout)
    assert made["commit"] == hub.repos[NAME].main
    assert made["url"].endswith(f"/{NAME}/commit/{made['commit']}")
    ran = hub.run(command, tmp_path, args=("push", folder, NAME))
    assert ran.returncode == 1
    assert "no token was given" in ran.stderr
    (folder / "fit_report.json").unlink()
    refusal = run("push", folder, NAME)
    assert refusal.exit_code == 1
    assert "--without-report" in refusal.stderr


def test_a_processor_of_transformers_publishes_itself(
    hub: HubServer, fit: Path, tmp_path: Path
) -> None:
    code = (
        "import sys; from vlaprep import FastActionProcessor\n"
        "processor = FastActionProcessor.from_pretrained(sys.argv[1])\n"
        "print(processor.push_to_hub('org/fast', private=True, commit_message='by itself'))"
    )
    ran = hub.run(code, tmp_path, args=(fit,), **TOKENS)
    if "Jinja2" in ran.stderr:
        pytest.skip("transformers fills a card in with Jinja2, which is not installed")
    assert ran.returncode == 0, ran.stderr
    assert hub.repos[NAME].main in ran.stdout
    assert hub.repos[NAME].private
    files = published(hub)
    own = folder_files(fit)
    assert "fit_report.json" not in files, "a processor does not know its fit: push_to_hub does"
    for name in ("fit_report.json", "fit_examples.json"):
        del own[name]
    assert {name: files[name] for name in own} == own
