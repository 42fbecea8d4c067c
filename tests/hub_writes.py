"""What the loopback Hub of `hub_server` does with writes: repositories, branches, commits."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from hub_server import HubServer, Repo

_WRITE = re.compile(
    r"/api/(?P<kind>datasets|models)/(?P<repo>[^/]+/[^/]+)"
    r"/(?P<what>branch|preupload|commit)/(?P<rev>[^/]+)"
)
_LFS = re.compile(r"/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects/batch")


def blob_oid(content: bytes) -> str:
    """Git's name of a blob."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Writes:
    """The part of the request handler that answers POST and PUT."""

    _hub: HubServer
    _body: bytes
    _token: str
    _authorized: bool

    def _write(self, path: str, query: dict[str, list[str]]) -> None:
        if path == "/api/validate-yaml":
            self._validate_card()
        elif path.startswith("/lfs/"):
            self._hub.blobs[path.removeprefix("/lfs/")] = self._body
            self._json({})
        elif path == "/api/repos/create":
            if self._may_write():
                self._create()
        elif found := _LFS.fullmatch(path):
            if self._may_write():
                self._lfs_batch()
        elif found := _WRITE.fullmatch(path):
            repo = self._hub.repos.get(found["repo"])
            is_pr = query.get("create_pr") == ["1"]
            if repo is None or repo.kind != found["kind"]:
                self._error(404, "RepoNotFound")
            elif self._may_write(or_read=is_pr):
                answer = {"branch": self._branch, "preupload": self._preupload}
                if found["what"] == "commit":
                    self._take_commit(repo, found["repo"], unquote(found["rev"]), is_pr=is_pr)
                else:
                    answer[found["what"]](repo, unquote(found["rev"]))
        else:
            self._error(404, "EntryNotFound")

    def _may_write(self, *, or_read: bool = False) -> bool:
        if not self._token or self._token.startswith("hf_wrong"):
            self._error(401, None, "Invalid username or password.")
        elif not (self._authorized or or_read):
            self._error(403, None, "You don't have the rights to write here.")
        else:
            return True
        return False

    def _create(self) -> None:
        from hub_server import Repo

        asked = json.loads(self._body)
        name = f"{asked['organization']}/{asked['name']}"
        kind = f"{asked.get('type', 'model')}s"
        url = {"url": f"{self._hub.endpoint}/{name}"}
        if name in self._hub.repos:
            self._json({"error": f"You already created this {kind} repo", **url}, status=409)
            return
        private = asked.get("private") is True or asked.get("visibility") == "private"
        files = {".gitattributes": b"*.bin filter=lfs\n"}
        self._hub.repos[name] = Repo(files, kind=kind, private=private)
        self._json(url)

    def _validate_card(self) -> None:
        good = json.loads(self._body)["content"].startswith("---\n")
        errors = [] if good else [{"message": "no metadata"}]
        self._json({"errors": errors, "warnings": []}, status=200 if good else 400)

    def _branch(self, repo: Repo, branch: str) -> None:
        if branch in repo.refs:
            self._error(409, None, "Reference already exists")
            return
        repo.refs[branch] = repo.main
        self._json({})

    def _preupload(self, repo: Repo, revision: str) -> None:
        if revision not in repo.refs:
            self._error(404, "RevisionNotFound")
            return
        held = repo.commits[repo.refs[revision]]
        answers = []
        for file in json.loads(self._body)["files"]:
            mode = "lfs" if file["size"] >= self._hub.lfs_from else "regular"
            answer: dict[str, Any] = {"path": file["path"], "uploadMode": mode}
            if file["path"] in held:
                content = held[file["path"]]
                is_large = mode == "lfs"
                answer["oid"] = _sha256(content) if is_large else blob_oid(content)
            answers.append({**answer, "shouldIgnore": False})
        self._json({"files": answers})

    def _lfs_batch(self) -> None:
        objects = []
        for asked in json.loads(self._body)["objects"]:
            href = f"{self._hub.endpoint}/lfs/{asked['oid']}"
            known = asked["oid"] in self._hub.blobs
            actions = {} if known else {"actions": {"upload": {"href": href, "header": {}}}}
            objects.append({**asked, **actions})
        self._json({"transfer": "basic", "objects": objects})

    def _take_commit(self, repo: Repo, repo_id: str, revision: str, *, is_pr: bool) -> None:
        lines = [json.loads(line) for line in self._body.splitlines()]
        if revision not in repo.refs:
            self._error(404, "RevisionNotFound")
            return
        header = lines[0]["value"]
        parent = header.get("parentCommit")
        if not is_pr and parent not in (None, repo.refs[revision]):
            self._error(412, None, "A commit has happened since. Please refresh and try again.")
            return
        files = dict(repo.commits[parent or repo.refs[revision]])
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self._hub.blobs[value["oid"]]
            else:
                del files[value["path"]]
        number = sum(ref.startswith("refs/pr/") for ref in repo.refs) + 1
        sha = repo.commit(files, f"refs/pr/{number}" if is_pr else revision)
        repo.messages[sha] = header["summary"]
        if self._hub.faults.deaf > 0:
            self._hub.faults.deaf -= 1
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        url = f"{self._hub.endpoint}/{repo_id}"
        answer = {"success": True, "commitOid": sha, "commitUrl": f"{url}/commit/{sha}"}
        self._json(answer | ({"pullRequestUrl": f"{url}/discussions/{number}"} if is_pr else {}))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
