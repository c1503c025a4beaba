"""A Hugging Face Hub on this machine, for tests, spoken to by the real `huggingface_hub` and `datasets` clients.

    with FakeHub() as hub:
        repo = hub.add_repo("dataset", "org/name", {"README.md": b"# hello"})
        subprocess.run([...], env={**os.environ, **hub.env(tmp_path)})
        assert repo.files()["README.md"].read() == b"# hello"

The clients read their environment when they are imported, so run them in a process started with `hub.env(...)`, as
above; `hub.connect(...)` points the `huggingface_hub` of this process at the hub instead (not `datasets`).

It has: models, datasets and spaces, public and private; commits, branches, tags, pull requests, discussions; regular
and LFS files (kept on disk, so 100 MB is no matter); ranges; pages; tokens that write, only read or have expired;
every request in `hub.log`; and faults on demand (`fail`, `drop`, `truncate`, `delay`), each counted.

It does NOT check or do, so no test here can speak for it: Xet storage; multipart LFS; redirects to a CDN; gating;
organisation roles and fine-grained tokens; server-side validation of the card's YAML, of `eval.yaml` and of
`.eval_results`; `.gitignore`; quotas and size limits; the dataset viewer and its Parquet conversion; Croissant;
diffs of pull requests; building of spaces; search and listing of repositories; git itself. LFS content known from any
repository counts as uploaded for all. The words of its errors are those seen on the real Hub where known to us.
"""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from tests.fakes.hub_http import Server
from tests.fakes.hub_repo import BlobStore, HubError, Repo
from tests.fakes.hub_routes import Routes

if TYPE_CHECKING:
    import pytest
    from huggingface_hub import HfApi

FAULT_MESSAGES = {
    401: "Invalid credentials in Authorization header",
    403: "Authorization error.",
    409: "Conflict: another operation is in progress",
    412: "A commit has happened since. Please refresh and try again.",
    429: "Too Many Requests",
    500: "Internal Error - We're working hard to fix this as soon as possible!",
    503: "Service Unavailable",
}


@dataclass(frozen=True)
class Token:
    """Who calls and what they may do; `orgs` None may write to every namespace."""

    name: str
    user: str
    role: Literal["read", "write"]
    orgs: tuple[str, ...] | None
    expired: bool

    def belongs_to(self, namespace: str) -> bool:
        return self.orgs is None or namespace in (self.user, *self.orgs)


@dataclass(eq=False)
class Fault:
    """Trouble that awaits the next `times` matching requests; `count` says how many have met it."""

    kind: str  # "fail", "drop before", "drop halfway", "drop after", "truncate" or "delay"
    method: str
    path: re.Pattern[str]
    times: int
    error: HubError | None = None  # of "fail"
    seconds: float = 0.0  # of "delay"
    count: int = 0

    def awaits(self, method: str, path: str) -> bool:
        return self.count < self.times and self.method == method and bool(self.path.search(unquote(path)))


@dataclass
class Request:
    """One request as logged. Bytes are those of the bodies; `status` is None where no answer was sent."""

    method: str
    path: str  # as sent: percent-encoded, with the query
    range: str | None
    fault: Fault | None
    bytes_in: int = 0
    bytes_out: int = 0
    status: int | None = None


