"""Downloads through the real `huggingface_hub`, from a Hub of our own on loopback."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hub_server import TOKEN, Faults, HubServer, Repo, folder_files, serve
from vlaprep.hub import is_repo_id

if TYPE_CHECKING:
    from collections.abc import Iterator

Files = dict[str, bytes]

NAME = "org/name"
OFFLINE = {"HF_HUB_OFFLINE": "1"}
# Each call of a process is one JSON object on its command line, and one line of its answer.
CODE = """
import json, logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
from vlaprep import hub
for options in map(json.loads, sys.argv[1:]):
    call = getattr(hub, options.pop("call", "download_dataset"))
    try:
        answer = call(options.pop("repo_id", "org/name"), **options)
    except Exception as error:
        answer = {"error": [kind.__name__ for kind in type(error).__mro__], "message": str(error)}
    print(json.dumps(answer, default=str))
"""


@pytest.fixture(scope="session")
def contents(golden: Path) -> dict[str, Files]:
    """Repository contents by layout, with all that must never be asked for."""
    junk = {
        ".gitattributes": b"*.parquet filter=lfs\n",
        "README.md": b"# data\n",
        "videos/chunk-000/observation.images.top/episode_000000.mp4": b"\0" * 5000,
        "videos/observation.images.top/chunk-000/file-000.mp4": b"\0" * 5000,
        "images/observation.images.top/episode_000000/frame_000000.png": b"\0" * 500,
        "data/chunk-000/.episode_000000.parquet": b"sidecar",
        "data/chunk-000/preview.jpg": b"\0" * 10,
        "meta/preview.png": b"\0" * 10,
    }
    return {v: folder_files(golden / f"lerobot_{v}") | junk for v in ("v21", "v30")}


@pytest.fixture
def hub(contents: dict[str, Files]) -> Iterator[HubServer]:
    """A Hub with one data set of each layout."""
    with serve({NAME: Repo(contents["v21"]), "org/packed": Repo(contents["v30"])}) as server:
        yield server


def ask(
    hub: HubServer, home: Path, *calls: dict[str, Any], env: dict[str, str] | None = None
) -> Any:
    """Answers of these calls in a process of their own; of one call, its answer."""
    asked = [json.dumps(call, default=str) for call in calls or ({},)]
    ran = hub.run(CODE, home, args=tuple(asked), **(env or {}))
    assert ran.returncode == 0, ran.stderr
    assert TOKEN not in ran.stdout + ran.stderr
    assert "%|" not in ran.stderr, "no progress bars where stderr is no terminal"
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(answers) == len(asked), "a library prints nothing"
    return answers if len(calls) > 1 else answers[0]


def refused(answer: Any, *words: str) -> None:
    assert isinstance(answer, dict), f"expected an error, got {answer}"
    assert {"DatasetNotFoundError", "FileNotFoundError", "RuntimeError"} <= set(answer["error"])
    for word in words:
        assert word in answer["message"]


def needed(files: Files) -> Files:
    good = re.compile(r"meta/[^.]*\.(json|jsonl|parquet)|data/([^.][^/]*/)*[^./][^/]*\.parquet")
    return {name: content for name, content in files.items() if good.fullmatch(name)}


def held(folder: str | Path) -> Files:
    files = folder_files(Path(folder))
    return {name: content for name, content in files.items() if not name.startswith(".cache/")}


def cached(home: Path, repo_id: str, files: Files, commit: str = "c" * 40) -> Path:
    """A Hub cache as another program left it: no note of what the commit holds."""
    storage = home / "hub" / f"datasets--{repo_id.replace('/', '--')}"
    for name, content in files.items():
        path = storage / "snapshots" / commit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (storage / "refs").mkdir()
    (storage / "refs" / "main").write_text(commit)
    return storage / "snapshots" / commit


def small_repo(episodes: int) -> Files:
    """Many small files, as v2.1 has them; nobody reads the rows here."""
    info = {"codebase_version": "v2.1", "chunks_size": 1000}
    rows = [{"episode_index": i, "length": 5, "tasks": ["x"]} for i in range(episodes)]
    files = {
        "meta/info.json": json.dumps(info).encode(),
        "meta/episodes.jsonl": "\n".join(map(json.dumps, rows)).encode(),
        "meta/tasks.jsonl": b'{"task_index": 0, "task": "x"}\n',
    }
    return files | {
        f"data/chunk-000/episode_{i:06d}.parquet": b"%d" % i * 40 for i in range(episodes)
    }


@pytest.mark.parametrize("name", ["lerobot/pusht", "a/b", "my-org/my_data.v2", "Org1/x-y"])
def test_repo_ids(name: str) -> None:
    assert is_repo_id(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "pusht",
        "/a/b",
        "./a",
        "../a",
        "~/a",
        "a/b/c",
        "a/",
        "a//b",
        "a/b--c",
        "a/.b",
        "a/é",
        "a/b\n",
    ],
)
def test_paths_are_no_repo_ids(name: str) -> None:
    assert not is_repo_id(name)


@pytest.mark.parametrize(("repo", "layout"), [(NAME, "v21"), ("org/packed", "v30")])
def test_only_what_is_needed_is_asked_for(
    hub: HubServer, contents: dict[str, Files], tmp_path: Path, repo: str, layout: str
) -> None:
    hub.page_size = 7
    call, commit = {"repo_id": repo}, hub.repos[repo].main
    first, again, by_commit = ask(hub, tmp_path, call, call, call | {"revision": commit})
    files = contents[layout]
    assert first[1] == commit
    assert held(first[0]) == needed(files)
    assert first == again == by_commit
    resolved, *rest, resolved_again = hub.paths()
    assert resolved == f"/api/datasets/{repo}/revision/main"
    assert resolved == resolved_again, "what is complete costs one request; a commit hash none"
    listed = [path for path in rest if path == f"/api/datasets/{repo}/tree/{commit}"]
    pinned = f"/datasets/{repo}/resolve/{commit}/"
    transfers = [path for path in rest if path not in listed]
    assert {path.removeprefix(pinned) for path in transfers} == set(needed(files))
    assert len(transfers) == 2 * len(needed(files)), "a HEAD and a GET each"

    hub.stop()
    assert ask(hub, tmp_path, call, call | {"revision": commit}, env=OFFLINE) == [first, first]


def test_a_moved_branch_gives_two_snapshots(
    hub: HubServer, contents: dict[str, Files], tmp_path: Path
) -> None:
    repo = hub.repos[NAME]
    old = repo.main
    repo.refs["v2.1"] = old
    (before, _), tag = ask(hub, tmp_path, {}, {"call": "resolve_revision", "revision": "v2.1"})
    changed = contents["v21"] | {"meta/tasks.jsonl": b'{"task_index": 0, "task": "new"}\n'}
    new = repo.commit(changed)
    answers = ask(hub, tmp_path, {}, {"revision": "v2.1"}, {"revision": old})
    assert tag == old
    assert [commit for _, commit in answers] == [new, old, old]
    (after, _), *_ = answers
    assert before == answers[1][0] == answers[2][0] != after
    assert held(before) == needed(contents["v21"]), "the old snapshot stays as it was"
    assert held(after) == needed(changed)


def test_offline_an_incomplete_cache_lists_what_is_missing(hub: HubServer, tmp_path: Path) -> None:
    folder, commit = ask(hub, tmp_path, {"episodes": [3, 7]})
    hub.stop()
    selected, whole, named, other = ask(
        hub,
        tmp_path,
        {"episodes": [7, 3]},
        {},
        {"episodes": [3, 4], "revision": commit},
        {"revision": "v9"},
        env=OFFLINE,
    )
    assert selected == [folder, commit]
    refused(whole, commit[:12], "episode_000000.parquet", "and 18 more", "HF_HUB_OFFLINE")
    refused(named, "missing: data/chunk-000/episode_000004.parquet.")
    refused(other, "'v9'", "HF_HUB_OFFLINE is set")
    # Not switched off, but out of reach:
    whole, never = ask(hub, tmp_path, {}, {"repo_id": "org/never"})
    refused(whole, "episode_000000.parquet", "out of reach")
    refused(never, "cannot be reached", hub.endpoint)


def test_episodes_restrict_the_data_files(hub: HubServer, cases_root: Path, tmp_path: Path) -> None:
    two_files = folder_files(cases_root / "L00b")
    stale = folder_files(cases_root / "L20")  # names a file that does not exist
    hub.repos |= {"org/two": Repo(two_files), "org/stale": Repo(stale)}

    def data(answer: Any) -> list[str]:
        return sorted(name for name in held(answer[0]) if name.startswith("data/"))

    def two(episodes: list[int], repo_id: str = "org/two") -> dict[str, Any]:
        return {"repo_id": repo_id, "episodes": episodes}

    one, none, packed, foreign = ask(
        hub, tmp_path, {"episodes": [12]}, two([]), two([9, 14]), two([9], "org/stale")
    )
    assert data(one) == ["data/chunk-000/episode_000012.parquet"]
    assert data(packed) == ["data/chunk-000/file-001.parquet"]
    assert none[0] == packed[0]
    assert data(foreign) == ["data/chunk-000/file-000.parquet"], "else all there is"
    assert data(ask(hub, tmp_path, two([99]))) == sorted(needed(two_files) - needed({}).keys())[:2]


def test_a_foreign_cache_is_judged_by_its_own_metadata(
    hub: HubServer, cases_root: Path, tmp_path: Path
) -> None:
    hub.stop()
    hole = "data/chunk-000/file-001.parquet"
    packed = folder_files(cases_root / "L00b")
    a = folder_files(cases_root / "L00a")
    repos = {
        "org/whole": packed,
        "org/hole": {name: content for name, content in packed.items() if name != hole},
        "org/phantom": folder_files(cases_root / "L20"),
        "org/unpointed": folder_files(cases_root / "L14"),
        "org/unlisted": {k: v for k, v in packed.items() if not k.startswith("meta/episodes")},
        "org/untold": {k: v for k, v in a.items() if k != "meta/tasks.jsonl"},
        "org/v2hole": {k: v for k, v in a.items() if not k.endswith("000003.parquet")},
        "org/broken": a | {"meta/episodes.jsonl": b"{}\n\n{,}\n"},
    }
    folders = {name: cached(tmp_path, name, files) for name, files in repos.items()}
    asked = ask(hub, tmp_path, *({"repo_id": name} for name in repos), env=OFFLINE)
    answers = dict(zip(repos, asked, strict=True))
    for name in ("org/whole", "org/phantom", "org/unpointed"):
        assert answers[name] == [str(folders[name]), "c" * 40]
    refused(answers["org/hole"], f"missing: {hole}.", "frames are there")
    refused(answers["org/unlisted"], "missing: meta/episodes/*.parquet.")
    refused(answers["org/untold"], "missing: meta/tasks.jsonl.")
    refused(answers["org/v2hole"], "missing: data/chunk-000/episode_000003.parquet.")
    assert "DatasetFormatError" in answers["org/broken"]["error"]
    assert "episodes.jsonl, line 3" in answers["org/broken"]["message"]


def test_two_snapshots_of_one_name_side_by_side(
    hub: HubServer, cases_root: Path, tmp_path: Path
) -> None:
    hub.stop()
    env = OFFLINE | {"HF_HUB_CACHE": str(cases_root / "C20")}
    main, tag = ask(hub, tmp_path, {}, {"revision": "v3.0"}, env=env)
    assert main[1] != tag[1]
    assert [Path(folder).name for folder, _ in (main, tag)] == [main[1], tag[1]]
    assert held(main[0]) != held(tag[0])


def test_private_gated_and_absent_repositories(
    hub: HubServer, contents: dict[str, Files], tmp_path: Path
) -> None:
    hub.repos |= {
        "org/private": Repo(contents["v30"], private=True),
        "org/gated": Repo(contents["v30"], gated=True),
        "org/other": Repo({"README.md": b"#"}),
    }
    private, gated = {"repo_id": "org/private"}, {"repo_id": "org/gated"}
    key = {"token": TOKEN}
    shut = ask(
        hub,
        tmp_path,
        private,
        private | {"token": "hf_wrong"},
        gated,
        {"repo_id": "org/none"},
        {"repo_id": "org/other"},
        {"revision": "v9"},
        {"revision": "0" * 40},
    )
    refused(shut[0], "absent", "private and no token was given", "HF_TOKEN")
    refused(shut[1], "private and the token does not open it")
    refused(shut[2], "org/gated is gated", "Accept its conditions")
    refused(shut[3], "org/none is absent", hub.endpoint)
    refused(shut[4], "no LeRobot dataset", "meta/info.json")
    refused(shut[5], "not revision 'v9'")
    refused(shut[6], f"not revision '{'0' * 40}'")
    hub.forget()
    opened = ask(hub, tmp_path, private | key, gated | key)
    assert all(request.authorized for request in hub.requests)
    by_environment = ask(hub, tmp_path / "other", private, gated, env={"HF_TOKEN": TOKEN})
    for folder, _ in opened + by_environment:
        assert held(folder) == needed(contents["v30"])


def test_a_rate_limit_is_waited_for(hub: HubServer, tmp_path: Path) -> None:
    files = small_repo(200)
    hub.repos["org/small"] = Repo(files)
    hub.faults = Faults(every=10)
    folder, _ = ask(hub, tmp_path, {"repo_id": "org/small"})
    assert held(folder) == files
    assert sum(request.status == 429 for request in hub.requests) >= 40


@pytest.mark.parametrize("header", [{"Retry-After": "1"}, {"RateLimit": '"api";r=0;t=1'}])
def test_the_wait_is_as_long_as_the_hub_says(
    hub: HubServer, tmp_path: Path, header: dict[str, str]
) -> None:
    hub.faults = Faults(first=1, headers=header)
    commit = ask(hub, tmp_path, {"call": "resolve_revision"})
    assert commit == hub.repos[NAME].main
    refused_at, served_at = (request.at for request in hub.requests)
    assert served_at - refused_at >= 1


def test_a_hub_that_keeps_refusing_is_an_error(hub: HubServer, tmp_path: Path) -> None:
    hub.faults = Faults(every=1, headers={"Retry-After": "3600"})
    refused(ask(hub, tmp_path), "rate limit", hub.endpoint)
    assert len(hub.requests) == 1, "nobody waits an hour"
    hub.faults = Faults(every=1, status=503)
    refused(ask(hub, tmp_path), "it answers 503")
    assert len(hub.requests) <= 11
    hub.faults = Faults(every=1, status=200)
    refused(ask(hub, tmp_path), "cannot be reached", "HF_ENDPOINT")


def test_a_connection_cut_half_way_is_taken_up_again(
    hub: HubServer, contents: dict[str, Files], tmp_path: Path
) -> None:
    hub.faults.cut = {"meta/info.json": 1, "data/chunk-000/file-000.parquet": 2}
    folder, _ = ask(hub, tmp_path, {"repo_id": "org/packed"})
    assert held(folder) == needed(contents["v30"])
    assert hub.faults.cut == dict.fromkeys(hub.faults.cut, 0)


def test_a_folder_of_the_callers(
    hub: HubServer, contents: dict[str, Files], tmp_path: Path
) -> None:
    root, data = tmp_path / "own", "data/chunk-000/file-000.parquet"
    files = contents["v30"]
    changed = files | {"meta/info.json": files["meta/info.json"] + b"\n"}
    repo = hub.repos["org/packed"]
    repo.commit(changed, "changed")
    repo.commit({name: changed[name] for name in changed if name != data}, "without")
    # huggingface_hub takes an old file for good when the Hub does not answer about the new one.
    hub.faults = Faults(first=3, status=403, only=f"HEAD .*{repo.refs['changed']}.*info.json")
    own = {"repo_id": "org/packed", "root": root}
    asked = [own | {"revision": branch} for branch in ("main", "changed", "changed", "without")]
    first, stale, second, mixed = ask(hub, tmp_path, *asked)
    assert first == [str(root), repo.main]
    refused(stale, "missing in", "meta/info.json")
    assert second == [str(root), repo.refs["changed"]]
    assert held(root) == needed(changed)
    assert "DatasetFormatError" in mixed["error"]
    assert data in mixed["message"]

    shutil.rmtree(root)
    ask(hub, tmp_path, own)
    now, other = ask(hub, tmp_path, own, asked[1], env=OFFLINE)
    assert now == first
    refused(other, "missing or of another commit: ", "meta/info.json")


def test_processes_and_a_read_only_cache(
    hub: HubServer, contents: dict[str, Files], tmp_path: Path
) -> None:
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: ask(hub, tmp_path), range(2)))
    assert answers[0] == answers[1]
    assert held(answers[0][0]) == needed(contents["v21"])
    notes = tmp_path / "hub" / "datasets--org--name" / "vlaprep"
    shutil.rmtree(notes)
    notes.write_text("a file in the way stands for a folder that cannot be written")
    assert ask(hub, tmp_path) == answers[0]


def test_a_tokenizer_comes_without_weights(hub: HubServer, tmp_path: Path) -> None:
    wanted = {"tokenizer.json": b"{}", "processing_x.py": b"", "merges.txt": b""}
    hub.repos["org/fast"] = Repo(wanted | {"model.safetensors": b"\0" * 999}, kind="models")
    call = {"call": "download_tokenizer", "repo_id": "org/fast"}
    folder, commit = ask(hub, tmp_path, call)
    assert commit == hub.repos["org/fast"].main
    assert held(folder) == wanted
    assert not [path for path in hub.paths() if "safetensors" in path]
    assert ask(hub, tmp_path, call, env=OFFLINE) == [folder, commit]


OPEN = """
import json, sys
from vlaprep import open_dataset
for where, episodes in map(json.loads, sys.argv[1:]):
    try:
        dataset = open_dataset(where, episodes=episodes)
    except Exception as error:
        answer = {"error": [kind.__name__ for kind in type(error).__mro__], "message": str(error)}
    else:
        table = dataset.episodes
        columns = (table.episode_index, table.length, table.task_index)
        first = [table.episode_index[:1], [0], 5]
        answer = {
            "commit": dataset.revision,
            "table": [column.tolist() for column in columns],
            "chunk": dataset.read_chunks(*first).tolist(),
        }
    print(json.dumps(answer))
