"""A small Hub on loopback: what `huggingface_hub` asks for, with faults to switch on.

    with serve({"org/name": Repo(folder_files(path))}) as hub:
        ran = hub.run("from vlaprep import hub; ...", home=tmp_path)
        assert not [r for r in hub.requests if "videos" in r.path]

It can also be written to: `hub_writes` has that side.

`huggingface_hub` reads HF_ENDPOINT and HF_HUB_OFFLINE when it is imported, so code under test runs
in a process of its own (`run`), with a cache folder of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from hub_writes import Writes, blob_oid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOKEN = "hf_loopbacksecret"
READ_TOKEN = "hf_loopbackreader"  # of somebody who may neither write nor see what is private

_API = re.compile(
    r"/api/(?P<kind>datasets|models)/(?P<repo>[^/]+/[^/]+)"
    r"(?:/(?P<what>revision|tree|refs)(?:/(?P<rev>[^/]+))?)?"
)
_RESOLVE = re.compile(
    r"(?:/(?P<kind>datasets))?/(?P<repo>[^/]+/[^/]+)/resolve/(?P<rev>[^/]+)/(?P<path>.+)"
)


def folder_files(folder: Path) -> dict[str, bytes]:
    """All files below `folder` by their relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


class Repo:
    """A repository: commits, branches that can move, and who may read it."""

    def __init__(
        self,
        files: dict[str, bytes],
        *,
        kind: str = "datasets",
        private: bool = False,
        gated: bool = False,
    ) -> None:
        self.kind, self.private, self.gated = kind, private, gated
        self.commits: dict[str, dict[str, bytes]] = {}
        self.refs: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self.commit(files)

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        """Add a commit, move `branch` to it, and give its hash."""
        digest = hashlib.sha1(str(len(self.commits)).encode())
        for path, content in sorted(files.items()):
            digest.update(path.encode() + content)
        sha = digest.hexdigest()
        self.commits[sha] = dict(files)
        self.refs[branch] = sha
        return sha

    @property
    def main(self) -> str:
        """Commit that the main branch points at."""
        return self.refs["main"]


@dataclass
class Faults:
    """What goes wrong, and how often. All off by default; change it between calls."""

    every: int = 0
    """Each `every`-th request is answered with `status`; 0 = none, 1 = all."""
    first: int = 0
    """So many of the next requests are answered with `status`."""
    only: str = ""
    """Pattern that "METHOD /path" must match to be counted; the empty one matches all."""
    status: int = 429
    headers: dict[str, str] = field(default_factory=lambda: {"Retry-After": "0"})
    cut: dict[str, int] = field(default_factory=dict)
    """Path in the repository -> how many GETs of it are cut off half way."""
    deaf: int = 0
    """So many of the next commits are made, and the connection cut instead of an answer."""


@dataclass(frozen=True)
class Request:
    """One line of the server's log."""

    method: str
    path: str
    status: int
    authorized: bool
    range: str | None
    at: float