class FakeHub:
    """The server and all that it holds; used in a `with`, which starts and ends it.

    Attributes: `url`; `token`, which writes to every namespace as user `tester`; `log`, the requests so far;
    `page_size`, entries to a page of a listing. Hold `lock` to change a Repo directly while clients are at work.
    """

    token = "hf_fake_write"

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fakehub-", ignore_cleanup_errors=True)
        self.store = BlobStore(Path(self._folder.name))
        self.lock = threading.RLock()
        self.repos: dict[tuple[str, str], Repo] = {}
        self.tokens: dict[str, Token] = {}
        self.log: list[Request] = []
        self.faults: list[Fault] = []
        self.page_size = 1000
        self.add_token(self.token, "tester", orgs=None)
        self._server = Server(self, Routes)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FakeHub:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop answering, hang up on whoever is connected, and delete the files. A second call does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up_all()
        self._folder.cleanup()

    def env(self, home: Path, token: str | None = None) -> dict[str, str]:
        """The variables to add to a client's environment; its caches go under `home`. No `token`: `self.token`."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_TOKEN": self.token if token is None else token,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),  # these two win over HF_HOME where a developer has set them
            "HF_DATASETS_CACHE": str(home / "datasets"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "0",
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def connect(self, monkeypatch: pytest.MonkeyPatch, home: Path, token: str | None = None) -> HfApi:
        """Point this process's `huggingface_hub` at the hub, as `env` does a new one's, until the test ends."""
        import huggingface_hub
        from huggingface_hub import constants, hf_api
        from huggingface_hub.utils import _detect_agent

        for name, value in self.env(home, token).items():
            monkeypatch.setenv(name, value)
        patches = {
            "ENDPOINT": self.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": self.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_OFFLINE": False,
            "AGENT_HARNESSES_PATH": str(home / "agents.json"),
        }
        for name, patch in patches.items():
            monkeypatch.setattr(constants, name, patch)
        monkeypatch.setattr(hf_api.api, "endpoint", self.url)  # of the functions that are no methods
        monkeypatch.setattr(_detect_agent, "_registry", None)  # else it is asked of the real Hub
        huggingface_hub.close_session()  # the next one heeds NO_PROXY
        return huggingface_hub.HfApi(endpoint=self.url, token=self.token if token is None else token)

    # ---- what it holds

    def add_repo(
        self,
        repo_type: str,
        repo_id: str,
        files: Mapping[str, bytes | Path] | None = None,
        *,
        private: bool = False,
        sdk: str | None = None,
    ) -> Repo:
        """Create a repository ("model", "dataset" or "space"), with a commit of `files` if any are given."""
        with self.lock:
            if (repo_type, repo_id) in self.repos:
                raise ValueError(f"there is a {repo_type} {repo_id} already")
            repo = self.repos[repo_type, repo_id] = Repo(self.store, repo_type, repo_id, private=private, sdk=sdk)
            if files:
                repo.commit(files, "First files")
            return repo

    def repo(self, repo_type: str, repo_id: str) -> Repo:
        return self.repos[repo_type, repo_id]

    def merge_pr(self, repo: Repo, num: int) -> str:
        """Merge pull request `num` as the repository's owner would; returns the merge commit."""
        with self.lock:
            return repo.merge_pr(num)

    def add_token(
        self,
        name: str,
        user: str,
        *,
        role: Literal["read", "write"] = "write",
        orgs: tuple[str, ...] | None = (),
        expired: bool = False,
    ) -> str:
        """Accept `name` as a token of `user`, who belongs to the namespaces `user` and `orgs` (None: to all)."""
        self.tokens[name] = Token(name, user, role, orgs, expired)
        return name

    # ---- what was asked

    def open_record(self, method: str, path: str, byte_range: str | None) -> Request:
        """Log a request that has just come in, with the first fault that awaits it, now counted."""
        with self.lock:
            fault = next((fault for fault in self.faults if fault.awaits(method, path)), None)
            if fault:
                fault.count += 1
            self.log.append(Request(method, path, byte_range, fault))
            return self.log[-1]

    def requests(self, method: str = "", path_regex: str = "") -> list[Request]:
        """The logged requests of `method` (of any where empty) whose decoded path and query match."""
        pattern = re.compile(path_regex)
        with self.lock:
            return [r for r in self.log if method in ("", r.method) and pattern.search(unquote(r.path))]

    @property
    def bytes_in(self) -> int:
        """Bytes read of the bodies of all requests."""
        return sum(request.bytes_in for request in self.requests())

    @property
    def bytes_out(self) -> int:
        """Bytes sent of the bodies of all answers."""
        return sum(request.bytes_out for request in self.requests())

    # ---- trouble; each awaits requests of `method` whose decoded path and query match `path_regex`

    def fail(self, method: str, path_regex: str, times: int = 1, *, status: int, retry_after: int = 0) -> Fault:
        """Answer with an error and do nothing; a 429 comes with `Retry-After: retry_after` (seconds)."""
        headers = {"Retry-After": str(retry_after)} if status == 429 else {}
        error = HubError(status, FAULT_MESSAGES.get(status, f"Error {status}"), **headers)
        return self._add_fault(Fault("fail", method, re.compile(path_regex), times, error=error))

    def drop(
        self, method: str, path_regex: str, times: int = 1, *, when: Literal["before", "halfway", "after"] = "before"
    ) -> Fault:
        """Hang up: before anything is done, halfway through the answer's body, or when all is done but the answer."""
        return self._add_fault(Fault(f"drop {when}", method, re.compile(path_regex), times))

    def truncate(self, method: str, path_regex: str, times: int = 1) -> Fault:
        """Read half of the request's body, then hang up."""
        return self._add_fault(Fault("truncate", method, re.compile(path_regex), times))

    def delay(self, method: str, path_regex: str, times: int = 1, *, seconds: float) -> Fault:
        """Wait, then answer as usual."""
        return self._add_fault(Fault("delay", method, re.compile(path_regex), times, seconds=seconds))

    def _add_fault(self, fault: Fault) -> Fault:
        with self.lock:
            self.faults.append(fault)
        return fault
