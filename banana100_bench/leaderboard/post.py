"""Send a submission: into a local clone, or as a pull request on the Hub. A rerun sends nothing twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from banana100_bench import files
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.leaderboard.submission import FOLDER, MAX_BYTES, Submission, read_plain

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

EVAL_RESULTS = ".eval_results/banana100.yaml"
RepoType = Literal["dataset", "model"]
# What the Hub's answers mean to a person, by HTTP status.
REFUSALS = {
    401: "the Hub does not accept the token, or it has expired: log in anew with `hf auth login`, or set HF_TOKEN",
    403: "the token may not write there: make one with the right to open pull requests",
    404: "no such repository, or the token may not see it",
    409: "someone else is changing it at this moment: run the same command again",
    412: "someone else has changed it meanwhile: run the same command again",
    429: "the Hub asks to wait: run the same command again in some minutes",
}


def path_of(submission: Submission) -> str:
    """Where the submission lies in a board's repository."""
    return f"{FOLDER}/{submission.card.slug}.json"


def to_folder(submission: Submission, folder: Path, *, replace: bool = False) -> tuple[Path, bool]:
    """Write `submission` into the board's `folder`; gives the path, and whether anything was written.

    BananaError where another submission of that name stands there, unless `replace`.
    """
    path = Path(folder) / path_of(submission)
    if not path.parent.is_dir():
        raise UsageError(f"{folder}: not a board's folder: it has no {FOLDER}/")
    data = submission.text().encode()
    if path.is_symlink() or path.exists():
        if read_plain(path, MAX_BYTES) == data:
            return path, False
        if not replace:
            raise _taken(submission, str(path))
    files.write_bytes(path, data)
    return path, True


def to_hub(submission: Submission, repo_id: str, *, replace: bool = False) -> str:
    """Open a pull request on the board's dataset repository `repo_id`; gives what was done, with its address.

    One that is open with the same file is left as it is, one of ours with another is brought up to date.
    """
    from huggingface_hub import HfApi

    data = submission.text().encode()
    with hub_errors(repo_id):
        api = HfApi()
        there = _entry(api, repo_id, "dataset", path_of(submission), "main")
        if there and _is(there, data):
            return f"{repo_id} has it already, merged"
        if there and not replace:
            raise _taken(submission, f"{repo_id}: {path_of(submission)}")
        return _propose(
            api,
            repo_id,
            "dataset",
            path_of(submission),
            data,
            f"Submission: {submission.card.name}",
            _message(submission),
        )


def eval_results(submission: Submission, dataset_id: str) -> str:
    """`.eval_results/banana100.yaml` of the model's own repository: what the Hub shows on its page.

    dataset_id: the Hub dataset whose eval.yaml has these tasks. UsageError for simulated images: the Hub
    would show the numbers without that word.
    """
    import yaml
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    if submission.data.simulated:
        raise UsageError(
            "the images are simulated: that is no result to show on a model's page; leave --hub-dataset out"
        )
    values = {"strict_pass_rate": submission.claims.strict_pass_rate, "concordance": submission.claims.concordance}
    entries = [
        EvalResultEntry(
            dataset_id=dataset_id,
            task_id=task,
            value=value,
            date=submission.created_at,
            notes=f"banana100-bench {submission.harness}",
        )
        for task, value in values.items()
    ]
    return yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False)


def to_model_repo(submission: Submission, dataset_id: str) -> str:
    """Open a pull request with `eval_results` on the model's repository, once; gives what was done."""
    from huggingface_hub import HfApi

    repo_id = submission.card.hub_repo
    if repo_id is None:
        raise UsageError("--hub-dataset: the submission names no repository of the model; give --hub-repo too")
    data = eval_results(submission, dataset_id).encode()
    with hub_errors(repo_id):
        api = HfApi()
        there = _entry(api, repo_id, "model", EVAL_RESULTS, "main")
        if there and _is(there, data):
            return f"{repo_id} has it already, merged"
        return _propose(api, repo_id, "model", EVAL_RESULTS, data, "Banana100 results", _message(submission))


def _propose(api: HfApi, repo_id: str, repo_type: RepoType, path: str, data: bytes, title: str, message: str) -> str:
    """A pull request that puts `data` at `path`; an open one of the same title by the same user is used again."""
    from huggingface_hub import CommitOperationAdd

    operation = [CommitOperationAdd(path_in_repo=path, path_or_fileobj=data)]
    author = api.whoami()["name"]
    for one in api.get_repo_discussions(
        repo_id, repo_type=repo_type, discussion_type="pull_request", discussion_status="open", author=author
    ):
        if one.title == title:
            there = _entry(api, repo_id, repo_type, path, f"refs/pr/{one.num}")
            if there and _is(there, data):
                return f"the pull request is open already: {one.url}"
            api.create_commit(
                repo_id, operation, commit_message=title, repo_type=repo_type, revision=f"refs/pr/{one.num}"
            )
            return f"brought the open pull request up to date: {one.url}"
    done = api.create_commit(
        repo_id, operation, commit_message=title, commit_description=message, repo_type=repo_type, create_pr=True
    )
    return f"opened a pull request: {done.pr_url}"


def _entry(api: HfApi, repo_id: str, repo_type: RepoType, path: str, revision: str) -> RepoFile | None:
    from huggingface_hub.hf_api import RepoFile

    found = api.get_paths_info(repo_id, path, repo_type=repo_type, revision=revision)
    return next((one for one in found if isinstance(one, RepoFile)), None)


def _is(entry: RepoFile, data: bytes) -> bool:
    """Whether a file on the Hub holds `data`: git names it by SHA-1, LFS by SHA-256."""
    if entry.lfs:
        return entry.lfs.sha256 == files.sha256_bytes(data)
    return entry.blob_id == hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _message(submission: Submission) -> str:
    claims, data = submission.claims, submission.data
    return (
        f"{submission.model.id} on {'SIMULATED ' * data.simulated}{data.name} {data.dataset_fingerprint[:12]}: "
        f"strict pass rate {claims.strict_pass_rate:.3f}, concordance {claims.concordance:.3f}, "
        f"{claims.images_detected} of {claims.n_images} images detected.\n\nFile SHA-256 {submission.digest}."
    )


def _taken(submission: Submission, where: str) -> BananaError:
    return BananaError(
        f"{where}: a row called {submission.card.name!r} stands there with other content; choose another --name, or "
        "--replace if it is yours"
    )


@contextmanager
def hub_errors(repo_id: str) -> Iterator[None]:
    """Turns what the Hub's client raises into one clear line."""
    from huggingface_hub import errors

    try:
        yield
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if isinstance(error, errors.RepositoryNotFoundError):
            status = 404 if status != 401 or "redentials" not in str(error) else 401
        if status == 401 and "Repository" in str(error):
            status = 404
        told = REFUSALS.get(status, "the Hub is in trouble: run the same command again later")
        raise BananaError(f"{repo_id}: {told} (HTTP {status})") from error
    except errors.HFValidationError as error:
        raise UsageError(
            f"{repo_id}: not a repository of the Hub, as org/name: {str(error).splitlines()[0]}"
        ) from error
    except errors.LocalTokenNotFoundError as error:
        raise BananaError(f"{repo_id}: {REFUSALS[401]}") from error
    except (errors.HTTPError, OSError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BananaError(
            f"{repo_id}: the connection failed ({why}); run the same command again: nothing is sent twice"
        ) from error
