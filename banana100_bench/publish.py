"""Publish a dataset folder on the Hub: only what changed is sent, and a call that was cut short continues."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_bytes, sha256_file
from banana100_bench.package import manifest as manifests
from banana100_bench.package.manifest import Manifest
from banana100_bench.package.storage import HubDataset, hub_errors
from banana100_bench.package.walking import File
from banana100_bench.progress import progress
from banana100_bench.verify import verify

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, HfApi

TRIES, FIRST_WAIT_S, LONGEST_WAIT_S = 5, 1.0, 60.0
PASSING = (408, 409, 412, 429, 500, 502, 503, 504)  # statuses after which the same may succeed
SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a push will do. send, delete: names of files. same: how many files are there already, byte for byte.

    revision: the branch or pull request; None: a pull request is opened first. exists: whether the repository does.
    """

    repo_id: str
    exists: bool
    private: bool
    revision: str | None
    send: dict[str, int] = field(default_factory=dict)
    delete: list[str] = field(default_factory=list)
    same: int = 0

    def describe(self) -> str:
        where = f"{self.repo_id}, " + (f"revision {self.revision}" if self.revision else "a new pull request")
        if not self.exists:
            where = f"{self.repo_id}, to be created, {'private' if self.private else 'PUBLIC'}"
        lines = [
            f"to {where}: send {len(self.send)} files, {sum(self.send.values()) / 1e6:.1f} MB; "
            f"delete {len(self.delete)}; leave {self.same} as they are"
        ]
        shown = [f"  + {name} ({size / 1e6:.1f} MB)" for name, size in self.send.items()]
        shown += [f"  - {name}" for name in self.delete]
        lines += shown[:SHOWN]
        if len(shown) > SHOWN:
            lines.append(f"  and {len(shown) - SHOWN} more")
        return "\n".join(lines)


def push(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool = False,
    create_pr: bool = False,
    tag: str | None = None,
    dry_run: bool = False,
    say: Callable[[str], None] = print,
) -> str:
    """Make the dataset repository `repo_id` hold what `folder` holds; gives a line on what was done.

    Files that the Hub has already, by SHA-256, are not sent. Of the files there, those alone are deleted that the
    manifest there names and this one does not; others stay. All is one commit, made when every large file is up.
    private: where the repository must be created. create_pr: propose the change; the caller's own open pull request of
    this name is continued. tag: name the new state; a tag that is there already is never moved.
    dry_run: say what would be done. say: takes the lines that tell what will be done, before it is.

    Raises BananaError where `folder` does not verify (a quick check here; each file is hashed as it is sent), where
    it has changed meanwhile, and where the Hub refuses or cannot be reached after some tries.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo_id)
        if "/" not in repo_id:
            raise ValueError
    except ValueError as error:
        raise UsageError(f"{repo_id}: expected ORG/NAME") from error
    manifest = _verified(Path(folder))
    title = f"{manifest.name}: {manifest.counts.images} images, fingerprint {manifest.fingerprint[:12]}"
    api = HfApi()
    plan = _plan(api, manifest, Path(folder), repo_id, private, create_pr, title)
    say(plan.describe())
    if tag is not None:
        say(f"then tag it {tag}")
    if dry_run:
        return "nothing was done"
    if not plan.exists:
        with hub_errors(repo_id):
            api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True)
    revision = plan.revision
    if revision is None:
        text = "Proposed by `banana100 push`."
        with hub_errors(repo_id):
            opened = api.create_pull_request(repo_id, title, repo_type="dataset", description=text)
        revision = f"refs/pr/{opened.num}"
    _send(api, manifest, Path(folder), repo_id, revision, title)
    done = f"{repo_id}: revision {revision} holds {manifest.name}, fingerprint {manifest.fingerprint[:12]}"
    if tag is not None:
        _tag(api, repo_id, revision, tag)
        done += f", tagged {tag}"
    return done


def _verified(folder: Path) -> Manifest:
    checked = verify(folder, quick=True)
    if checked.faults or checked.manifest is None:
        more = f"; and {len(checked.faults) - 3} more" if len(checked.faults) > 3 else ""
        raise BananaError(f"{folder}: does not verify, so it is not published: {'; '.join(checked.faults[:3])}{more}")
    return checked.manifest


def _plan(
    api: HfApi, manifest: Manifest, folder: Path, repo_id: str, private: bool, create_pr: bool, title: str
) -> Plan:
    with hub_errors(repo_id):
        exists = api.repo_exists(repo_id, repo_type="dataset")
        revision: str | None = "main"
        if create_pr:
            if not exists:
                raise UsageError(f"{repo_id}: no such repository, so no pull request to it; push without --create-pr")
            revision = _own_pull_request(api, repo_id, title)
    if exists:
        send, delete, same = _difference(manifest, folder, repo_id, revision or "main")
    else:
        send, delete, same = {name: file.size for name, file in _wanted(manifest, folder).items()}, [], 0
    return Plan(
        repo_id=repo_id,
        exists=exists,
        private=private,
        revision=revision,
        send=send,
        delete=delete,
        same=same,
    )


def _own_pull_request(api: HfApi, repo_id: str, title: str) -> str | None:
    """The revision of the caller's own open pull request of this title, which a call cut short may have left."""
    me = api.whoami()["name"]
    found = api.get_repo_discussions(repo_id, repo_type="dataset", discussion_type="pull_request", author=me)
    for one in found:
        if one.title == title and one.status in ("draft", "open"):
            return f"refs/pr/{one.num}"
    return None


