"""The repositories of the fake Hub: contents on disk, commits, branches, tags, discussions and pull requests."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

MAIN = "refs/heads/main"
BLOCK = 1 << 20
REGULAR_LIMIT = 10 << 20  # bytes; larger files go to LFS, whatever they hold
LFS_SUFFIXES = (".bin", ".gz", ".jpeg", ".jpg", ".npy", ".npz", ".parquet", ".png", ".tar", ".webp", ".zip", ".zst")
GITATTRIBUTES = "".join(f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES).encode()


class HubError(Exception):
    """The Hub's refusal: an HTTP status with the X-Error-Code and X-Error-Message that the client reads."""

    def __init__(self, status: int, message: str, code: str = "", **headers: str) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.headers = status, message, code, headers


def now() -> str:
    """This moment as the Hub writes it: ISO 8601, UTC, milliseconds."""
    return f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def goes_to_lfs(path: str, size: int, sample: bytes) -> bool:
    """Whether the Hub keeps a new file in LFS: by its suffix, above 10 MiB, or where its first bytes are no text."""
    if path.endswith(LFS_SUFFIXES) or size > REGULAR_LIMIT or b"\0" in sample:
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # incremental: the sample may end inside a letter
    except UnicodeDecodeError:
        return True
    return False


@dataclass(frozen=True)
class File:
    """One file of a commit. `git_oid` is git's name of its content, or of its pointer where it lies in LFS."""

    sha256: str
    size: int
    git_oid: str
    lfs: bool
    blob: Path = field(compare=False)

    def read(self) -> bytes:
        return self.blob.read_bytes()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.git_oid


Changes = Mapping[str, "bytes | Path | File | None"]  # path -> new content, None to delete


class BlobStore:
    """Contents by their SHA-256 in one folder; each is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        return self.folder / sha256

    def write(self, pieces: Iterable[bytes], expected: str | None = None) -> str:
        """Keep what `pieces` hold and return its SHA-256. Raises HubError 400 where that is not `expected`."""
        digest = hashlib.sha256()
        handle, name = tempfile.mkstemp(dir=self.folder, suffix=".part")
        try:
            with open(handle, "wb") as file:
                for piece in pieces:
                    digest.update(piece)
                    file.write(piece)
            if expected not in (None, digest.hexdigest()):
                raise HubError(400, f"sha256 mismatch: expected {expected}, got {digest.hexdigest()}")
            os.replace(name, self.path(digest.hexdigest()))
        finally:
            Path(name).unlink(missing_ok=True)
        return digest.hexdigest()

    def file(self, sha256: str, *, lfs: bool) -> File:
        """The File of a content that is in the store."""
        blob = self.path(sha256)
        size = blob.stat().st_size
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
        content = pointer if lfs else blob.read_bytes()
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        return File(sha256, size, oid, lfs, blob)

    def add(self, path: str, content: bytes | Path) -> File:
        """Keep a new file as an upload would have."""
        if isinstance(content, Path):
            with open(content, "rb") as stream:
                sample = stream.read(512)
                stream.seek(0)
                sha256 = self.write(iter(lambda: stream.read(BLOCK), b""))
        else:
            sample, sha256 = content[:512], self.write([content])
        size = self.path(sha256).stat().st_size
        return self.file(sha256, lfs=size > 0 and goes_to_lfs(path, size, sample))


@dataclass(frozen=True)
class Commit:
    oid: str
    parent: str | None
    title: str
    message: str
    author: str
    date: str
    tree: dict[str, File]


@dataclass
class Discussion:
    """A discussion or pull request; a pull request's commits lie under `refs/pr/<num>`."""

    num: int
    title: str
    author: str
    pull_request: bool
    status: Literal["open", "draft", "closed", "merged"]
    base: str  # the commit a pull request started from
    created_at: str = field(default_factory=now)
    events: list[dict[str, Any]] = field(default_factory=list)
    merge_commit: str | None = None

    def add_event(self, kind: str, author: str, data: dict[str, Any]) -> dict[str, Any]:
        event_id = hashlib.sha1(f"{self.num}/{len(self.events)}".encode()).hexdigest()[:24]
        event = {"id": event_id, "type": kind, "createdAt": now(), "author": {"name": author}, "data": data}
        self.events.append(event)
        return event

    def comment(self, author: str, text: str) -> dict[str, Any]:
        latest = {"raw": text, "html": text, "updatedAt": now(), "author": {"name": author}}
        return self.add_event(
            "comment", author, {"edited": False, "hidden": False, "latest": latest, "history": [latest]}
        )

    def set_status(self, author: str, status: Literal["open", "closed", "merged"]) -> dict[str, Any]:
        self.status = status
        return self.add_event("status-change", author, {"status": status})


