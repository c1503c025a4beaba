"""What the clients ask of the fake Hub, route by route, and what they are answered."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.fakes.hub_http import Answer, Handler, route
from tests.fakes.hub_repo import MAIN, Changes, Commit, Discussion, File, HubError, Repo, goes_to_lfs

if TYPE_CHECKING:
    from tests.fakes.hub import Token

ID = r"(?P<repo_id>[\w.-]+/[\w.-]+)"
API = rf"/api/(?P<repo_type>model|dataset|space)s/{ID}"
WEB = rf"/(?:(?P<repo_type>dataset|space)s/)?{ID}"
REV = r"(?P<rev>refs/pr/\d+|refs/convert/\w+|[^/]+)"  # the client sends refs%2Fpr%2F1, people write refs/pr/1


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and end (exclusive) that a Range header asks of `size` bytes; None asks for all.

    Raises HubError 416 for a range that begins at or after the end.
    """
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if match is None or match.group(0) == "bytes=-":
        return None
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end:
        raise HubError(416, "Range Not Satisfiable", **{"Content-Range": f"bytes */{size}"})
    return start, end


class Routes(Handler):
    """The Hub's endpoints. Each is given the decoded groups of its path; a repository's two as one Repo, first."""

    def call(self, function: Callable[..., Answer], groups: dict[str, str]) -> Answer:
        self.caller = self.find_caller()
        if "repo_id" not in groups:
            return function(self, **groups)
        repo = self.find_repo(groups.pop("repo_type") or "model", groups.pop("repo_id"))
        return function(self, repo, **groups)

    # ---- who calls, and for what

    def find_caller(self) -> Token | None:
        header = self.headers.get("Authorization")
        if header is None:
            return None
        token = self.hub.tokens.get(header.removeprefix("Bearer "))
        if token is None:
            raise HubError(401, "Invalid credentials in Authorization header")
        if token.expired:
            raise HubError(401, f'User Access Token "{token.name}" is expired')
        return token

    def find_repo(self, repo_type: str, repo_id: str) -> Repo:
        """The repository, which must not be someone else's private one: the Hub does not say whether that exists."""
        repo = self.hub.repos.get((repo_type, repo_id))
        if repo is None or (repo.private and not (self.caller and self.caller.belongs_to(repo.namespace))):
            raise HubError(404 if self.caller else 401, "Repository not found", "RepoNotFound")
        return repo

    def writer(self) -> Token:
        """The caller, whose token must be one that writes."""
        if self.caller is None:
            raise HubError(401, "Invalid username or password.")
        if self.caller.role != "write":
            raise HubError(403, "Authorization error.")
        return self.caller

    def writer_to(self, repo: Repo, ref: str = MAIN) -> Token:
        """The caller, who must be allowed to write to `ref`: an owner, or the author of that pull request."""
        caller = self.writer()
        own_pr = ref.startswith("refs/pr/") and repo.discussion(int(ref.split("/")[2])).author == caller.user
        if not own_pr and not caller.belongs_to(repo.namespace):
            raise HubError(403, "Forbidden: pass `create_pr=1` as a query parameter to create a Pull Request")
        return caller

    def json(self) -> Any:
        return json.loads(self.data or b"{}")

    def flag(self, name: str) -> bool:
        return self.query.get(name, "false").lower() in ("true", "1")

    def page(self, items: list[Any]) -> Answer:
        """One page of `items`, with the link to the next."""
        start = int(self.query.get("cursor", "0"))
        end = start + self.hub.page_size
        if end >= len(items):
            return Answer(items[start:])
        following = urlencode({**self.query, "cursor": end})
        link = f'<{self.hub.url}{urlsplit(self.path).path}?{following}>; rel="next"'
        return Answer(items[start:end], headers={"Link": link})

    # ---- accounts and repositories

    @route("GET", r"/api/whoami-v2")
    def whoami(self) -> Answer:
        caller = self.caller
        if caller is None:
            raise HubError(401, "Invalid username or password.")
        namespaces = {repo.namespace for repo in self.hub.repos.values()} - {caller.user}
        orgs = [{"name": name} for name in sorted(namespaces if caller.orgs is None else caller.orgs)]
        access = {"displayName": caller.name, "role": caller.role}
        return Answer({"type": "user", "name": caller.user, "orgs": orgs, "auth": {"accessToken": access}})

    @route("POST", r"/api/repos/create")
    def create_repo(self) -> Answer:
        asked, caller = self.json(), self.writer()
        repo_type, namespace = asked.get("type") or "model", asked.get("organization") or caller.user
        if not caller.belongs_to(namespace):
            raise HubError(403, f"You don't have the rights to create a {repo_type} under this namespace")
        private = asked.get("visibility") == "private" or asked.get("private", False)  # new clients; old clients
        repo_id = f"{namespace}/{asked['name']}"
        if known := self.hub.repos.get((repo_type, repo_id)):  # the client wants its address even so
            answer = self.refuse(HubError(409, f"You already created this {repo_type} repo"))
            answer.body["url"] = f"{self.hub.url}/{known.web_path}"
            return answer
        repo = self.hub.add_repo(repo_type, repo_id, private=private, sdk=asked.get("sdk"))
        return Answer({"url": f"{self.hub.url}/{repo.web_path}", "name": repo_id})

    @route("DELETE", r"/api/repos/delete")
    def delete_repo(self) -> Answer:
        asked = self.json()
        repo_id = f"{asked.get('organization') or self.writer().user}/{asked['name']}"
        repo = self.find_repo(asked.get("type") or "model", repo_id)
        self.writer_to(repo)
        del self.hub.repos[repo.repo_type, repo.repo_id]
        return Answer({})

    @route("PUT", API + "/settings")
    def update_settings(self, repo: Repo) -> Answer:
        self.writer_to(repo)
        asked = self.json()
        if "visibility" in asked or "private" in asked:
            repo.private = asked.get("visibility") == "private" or asked.get("private", False)
        return Answer({})

    @route("GET", API + r"/auth-check(?P<write>/write)?")
    def auth_check(self, repo: Repo, write: str) -> Answer:
        if write:
            self.writer_to(repo)
        return Answer({})

    @route("POST", r"/api/validate-yaml")
    def validate_yaml(self) -> Answer:
        return Answer({"warnings": [], "errors": []})

    @route("GET", r"/api/agent-harnesses")
    def agent_harnesses(self) -> Answer:
        return Answer({"standardEnvVars": [], "harnesses": {}})  # the client looks for AI agents to name in its headers

    @route("GET", API)
    def info(self, repo: Repo, rev: str = "main") -> Answer:
        commit = repo.resolve(rev)
        siblings = [{"rfilename": path, **self.sizes(file)} for path, file in sorted(commit.tree.items())]
        return Answer(
            {
                "_id": hashlib.sha1(repo.web_path.encode()).hexdigest()[:24],
                "id": repo.repo_id,
                "author": repo.namespace,
                "sha": commit.oid,
                "createdAt": repo.created_at,
                "lastModified": commit.date,
                "private": repo.private,
                "gated": False,
                "disabled": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
                "siblings": siblings,
                **({"sdk": repo.sdk} if repo.sdk else {}),
            }
        )

    @route("GET", API + "/revision/" + REV)
    def info_at(self, repo: Repo, rev: str) -> Answer:
        return self.info(repo, rev)

    def sizes(self, file: File) -> dict[str, Any]:
        """What the info of a repository adds to a file's name when asked for `blobs`."""
        if not self.flag("blobs"):
            return {}
        lfs = {"lfs": {"sha256": file.sha256, "size": file.size, "pointerSize": 130}} if file.lfs else {}
        return {"size": file.size, "blobId": file.git_oid, **lfs}

    @route("GET", r"/api/(?P<repo_type>dataset)s/" + ID + "/leaderboard")
    def leaderboard(self, repo: Repo) -> Answer:
        return Answer(repo.leaderboard)

    # ---- branches, tags, history

    @route("GET", API + "/refs")
    def list_refs(self, repo: Repo) -> Answer:
        def refs(prefix: str) -> list[dict[str, str]]:
            found = [(ref, oid) for ref, oid in repo.refs.items() if ref.startswith(prefix)]
            return [{"name": ref.removeprefix(prefix), "ref": ref, "targetCommit": oid} for ref, oid in found]

        answer = {"branches": refs("refs/heads/"), "tags": refs("refs/tags/"), "converts": []}
        return Answer({**answer, "pullRequests": refs("refs/pr/")} if self.flag("include_prs") else answer)

    def create_ref(self, repo: Repo, ref: str, start: str) -> Answer:
        self.writer_to(repo)
        oid = repo.resolve(start).oid
        if ref in repo.refs:
            raise HubError(409, f"Reference already exists: {ref}")
        repo.refs[ref] = oid
        return Answer({})

    def delete_ref(self, repo: Repo, ref: str) -> Answer:
        self.writer_to(repo)
        if ref == MAIN:
            raise HubError(403, "Cannot delete the main branch")
        if repo.refs.pop(ref, None) is None:
            raise HubError(404, f"Invalid rev id: {ref}", "RevisionNotFound")
        return Answer({})

    @route("POST", API + "/branch/(?P<name>[^/]+)")
    def create_branch(self, repo: Repo, name: str) -> Answer:
        if name.startswith("refs/"):
            raise HubError(400, f"Invalid reference for a branch: {name}")
        return self.create_ref(repo, f"refs/heads/{name}", self.json().get("startingPoint", "main"))

    @route("DELETE", API + "/branch/(?P<name>[^/]+)")
    def delete_branch(self, repo: Repo, name: str) -> Answer:
        return self.delete_ref(repo, f"refs/heads/{name}")

    @route("POST", API + "/tag/" + REV)
    def create_tag(self, repo: Repo, rev: str) -> Answer:
        return self.create_ref(repo, f"refs/tags/{self.json()['tag']}", rev)

    @route("DELETE", API + "/tag/(?P<name>[^/]+)")
    def delete_tag(self, repo: Repo, name: str) -> Answer:
        return self.delete_ref(repo, f"refs/tags/{name}")

    @route("GET", API + "/commits/" + REV)
    def list_commits(self, repo: Repo, rev: str) -> Answer:
        history, commit = [], repo.resolve(rev)
        while True:
            entry = {"id": commit.oid, "title": commit.title, "message": commit.message, "date": commit.date}
            history.append({**entry, "authors": [{"user": commit.author}]})
            if commit.parent is None:
                return self.page(history)
            commit = repo.commits[commit.parent]

    # ---- reading files

    def entry(self, path: str, file: File, commit: Commit) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "file", "path": path, "size": file.size, "oid": file.git_oid}
        if file.lfs:
            entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 130}
        if self.flag("expand"):
            entry["lastCommit"] = {"id": commit.oid, "title": commit.title, "date": commit.date}
        return entry

    @route("GET", API + "/tree/" + REV + "(?:/(?P<folder>.*))?")
    def list_tree(self, repo: Repo, rev: str, folder: str) -> Answer:
        commit, inside = repo.resolve(rev), f"{folder.strip('/')}/" if folder else ""
        entries: dict[str, dict[str, Any]] = {}
        for path, file in sorted(commit.tree.items()):
            if not path.startswith(inside):
                continue
            depth = path.count("/") - inside.count("/")
            for level in range(depth if self.flag("recursive") else min(1, depth)):
                parent = path.rsplit("/", depth - level)[0]
                entries[parent] = {"type": "directory", "path": parent, "size": 0, "oid": "0" * 40}
            if self.flag("recursive") or depth == 0:
                entries[path] = self.entry(path, file, commit)
        if inside and not entries:
            raise HubError(404, f"{folder} does not exist on {rev}", "EntryNotFound")
        return self.page(list(entries.values()))

    @route("POST", API + "/paths-info/" + REV)
    def paths_info(self, repo: Repo, rev: str) -> Answer:
        commit, form = repo.resolve(rev), parse_qs(self.data.decode())
        self.query["expand"] = form.get("expand", ["false"])[0]
        found = []
        for path in form.get("paths", []):
            if path in commit.tree:
                found.append(self.entry(path, commit.tree[path], commit))
            elif any(name.startswith(path.rstrip("/") + "/") for name in commit.tree):
                found.append({"type": "directory", "path": path, "size": 0, "oid": "0" * 40})
        return Answer(found)

    @route("GET", WEB + "/resolve/" + REV + "/(?P<path>.+)")
    def download(self, repo: Repo, rev: str, path: str) -> Answer:
        commit = repo.resolve(rev)
        if path not in commit.tree:
            raise HubError(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": commit.oid})
        file = commit.tree[path]
        headers = {"X-Repo-Commit": commit.oid, "ETag": f'"{file.etag}"', "Accept-Ranges": "bytes"}
        if file.lfs:
            headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
        part = byte_range(self.headers.get("Range"), file.size)
        if part is None:
            return Answer(None, 200, headers, file.blob, 0, file.size)
        headers["Content-Range"] = f"bytes {part[0]}-{part[1] - 1}/{file.size}"
        return Answer(None, 206, headers, file.blob, *part)

    # ---- writing files

    def target(self, repo: Repo, rev: str) -> str | None:
        """The branch that the caller is about to commit to, or None for a new pull request; both checked."""
        if self.flag("create_pr"):
            self.writer()
            return None
        ref = repo.branch(rev)
        self.writer_to(repo, ref)
        return ref

    @route("POST", API + "/preupload/" + REV)
    def preupload(self, repo: Repo, rev: str) -> Answer:
        self.target(repo, rev)
        tree, files = repo.resolve(rev).tree, []
        for asked in self.json()["files"]:
            path, known = asked["path"], tree.get(asked["path"])
            lfs = goes_to_lfs(path, asked["size"], base64.b64decode(asked["sample"]))
            mode, oid = "lfs" if lfs else "regular", known.etag if known else None
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return Answer({"files": files})

    @route("POST", WEB + r"\.git/info/lfs/objects/batch")
    def lfs_batch(self, repo: Repo) -> Answer:
        asked = self.json()
        if "ref" in asked:  # left out for a pull request, which whoever reads may open
            self.writer_to(repo, repo.branch(asked["ref"]["name"]))
        self.writer()
        objects = []
        for item in asked["objects"]:
            href = f"{self.hub.url}/_lfs/{item['oid']}"
            actions = {"upload": {"href": href}, "verify": {"href": f"{self.hub.url}/_lfs/verify"}}
            known = self.hub.store.path(item["oid"]).exists()
            objects.append({"oid": item["oid"], "size": item["size"], **({} if known else {"actions": actions})})
        return Answer({"transfer": "basic", "objects": objects})

    @route("PUT", r"/_lfs/(?P<oid>[0-9a-f]{64})", streams=True)
    def lfs_upload(self, oid: str) -> Answer:
        self.hub.store.write(self.pieces, oid)
        return Answer({}, headers={"ETag": f'"{oid}"'})

    @route("POST", r"/_lfs/verify")
    def lfs_verify(self) -> Answer:
        blob = self.hub.store.path(self.json()["oid"])
        if not blob.exists() or blob.stat().st_size != self.json()["size"]:
            raise HubError(422, "The uploaded object is not what was announced")
        return Answer({})

    @route("POST", API + "/commit/" + REV)
    def commit(self, repo: Repo, rev: str) -> Answer:
        ref, head = self.target(repo, rev), repo.resolve(rev)
        lines = [json.loads(line) for line in self.data.splitlines()]
        header, operations = lines[0]["value"], lines[1:]
        title, description, parent = header["summary"], header.get("description", ""), header.get("parentCommit")
        if ref and parent and not head.oid.startswith(parent):
            raise HubError(412, "A commit has happened since. Please refresh and try again.")
        base = head if ref or not parent else repo.resolve(parent)
        changes = self.changes(operations, base.tree)
        repo.apply(changes, base.tree)  # refuses what is wrong before a pull request is opened for it
        author, pull_request = self.writer().user, None
        if ref is None:
            pull_request = repo.open_discussion(title, author, description, pull_request=True, base=base.oid)
            ref = f"refs/pr/{pull_request.num}"
        oid = repo.commit(changes, title, revision=ref, message=description, author=author)
        page = f"{self.hub.url}/{repo.web_path}"
        answer = {"success": True, "commitOid": oid, "commitUrl": f"{page}/commit/{oid}", "hookOutput": ""}
        if pull_request:
            answer["pullRequestUrl"] = f"{page}/discussions/{pull_request.num}"
        return Answer(answer)

    def changes(self, operations: list[dict[str, Any]], tree: dict[str, File]) -> Changes:
        """The operations of a commit as changes of `tree`; deletions come first, so that a file can be replaced."""
        store = self.hub.store
        changes: dict[str, bytes | Path | File | None] = {}
        for operation in operations:
            path = operation["value"]["path"]
            if operation["key"] == "deletedFile":
                changes[path] = None
            elif operation["key"] == "deletedFolder":
                changes |= {name: None for name in tree if name.startswith(path.rstrip("/") + "/")}
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                sha256 = store.write([base64.b64decode(value["content"])])
                changes[value["path"]] = store.file(sha256, lfs=False)
            elif operation["key"] == "lfsFile":
                if not store.path(value["oid"]).exists():
                    raise HubError(422, f"LFS pointer pointed to a file that does not exist: {value['path']}")
                changes[value["path"]] = store.file(value["oid"], lfs=True)
        return changes

    # ---- discussions and pull requests

    def summary(self, repo: Repo, discussion: Discussion) -> dict[str, Any]:
        return {
            "num": discussion.num,
            "title": discussion.title,
            "status": discussion.status,
            "author": {"name": discussion.author},
            "createdAt": discussion.created_at,
            "isPullRequest": discussion.pull_request,
            "repo": {"name": repo.repo_id, "type": repo.repo_type},
        }

    @route("GET", API + "/discussions")
    def list_discussions(self, repo: Repo) -> Answer:
        found = repo.discussions[::-1]
        if kind := self.query.get("type"):
            found = [d for d in found if kind == "all" or d.pull_request == (kind == "pull_request")]
        if status := self.query.get("status"):
            found = [d for d in found if status == "all" or (d.status in ("open", "draft")) == (status == "open")]
        if author := self.query.get("author"):
            found = [d for d in found if d.author == author]
        return Answer({"discussions": [self.summary(repo, d) for d in found], "count": len(found), "start": 0})

    @route("POST", API + "/discussions")
    def open_discussion(self, repo: Repo) -> Answer:
        asked, author, pull_request = self.json(), self.writer().user, self.json()["pullRequest"]
        discussion = repo.open_discussion(
            asked["title"], author, asked["description"], pull_request=pull_request, draft=pull_request
        )
        return Answer({"num": discussion.num, "url": f"{self.hub.url}/{repo.web_path}/discussions/{discussion.num}"})

    @route("GET", API + r"/discussions/(?P<num>\d+)")
    def discussion_details(self, repo: Repo, num: str) -> Answer:
        discussion = repo.discussion(int(num))
        details = {**self.summary(repo, discussion), "events": discussion.events}
        if discussion.pull_request:
            merged = {"mergeCommitId": discussion.merge_commit} if discussion.merge_commit else {}
            details["changes"] = {"base": MAIN, **merged}
            details["filesWithConflicts"] = [] if merged else repo.conflicts_of_pr(discussion.num)
        return Answer(details)

    @route("POST", API + r"/discussions/(?P<num>\d+)/comment")
    def comment(self, repo: Repo, num: str) -> Answer:
        event = repo.discussion(int(num)).comment(self.writer().user, self.json()["comment"])
        return Answer({"newMessage": event})

    @route("POST", API + r"/discussions/(?P<num>\d+)/status")
    def change_status(self, repo: Repo, num: str) -> Answer:
        discussion, asked = repo.discussion(int(num)), self.json()
        caller = self.writer_to(repo, f"refs/pr/{num}")  # its author may close it too
        if asked.get("comment"):
            discussion.comment(caller.user, asked["comment"])
        return Answer({"newStatus": discussion.set_status(caller.user, asked["status"])})

    @route("POST", API + r"/discussions/(?P<num>\d+)/merge")
    def merge(self, repo: Repo, num: str) -> Answer:
        caller = self.writer_to(repo)
        if comment := (self.json() or {}).get("comment"):
            repo.discussion(int(num)).comment(caller.user, comment)
        return Answer({"mergeCommitId": repo.merge_pr(int(num), caller.user)})