class HubServer:
    """The running server: where it listens, what it was asked, what goes wrong."""

    def __init__(self, repos: dict[str, Repo]) -> None:
        self.repos = repos
        self.faults = Faults()
        self.requests: list[Request] = []
        self.page_size = 1000
        self.before: Callable[[str], None] = lambda request: None
        """Called with "METHOD /path" before each answer: what others do to the Hub meanwhile."""
        self.lfs_from = 10_000_000
        """Files of so many bytes are wanted as large ones."""
        self.blobs: dict[str, bytes] = {}
        """Large files that were uploaded, by SHA-256."""
        self._lock = threading.Lock()
        self._count = 0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.hub = self
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._http.server_address[1]}"

    def stop(self) -> None:
        """Stop listening; connections are refused from now on."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def forget(self) -> None:
        """Empty the log."""
        self.requests.clear()

    def paths(self, method: str | None = None) -> list[str]:
        """Paths asked for so far, without their query."""
        return [urlsplit(r.path).path for r in self.requests if method in (None, r.method)]

    def run(
        self, code: str, home: Path, *, args: tuple[Any, ...] = (), **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Python `code` against this server; `home` is its HF_HOME, `args` its arguments."""
        foreign = ("HF_", "HUGGING", "TRANSFORMERS_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        own = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, args)],
            env={**kept, **own, "NO_PROXY": "127.0.0.1", **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def fails(self, request: str) -> bool:
        """Count one request, "METHOD /path"; say whether it is one that fails."""
        with self._lock:
            if not re.search(self.faults.only, request):
                return False
            self._count += 1
            self.faults.first -= 1
            every = self.faults.every
            return self.faults.first >= 0 or (every > 0 and self._count % every == 0)

    def cuts(self, path: str) -> bool:
        """Say whether this GET of `path` is to be cut off, and count it."""
        with self._lock:
            left = self.faults.cut.get(path, 0)
            self.faults.cut[path] = max(left - 1, 0)
            return left > 0


@contextmanager
def serve(repos: dict[str, Repo]) -> Iterator[HubServer]:
    """Serve `repos` (by "org/name") until the block ends."""
    hub = HubServer(repos)
    try:
        yield hub
    finally:
        hub.stop()


class _Handler(Writes, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: object) -> None:
        """Say nothing on stderr; the log is `HubServer.requests`."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    @property
    def _hub(self) -> HubServer:
        return self.server.hub

    @property
    def _token(self) -> str:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    @property
    def _authorized(self) -> bool:
        return self._token == TOKEN

    def _answer(self) -> None:
        faults = self._hub.faults
        url = urlsplit(self.path)
        request = f"{self.command} {url.path}"
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._hub.before(request)
        if self._hub.fails(request):
            self._send(faults.status, b"slow down", faults.headers)
        elif self.command in {"POST", "PUT"}:
            self._write(url.path, parse_qs(url.query))
        elif found := _API.fullmatch(url.path):
            self._api(found, parse_qs(url.query))
        elif found := _RESOLVE.fullmatch(url.path):
            self._file(found)
        else:
            self._error(404, "EntryNotFound")

    def _commit(
        self, found: re.Match[str], *, content: bool
    ) -> tuple[str, dict[str, bytes]] | None:
        """Commit and files that the request may see; None once an error was sent."""
        repo = self._hub.repos.get(found["repo"])
        if repo is None or repo.kind != (found["kind"] or "models"):
            return self._error(404, "RepoNotFound")
        if repo.private and not self._authorized:
            # The real Hub does not tell an absent repository from a private one either.
            if self._token == READ_TOKEN:
                return self._error(404, "RepoNotFound", "Repository not found")
            return self._error(401, None, "Invalid username or password.")
        if repo.gated and content and not self._authorized:
            status = 403 if self._token == READ_TOKEN else 401
            return self._error(status, "GatedRepo", "Access to this dataset is restricted.")
        revision = unquote(found["rev"] or "main")
        sha = repo.refs.get(revision, revision)
        if sha not in repo.commits:
            return self._error(404, "RevisionNotFound")
        return sha, repo.commits[sha]

    def _api(self, found: re.Match[str], query: dict[str, list[str]]) -> None:
        visible = self._commit(found, content=False)
        if visible is None:
            return
        sha, files = visible
        repo = self._hub.repos[found["repo"]]
        if found["what"] == "refs":
            refs = [
                {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit}
                for name, commit in repo.refs.items()
            ]
            self._json({"branches": refs, "converts": [], "tags": []})
            return
        if found["what"] != "tree":
            siblings = [{"rfilename": path} for path in files]
            about = {"id": found["repo"], "sha": sha, "private": repo.private}
            self._json({**about, "siblings": siblings})
            return
        folders = {path.rpartition("/")[0] for path in files} - {""}
        rows = [
            {"type": "directory", "path": path, "oid": "0" * 40, "size": 0}
            for path in sorted(folders)
        ]
        for path, content in files.items():
            oid = blob_oid(content)
            rows.append({"type": "file", "path": path, "oid": oid, "size": len(content)})
        start = int(query.get("cursor", ["0"])[0])
        stop = start + self._hub.page_size
        more = {}
        if stop < len(rows):
            link = f"{self._hub.endpoint}{urlsplit(self.path).path}?recursive=True&cursor={stop}"
            more = {"Link": f'<{link}>; rel="next"'}
        self._json(rows[start:stop], more)

    def _file(self, found: re.Match[str]) -> None:
        visible = self._commit(found, content=True)
        if visible is None:
            return
        sha, files = visible
        path = unquote(found["path"])
        if path not in files:
            self._error(404, "EntryNotFound")
            return
        content = files[path]
        headers = {"X-Repo-Commit": sha, "ETag": f'"{blob_oid(content)}"', "Accept-Ranges": "bytes"}
        if path.endswith(".parquet"):  # kept as a large file on the real Hub
            headers["X-Linked-Etag"] = f'"{hashlib.sha256(content).hexdigest()}"'
            headers["X-Linked-Size"] = str(len(content))
        status, body = 200, content
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            first, last = int(wanted[1]), int(wanted[2] or len(content) - 1)
            status, body = 206, content[first : last + 1]
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        cut = self.command == "GET" and self._hub.cuts(path)
        self._send(status, body, headers, cut=cut)

    def _json(
        self, value: object, headers: dict[str, str] | None = None, *, status: int = 200
    ) -> None:
        headers = {"Content-Type": "application/json", **(headers or {})}
        self._send(status, json.dumps(value).encode(), headers)

    def _error(self, status: int, code: str | None, message: str = "") -> None:
        headers = {"X-Error-Message": message} if message else {}
        if code:
            headers["X-Error-Code"] = code
        self._send(status, b"{}", {"Content-Type": "application/json", **headers})

    def _send(
        self, status: int, body: bytes, headers: dict[str, str], *, cut: bool = False
    ) -> None:
        wanted = self.headers.get("Range")
        entry = Request(self.command, self.path, status, self._authorized, wanted, time.monotonic())
        self._hub.requests.append(entry)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.wfile.flush()
            self.close_connection = True