"""


def opened(hub: HubServer, home: Path, *calls: tuple[Any, Any], **env: str) -> list[Any]:
    """What `open_dataset` gives for these (place, episodes) in one process."""
    ran = hub.run(OPEN, home, args=tuple(json.dumps(call, default=str) for call in calls), **env)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_open_dataset_reads_from_the_hub_as_from_a_folder(
    hub: HubServer, golden: Path, tmp_path: Path
) -> None:
    folders = [(golden / name, None) for name in ("lerobot_v21", "lerobot_v30")]
    local = opened(hub, tmp_path, *folders)
    assert hub.requests == [], "a folder is no business of the Hub's"
    names = [(NAME, None), ("org/packed", None)]
    remote = opened(hub, tmp_path, *names)
    for (name, _), here, there in zip(names, local, remote, strict=True):
        assert here == there | {"commit": None}
        assert there["commit"] == hub.repos[name].main
    assert not [path for path in hub.paths() if "videos" in path or "images" in path]
    hub.stop()
    assert opened(hub, tmp_path, *names, **OFFLINE) == remote


def test_open_dataset_fetches_the_files_of_a_selection(
    hub: HubServer, cases_root: Path, tmp_path: Path
) -> None:
    # L01: metadata points to the file before the one that holds episode 8.
    hub.repos["org/stale"] = Repo(folder_files(cases_root / "L01"))
    few, stale, gone = opened(hub, tmp_path, (NAME, [12, 3]), ("org/stale", [8]), (NAME, [3, 99]))
    assert few["table"][0] == [3, 12]
    assert stale["table"][0] == [8]
    assert "EpisodeSelectionError" in gone["error"]
    assert "99" in gone["message"]
