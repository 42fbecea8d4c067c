"""Tokenizers and fits from the Hub: one commit a call, whole files, patience, clear errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub
import numpy as np
import pytest

import vlaprep
from action_chunks import fitted, smooth
from hub_calls import ask, refused
from hub_server import READ_TOKEN, TOKEN, Faults, HubServer, Repo, folder_files, serve
from lerobot_folder import make_rows, write_v3

if TYPE_CHECKING:
    from collections.abc import Iterator

FAST, DATA = "org/fast", "org/data"
OFFLINE = {"HF_HUB_OFFLINE": "1"}
# Each argument is [loader, options]; the answer is the ids of one batch, or the error.
LOAD = """
import json, sys
import numpy as np, vlaprep
from vlaprep.hub import download_tokenizer

def auto(name, **options):
    from transformers import AutoProcessor
    return AutoProcessor.from_pretrained(name, trust_remote_code=True, **options)

def beside(name, **options):
    folder, _ = download_tokenizer(name, **options)
    vlaprep.Normalization.from_pretrained(folder)
    return vlaprep.ActionCodec.from_pretrained(folder)

loaders = {
    "auto": auto,
    "beside": beside,
    "codec": vlaprep.ActionCodec.from_pretrained,
    "processor": vlaprep.FastActionProcessor.from_pretrained,
}
chunks = np.array(json.loads(sys.argv[1]))
for loader, options in map(json.loads, sys.argv[2:]):
    try:
        tokenizer = loaders[loader](options.pop("name", "org/fast"), **options)
        answer = tokenizer.encode_batch(chunks)[0].tolist()
    except Exception as error:
        answer = {"error": [kind.__name__ for kind in type(error).__mro__], "message": str(error)}
    print(json.dumps(answer))
"""
CHUNKS = smooth(2)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dataset of two files; read, never written, here."""
    rows = make_rows(dict.fromkeys(range(6), (0, 12)), dim=3)
    return write_v3(tmp_path_factory.mktemp("data") / "data", rows)


