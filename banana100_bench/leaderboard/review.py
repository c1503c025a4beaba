"""The pull requests of a board's repository on the Hub: what each would change, and the maintainers' answer."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from banana100_bench.errors import BananaError
from banana100_bench.leaderboard.post import hub_errors
from banana100_bench.leaderboard.submission import FOLDER, MAX_BYTES

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_PATH = re.compile(rf"{FOLDER}/[a-z0-9][a-z0-9._-]*\.json")


@dataclass(frozen=True)
class Proposal:
    """An open pull request. name, text: of the submission it adds; text is None where `fault` says why not."""

    number: int
    title: str
    url: str
    commit: str
    name: str = ""
    text: bytes | None = None
    fault: str | None = None


def proposals(repo_id: str, numbers: list[int] | None = None) -> Iterator[Proposal]:
    """The open pull requests on the dataset repository `repo_id`, the oldest first; or those of these numbers.

    One is a submission if it adds or changes one file, submissions/NAME.json, and nothing else.
    """
    from huggingface_hub import HfApi

    with hub_errors(repo_id):
        api = HfApi()
        found = api.get_repo_discussions(
            repo_id, repo_type="dataset", discussion_type="pull_request", discussion_status="open"
        )
        open_ones = sorted(found, key=lambda one: one.num)
        known = {one.num for one in open_ones}
        for number in numbers or []:
            if number not in known:
                raise BananaError(f"{repo_id}: there is no open pull request {number}")
        on_main = {commit.commit_id for commit in api.list_repo_commits(repo_id, repo_type="dataset")}
        for one in open_ones:
            if numbers is None or one.num in numbers:
                yield _proposal(api, repo_id, one.num, one.title, one.url, on_main)


def _proposal(api: HfApi, repo_id: str, number: int, title: str, url: str, on_main: set[str]) -> Proposal:
    revision = f"refs/pr/{number}"
    commits = [commit.commit_id for commit in api.list_repo_commits(repo_id, repo_type="dataset", revision=revision)]
    base = next((commit for commit in commits if commit in on_main), None)
    head = commits[0]
    before = _tree(api, repo_id, base) if base else {}
    after = _tree(api, repo_id, head)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))

    def refused(why: str) -> Proposal:
        return Proposal(number, title, url, head, fault=why)

    if len(changed) != 1 or not _PATH.fullmatch(changed[0]) or changed[0] not in after:
        shown = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
        return refused(f"it changes {shown or 'nothing'}; expected one file, {FOLDER}/NAME.json, added or changed")
    size = after[changed[0]][1]
    if size > MAX_BYTES:
        return refused(f"{changed[0]}: {size} bytes, larger than the limit of {MAX_BYTES} bytes; not downloaded")
    with tempfile.TemporaryDirectory() as folder:
        path = api.hf_hub_download(repo_id, changed[0], repo_type="dataset", revision=head, local_dir=folder)
        with open(path, "rb") as file:
            text = file.read(MAX_BYTES + 1)
    return Proposal(number, title, url, head, name=changed[0].rpartition("/")[2], text=text)


def _tree(api: HfApi, repo_id: str, revision: str) -> dict[str, tuple[str, int]]:
    """Content id and size of every file, by path."""
    from huggingface_hub.hf_api import RepoFile

    tree = api.list_repo_tree(repo_id, repo_type="dataset", revision=revision, recursive=True)
    return {
        entry.path: (entry.lfs.sha256 if entry.lfs else entry.blob_id, entry.size)
        for entry in tree
        if isinstance(entry, RepoFile)
    }


def comment(repo_id: str, proposal: Proposal, verdict: str) -> bool:
    """Say `verdict` on the pull request, once for each of its commits; gives whether it was said now."""
    from huggingface_hub import HfApi

    # In a code block, so that nothing a stranger wrote is taken for Markdown.
    fence = "`" * (1 + max(map(len, re.findall("`+", verdict)), default=2))
    text = f"{fence}\n{verdict}\n{fence}\nOf commit {proposal.commit}."
    with hub_errors(repo_id):
        api = HfApi()
        details = api.get_discussion_details(repo_id, proposal.number, repo_type="dataset")
        if any(getattr(event, "content", None) == text for event in details.events):
            return False
        api.comment_discussion(repo_id, proposal.number, text, repo_type="dataset")
    return True