class Repo:
    """One repository with its history. Tests may read and change it directly; the client does so over HTTP."""

    def __init__(
        self, store: BlobStore, repo_type: str, repo_id: str, *, private: bool = False, sdk: str | None = None
    ):
        self.store, self.repo_type, self.repo_id, self.private, self.sdk = store, repo_type, repo_id, private, sdk
        self.created_at = now()
        self.commits: dict[str, Commit] = {}
        self.refs: dict[str, str] = {}  # full name (refs/heads/main, refs/tags/v1, refs/pr/1) -> commit
        self.discussions: list[Discussion] = []
        self.leaderboard: list[dict[str, Any]] = []  # what /leaderboard answers, as the test sets it
        self._record(
            MAIN, {".gitattributes": store.add(".gitattributes", GITATTRIBUTES)}, "initial commit", "", "system"
        )

    @property
    def namespace(self) -> str:
        return self.repo_id.split("/")[0]

    @property
    def web_path(self) -> str:
        """The path of its page: `org/name`, `datasets/org/name` or `spaces/org/name`."""
        return self.repo_id if self.repo_type == "model" else f"{self.repo_type}s/{self.repo_id}"

    def resolve(self, revision: str = "main") -> Commit:
        """The commit of a branch, tag, pull request (`refs/pr/1`) or commit name (7 digits will do)."""
        for name in (f"refs/heads/{revision}", f"refs/tags/{revision}", revision):
            if name in self.refs:
                return self.commits[self.refs[name]]
        if re.fullmatch(r"[0-9a-f]{7,40}", revision):
            for oid, commit in self.commits.items():
                if oid.startswith(revision):
                    return commit
        raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def files(self, revision: str = "main") -> dict[str, File]:
        """Path -> File of every file at `revision`."""
        return dict(self.resolve(revision).tree)

    def read(self, path: str, revision: str = "main") -> bytes:
        return self.resolve(revision).tree[path].read()

    def branch(self, revision: str) -> str:
        """The full name of the branch or pull request that `revision` names, for one can commit to no other."""
        for name in (f"refs/heads/{revision}", revision):
            if name in self.refs and not name.startswith("refs/tags/"):
                return name
        raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def apply(self, changes: Changes, tree: dict[str, File]) -> dict[str, File]:
        """`tree` with files added, replaced or (None) deleted. Raises HubError on a bad path or a file not there."""
        tree = dict(tree)
        for path, content in changes.items():
            if any(part in ("", ".", "..") for part in path.split("/")):
                raise HubError(400, f"Invalid path in repo: {path}")
            if content is not None:
                tree[path] = content if isinstance(content, File) else self.store.add(path, content)
            elif tree.pop(path, None) is None:
                raise HubError(404, f"A file with the name {path} does not exist", "EntryNotFound")
        return tree

    def commit(
        self,
        changes: Changes,
        title: str = "Commit by the test",
        *,
        revision: str = "main",
        message: str = "",
        author: str = "tester",
    ) -> str:
        """Commit to a branch or pull request; returns the new commit's name. Raises HubError as `apply` does."""
        ref = self.branch(revision)
        oid = self._record(ref, self.apply(changes, self.resolve(ref).tree), title, message, author)
        if ref.startswith("refs/pr/"):
            self.discussion(int(ref.split("/")[2])).add_event("commit", author, {"subject": title, "oid": oid})
        return oid

    def open_discussion(
        self,
        title: str,
        author: str,
        text: str = "",
        *,
        pull_request: bool = False,
        draft: bool = False,
        base: str = "main",
    ) -> Discussion:
        """Open a discussion, or a pull request that starts from `base`."""
        start = self.resolve(base).oid
        number = len(self.discussions) + 1
        discussion = Discussion(number, title, author, pull_request, "draft" if draft else "open", start)
        discussion.comment(author, text)
        self.discussions.append(discussion)
        if pull_request:
            self.refs[f"refs/pr/{number}"] = start
        return discussion

    def discussion(self, num: int) -> Discussion:
        if not 1 <= num <= len(self.discussions):
            raise HubError(404, f"Discussion {num} does not exist")
        return self.discussions[num - 1]

    def changes_of_pr(self, num: int) -> dict[str, File | None]:
        """What a pull request adds, replaces or (None) deletes, against the commit that it started from."""
        base, head = self.commits[self.discussion(num).base].tree, self.resolve(f"refs/pr/{num}").tree
        return {path: head.get(path) for path in sorted({*base, *head}) if base.get(path) != head.get(path)}

    def conflicts_of_pr(self, num: int) -> list[str]:
        """Files that both the pull request and, since it started, main have changed, and not alike."""
        base, main = self.commits[self.discussion(num).base].tree, self.resolve().tree
        changes = self.changes_of_pr(num).items()
        return [path for path, new in changes if main.get(path) not in (base.get(path), new)]

    def merge_pr(self, num: int, author: str = "tester") -> str:
        """Bring a pull request's changes into main; returns the merge commit. Raises HubError 409 on conflicts."""
        pull_request = self.discussion(num)
        if not pull_request.pull_request or pull_request.status in ("merged", "closed"):
            raise HubError(409, f"Discussion {num} is no open pull request")
        if conflicts := self.conflicts_of_pr(num):
            raise HubError(409, f"This pull request has conflicts: {', '.join(conflicts)}")
        main = self.resolve().tree
        changes = {path: new for path, new in self.changes_of_pr(num).items() if main.get(path) != new}
        pull_request.merge_commit = self.commit(changes, f"{pull_request.title} (#{num})", author=author)
        pull_request.set_status(author, "merged")
        return pull_request.merge_commit

    def _record(self, ref: str, tree: dict[str, File], title: str, message: str, author: str) -> str:
        parent = self.refs.get(ref)
        names = json.dumps([len(self.commits), parent, title, sorted((path, file.etag) for path, file in tree.items())])
        oid = hashlib.sha1(f"{self.web_path} {names}".encode()).hexdigest()
        self.commits[oid] = Commit(oid, parent, title, message, author, now(), tree)
        self.refs[ref] = oid
        return oid