@pytest.fixture(scope="module")
def tokenizer(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files of a tokenizer fitted to chunks like `CHUNKS`, with the report of some fit."""
    folder = tmp_path_factory.mktemp("tokenizer")
    fitted().save_pretrained(folder)
    other = vlaprep.fit_fast_tokenizer(dataset_root=data, cache_dir=folder / "cache", chunk_size=5)
    report = (Path(other) / "fit_report.json").read_bytes()
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return files | {"fit_report.json": report}


@pytest.fixture(scope="module")
def ids() -> list[int]:
    """What that tokenizer makes of `CHUNKS`."""
    return fitted().encode_batch(CHUNKS)[0].tolist()


@pytest.fixture
def hub(tokenizer: dict[str, bytes], data: Path) -> Iterator[HubServer]:
    """A Hub with that tokenizer and that dataset."""
    with serve({FAST: Repo(tokenizer, kind="models"), DATA: Repo(folder_files(data))}) as server:
        yield server


def load(hub: HubServer, home: Path, *calls: tuple[str, dict[str, Any]], **env: str) -> list[Any]:
    """Answers of these loads, one after the other in one process."""
    arguments = [json.dumps(CHUNKS.tolist()), *map(json.dumps, calls)]
    ran = hub.run(LOAD, home, args=tuple(arguments), **env)
    assert ran.returncode == 0, ran.stderr
    assert TOKEN not in ran.stdout + ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def gets(hub: HubServer, name: str) -> list[str]:
    """Commits of which a file was fetched."""
    parts = [path.split("/resolve/") for path in hub.paths("GET") if path.endswith(f"/{name}")]
    return [commit.split("/")[0] for _, commit in parts]


# ------------------------------------------------------------------------------------ tokenizers


def test_every_loader_takes_a_hub_id(hub: HubServer, tmp_path: Path, ids: list[int]) -> None:
    ways = ("codec", "processor", "beside", "auto")
    commit = hub.repos[FAST].main
    hub.repos[FAST].refs["v1"] = commit
    calls = [(way, {"revision": r}) for way in ways for r in (None, "v1", commit)]
    assert load(hub, tmp_path, *calls) == [ids] * len(calls)
    assert set(gets(hub, "tokenizer.json")) == {commit}, "files are asked for by commit only"
    assert gets(hub, "tokenizer.json") == [commit], "and once"
    hub.stop()
    # Switched off; and merely out of reach, where AutoProcessor has ways of its own.
    assert load(hub, tmp_path, *calls, **OFFLINE) == [ids] * len(calls)
    assert load(hub, tmp_path, ("codec", {}), ("processor", {})) == [ids] * 2


def test_private_gated_and_absent_tokenizers(
    hub: HubServer, tokenizer: dict[str, bytes], tmp_path: Path, ids: list[int]
) -> None:
    hub.repos |= {
        "org/shut": Repo(tokenizer, kind="models", private=True),
        "org/gated": Repo(tokenizer, kind="models", gated=True),
    }
    cases: list[tuple[dict[str, Any], str]] = [
        ({"name": "org/shut"}, "private and no token was given"),
        ({"name": "org/shut", "token": READ_TOKEN}, "private and the token does not open it"),
        ({"name": "org/gated"}, "is gated and no token was given"),
        ({"name": "org/gated", "token": READ_TOKEN}, "is gated and the token does not open it"),
        ({"name": "org/none"}, "org/none is absent"),
        ({"name": DATA}, f"model {DATA} is absent"),
        ({"revision": "v9"}, "not revision 'v9'"),
        ({"revision": "0" * 40}, "0" * 40),
    ]
    calls = [(way, options) for options, _ in cases for way in ("codec", "processor")]
    answers = load(hub, tmp_path, *calls)
    words = [said for _, said in cases for _ in range(2)]
    for answer, said in zip(answers, words, strict=True):
        refused(answer, "TokenizerNotFoundError", said)
        refused(answer, "TokenizerFormatError")
        refused(answer, "FileNotFoundError")
    key = {"token": TOKEN}
    opened = [(way, {"name": n} | key) for n in ("org/shut", "org/gated") for way in ("codec",)]
    assert load(hub, tmp_path, *opened) == [ids] * 2
    assert load(hub, tmp_path, ("auto", {"name": "org/shut"}), HF_TOKEN=TOKEN) == [ids]


def test_an_incomplete_tokenizer_names_the_file(
    hub: HubServer, tokenizer: dict[str, bytes], tmp_path: Path
) -> None:
    for name in ("tokenizer.json", "processor_config.json"):
        files = {n: data for n, data in tokenizer.items() if n != name}
        hub.repos[f"org/no-{name.split('_')[0].split('.')[0]}"] = Repo(files, kind="models")
    hub.repos["org/empty"] = Repo({"README.md": b"#"}, kind="models")
    names = ("org/no-tokenizer", "org/no-processor", "org/empty")
    calls = [(way, {"name": name}) for name in names for way in ("codec", "processor")]
    answers = load(hub, tmp_path, *calls)
    missing = ["tokenizer.json"] * 2 + ["processor_config.json"] * 4
    for answer, name in zip(answers, missing, strict=True):
        refused(answer, "TokenizerFormatError", name)


@pytest.mark.parametrize("fault", ["429", "503", "cut"])
def test_a_tokenizer_comes_through_trouble(
    hub: HubServer, tmp_path: Path, ids: list[int], fault: str
) -> None:
    if fault == "cut":
        hub.faults.cut = {"tokenizer.json": 1, "processor_config.json": 1}
    else:
        hub.faults = Faults(every=3, status=int(fault))
    assert load(hub, tmp_path, ("codec", {}), ("processor", {})) == [ids] * 2
    assert hub.faults.cut == dict.fromkeys(hub.faults.cut, 0)
    assert fault == "cut" or any(r.status == int(fault) for r in hub.requests)


@pytest.mark.parametrize("way", ["codec", "processor", "auto"])
def test_a_tokenizer_is_of_one_commit(
    hub: HubServer, tokenizer: dict[str, bytes], tmp_path: Path, ids: list[int], way: str
) -> None:
    if way == "auto" and not hasattr(huggingface_hub, "ResolvedRevision"):
        pytest.skip("this transformers asks for its revision again; a commit pins it")
    repo = hub.repos[FAST]
    old = repo.main
    config = json.loads(tokenizer["processor_config.json"]) | {"scale": 20.0}
    changed = {"tokenizer.json": b"{}", "processor_config.json": json.dumps(config).encode()}
    moves = iter([tokenizer | changed])

    def meanwhile(request: str) -> None:
        # As soon as a call has asked what its revision is, that becomes something else.
        if "/resolve/" in request and (files := next(moves, None)):
            repo.commit(files)

    hub.before = meanwhile
    assert load(hub, tmp_path, (way, {})) == [ids]
    assert repo.main != old
    assert set(gets(hub, "tokenizer.json")) == {old}
    again, pinned = load(hub, tmp_path, (way, {}), (way, {"revision": old}))
    refused(again, "ValueError")
    assert pinned == ids
    assert repo.main in gets(hub, "tokenizer.json")


def test_a_local_folder_has_no_revision(tmp_path: Path) -> None:
    fitted().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="of no use with the local folder"):
        vlaprep.ActionCodec.from_pretrained(tmp_path, revision="v1")


def test_an_audit_takes_a_tokenizer_of_the_hub(hub: HubServer, data: Path, tmp_path: Path) -> None:
    fit = vlaprep.fit_fast_tokenizer(
        dataset_root=data, cache_dir=tmp_path / "cache", chunk_size=5, coverage="all"
    )
    hub.repos["org/own"] = Repo(folder_files(Path(fit)), kind="models")
    command = "import sys; from vlaprep.cli import app; app(sys.argv[1:])"
    ran = hub.run(command, tmp_path, args=("audit", "org/own", DATA, "--json"))
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["normalization"], told["unencodable"]) == ("stored", 0)
    assert told["windows"] == 6 * (12 - 5 + 1)


# ------------------------------------------------------------------------------------------ fits


def fit(cache: Path, **options: Any) -> dict[str, Any]:
    own = {"dataset_repo_id": DATA, "cache_dir": cache, "chunk_size": 5, "n_samples": 30}
    return {"call": "vlaprep.fit_fast_tokenizer"} | own | options


def report_of(folder: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((Path(folder) / "fit_report.json").read_text())
    return report


def test_a_fit_comes_through_trouble(hub: HubServer, tmp_path: Path) -> None:
    calm = ask(hub, tmp_path / "calm", fit(tmp_path / "calm"))
    names = hub.repos[DATA].commits[hub.repos[DATA].main]
    cut = {name: 1 for name in names if name.endswith(("parquet", "info.json"))}
    assert len(cut) >= 2
    troubles = [Faults(every=3, status=429), Faults(every=3, status=503), Faults(cut=dict(cut))]
    for number, faults in enumerate(troubles):
        hub.forget()
        hub.faults = faults
        home = tmp_path / str(number)
        assert folder_files(Path(ask(hub, home, fit(home)))) == folder_files(Path(calm))
        assert faults.cut == dict.fromkeys(faults.cut, 0)
        assert faults.cut or any(r.status == faults.status for r in hub.requests)


def test_a_fit_of_what_may_not_be_read(hub: HubServer, data: Path, tmp_path: Path) -> None:
    hub.repos |= {
        "org/shut": Repo(folder_files(data), private=True),
        "org/gated": Repo(folder_files(data), gated=True),
    }
    shut, gated = (fit(tmp_path / "cache", dataset_repo_id=f"org/{n}") for n in ("shut", "gated"))
    said = {"": "no token was given", READ_TOKEN: "the token does not open it"}
    for token, words in said.items():
        env = {"HF_TOKEN": token} if token else {}
        answers = ask(hub, tmp_path, shut, gated, fit(tmp_path / "cache", revision="v9"), **env)
        refused(answers[0], "DatasetNotFoundError", f"private and {words}")
        refused(answers[1], "DatasetNotFoundError", f"gated and {words}")
        refused(answers[2], "DatasetNotFoundError", "not revision 'v9'")
    assert not list((tmp_path / "cache").glob("[!.]*")), "nothing is left of them"
    folders = ask(hub, tmp_path, shut, gated, HF_TOKEN=TOKEN)
    assert len(set(folders)) == 2


def test_a_fit_is_of_one_commit(hub: HubServer, data: Path, tmp_path: Path) -> None:
    repo = hub.repos[DATA]
    old = repo.main
    calm = ask(hub, tmp_path / "calm", fit(tmp_path / "a"))
    rows = make_rows(dict.fromkeys(range(6), (0, 12)), dim=3)
    rows["action"] = np.asarray(rows["action"]) * 2 + 1
    other = folder_files(write_v3(tmp_path / "other", rows))
    moves = iter([other])

    def meanwhile(request: str) -> None:
        if "/resolve/" in request and (files := next(moves, None)):
            repo.commit(files)

    hub.before = meanwhile
    first, second, pinned = ask(
        hub,
        tmp_path / "moving",
        fit(tmp_path / "b"),
        fit(tmp_path / "b"),
        fit(tmp_path / "c", revision=old),
    )
    assert report_of(first)["inputs"]["dataset"]["commit"] == old
    assert report_of(second)["inputs"]["dataset"]["commit"] == repo.main != old
    assert folder_files(Path(first)) == folder_files(Path(calm)) == folder_files(Path(pinned))
    assert report_of(second)["normalization"] != report_of(first)["normalization"]
    hub.stop()
    again = ask(hub, tmp_path / "moving", fit(tmp_path / "d", revision=old), **OFFLINE)
    assert folder_files(Path(again)) == folder_files(Path(first))


def test_a_large_file_that_was_cut_is_resumed(hub: HubServer, tmp_path: Path) -> None:
    # huggingface_hub keeps what it has in steps of 10 MB.
    large = bytes(np.random.default_rng(0).bytes(26_000_000))
    files = {"meta/info.json": b"{}", "data/chunk-000/file-000.parquet": large}
    hub.repos["org/large"] = Repo(files)
    hub.faults.cut = {"data/chunk-000/file-000.parquet": 1}
    call = {"call": "vlaprep.hub.download_dataset", "repo_id": "org/large"}
    folder, _ = ask(hub, tmp_path, call)
    assert (Path(folder) / "data/chunk-000/file-000.parquet").read_bytes() == large
    asked = [r for r in hub.requests if r.method == "GET" and r.path.endswith("file-000.parquet")]
    assert [r.status for r in asked] == [200, 206]
    assert asked[0].range is None
    first = int(str(asked[1].range).removeprefix("bytes=").partition("-")[0])
    assert 0 < first <= len(large) // 2, "what had come is not asked for again"