def _wanted(manifest: Manifest, folder: Path) -> dict[str, File]:
    """The files to be there: those of the manifest, and the manifest itself."""
    path = folder / manifests.FILE
    files = {entry.path: File(folder / entry.path, entry.bytes, 0, entry.sha256) for entry in manifest.files}
    return files | {manifests.FILE: File(path, path.stat().st_size, 0, sha256_file(path))}


def _difference(manifest: Manifest, folder: Path, repo_id: str, revision: str) -> tuple[dict[str, int], list[str], int]:
    """Files to send with their sizes, files to delete, and how many are there already."""
    place = HubDataset(repo_id, revision)
    there = place.files()
    wanted = _wanted(manifest, folder)
    send = {}
    for name, file in wanted.items():
        known = there.get(name)
        digest = known.sha256 if known else None
        if known and digest is None and known.size == file.size:  # small text, of which the Hub tells no SHA-256
            digest = sha256_bytes(place.read(name, file.size))
        if digest != file.sha256:
            send[name] = file.size
    old: set[str] = set()
    if manifests.FILE in there:
        try:
            old = {entry.path for entry in manifests.read(place).files}
        except BananaError:  # another's manifest tells us nothing, so its files stay
            pass
    return send, sorted((old & there.keys()) - wanted.keys()), len(wanted) - len(send)


def _send(api: HfApi, manifest: Manifest, folder: Path, repo_id: str, revision: str, title: str) -> None:
    """Send and commit; after trouble that may pass, look at what is there and do what is left."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    def once() -> None:
        place = HubDataset(repo_id, revision)
        with hub_errors(repo_id):
            parent = place.commit
        send, delete, _ = _difference(manifest, folder, repo_id, revision)
        if not send and not delete:  # a commit whose answer was lost
            return
        wanted = _wanted(manifest, folder)
        additions = []
        with progress("sending", len(send), "files") as advance:
            for name in send:
                addition = CommitOperationAdd(name, folder / name)  # hashes the file
                _check(addition, wanted[name], folder / name)
                api.preupload_lfs_files(repo_id, [addition], repo_type="dataset", revision=revision)
                additions.append(addition)
                advance(1)
        operations: list[Any] = [*additions, *(CommitOperationDelete(name) for name in delete)]
        api.create_commit(
            repo_id, operations, commit_message=title, repo_type="dataset", revision=revision, parent_commit=parent
        )

    _with_patience(repo_id, once)


def _check(addition: CommitOperationAdd, wanted: File, path: Path) -> None:
    if addition.upload_info.sha256.hex() != wanted.sha256:
        raise BananaError(f"{path}: its bytes are not those of the manifest, so nothing was published; build it again")


def _tag(api: HfApi, repo_id: str, revision: str, tag: str) -> None:
    def once() -> None:
        there = {ref.name: ref.target_commit for ref in api.list_repo_refs(repo_id, repo_type="dataset").tags}
        head = HubDataset(repo_id, revision).commit
        if tag not in there:
            api.create_tag(repo_id, tag=tag, repo_type="dataset", revision=head)
        elif there[tag] != head:
            raise BananaError(f"{repo_id}: tag {tag} is there, on another state; a tag is never moved: choose another")

    _with_patience(repo_id, once)


def _with_patience(what: str, once: Callable[[], None]) -> None:
    """`once`, which may be done again, after trouble that may pass; a line where it does not."""
    for tries in range(1, TRIES + 1):
        try:
            once()
            return
        except Exception as error:
            wait = _wait(error, tries)
            if wait is None or tries == TRIES:
                with hub_errors(what):
                    raise
            time.sleep(wait)


def _wait(error: Exception, tries: int) -> float | None:
    """How many seconds to wait before another try; None: it is of no use."""
    cause = error.__cause__ if isinstance(error, BananaError) else error
    if cause is None:
        return None
    wait = min(FIRST_WAIT_S * 2 ** (tries - 1), LONGEST_WAIT_S)
    response = getattr(cause, "response", None)
    if response is None:  # no answer came
        return (
            wait if type(cause).__module__.partition(".")[0] in ("httpx2", "httpx", "httpcore2", "httpcore") else None
        )
    if response.status_code not in PASSING:
        return None
    told = response.headers.get("Retry-After", "")
    return min(float(told), LONGEST_WAIT_S) if told.isdecimal() else wait
