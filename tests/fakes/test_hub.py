"""The fake Hub, spoken to by the real clients: in this process by `HfApi`, and by `datasets` in one of its own."""

import contextlib
import hashlib
import http.client
import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.hub import FakeHub, HubError
from tests.fakes.hub_repo import goes_to_lfs
from tests.fakes.hub_routes import byte_range

ID = "org/name"


@pytest.fixture
def hub():
    with FakeHub() as hub:
        yield hub


@pytest.fixture
def waits(monkeypatch):
    """The seconds that the client would have slept between its tries; it sleeps none."""
    waits = []
    for module in ("utils._http", "file_download"):
        monkeypatch.setattr(f"huggingface_hub.{module}.time", SimpleNamespace(sleep=waits.append))
    return waits


@pytest.fixture
def api(hub, waits, monkeypatch, tmp_path):
    api = hub.connect(monkeypatch, tmp_path / "home")
    api.whoami()  # the first call also asks for things that the tests need not count
    hub.log.clear()
    return api


@pytest.fixture
def as_user(hub, api):
    """An HfApi of someone else; `orgs`, `role` and `expired` as for `FakeHub.add_token`."""
    from huggingface_hub import HfApi

    return lambda user, **rights: HfApi(endpoint=hub.url, token=hub.add_token(f"hf_{user}", user, **rights))


def add(path, content):
    from huggingface_hub import CommitOperationAdd

    return CommitOperationAdd(path_in_repo=path, path_or_fileobj=content)


def commit(api, files, repo_type="dataset", **options):
    operations = [add(path, content) for path, content in files.items()]
    return api.create_commit(ID, operations, commit_message="Some files", repo_type=repo_type, **options)


# ---- repositories


def test_repositories_are_created_once_described_and_deleted(hub, api):
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    assert api.create_repo(ID, repo_type="dataset") == f"{hub.url}/datasets/{ID}"
    assert api.create_repo("org/metric").repo_id == "org/metric"
    api.create_repo("org/board", repo_type="space", space_sdk="static")
    with pytest.raises(HfHubHTTPError, match="You already created this dataset repo") as error:
        api.create_repo(ID, repo_type="dataset")
    assert error.value.response.status_code == 409
    assert api.create_repo(ID, repo_type="dataset", exist_ok=True).repo_id == ID

    info = api.dataset_info(ID, files_metadata=True)
    assert (info.id, info.author, info.private) == (ID, "org", False)
    assert info.sha == hub.repo("dataset", ID).resolve().oid
    assert [(file.rfilename, file.lfs) for file in info.siblings] == [(".gitattributes", None)]
    assert api.space_info("org/board").sdk == "static"
    assert api.whoami()["name"] == "tester"

    api.delete_repo(ID, repo_type="dataset")
    assert not api.repo_exists(ID, repo_type="dataset")
    assert api.repo_exists("org/metric")
    with pytest.raises(RepositoryNotFoundError):
        api.delete_repo(ID, repo_type="dataset")


def test_private_repositories_are_hidden_from_others(hub, api, as_user):
    from huggingface_hub.errors import RepositoryNotFoundError

    api.create_repo(ID, repo_type="dataset", private=True)
    assert api.dataset_info(ID).private is True
    assert as_user("member", orgs=("org",), role="read").repo_exists(ID, repo_type="dataset")
    for token, status in ((as_user("stranger").token, 404), (False, 401)):
        with pytest.raises(RepositoryNotFoundError) as error:
            api.dataset_info(ID, token=token)
        assert error.value.response.status_code == status
    api.update_repo_settings(ID, repo_type="dataset", private=False)
    assert api.dataset_info(ID, token=False).private is False


def test_tokens_say_who_may_write(hub, api, as_user):
    from huggingface_hub.errors import HfHubHTTPError

    repo = hub.add_repo("dataset", ID)
    refusals = {
        (401, "Invalid credentials in Authorization header"): "hf_unknown",
        (401, 'User Access Token "hf_late" is expired'): as_user("late", expired=True).token,
        (401, "Invalid username or password."): False,
        (403, "Authorization error."): as_user("reader", orgs=("org",), role="read").token,
        (403, "pass `create_pr=1` as a query parameter"): as_user("stranger").token,
    }
    for (status, message), token in refusals.items():
        with pytest.raises(HfHubHTTPError) as error:
            commit(api, {"a.txt": b"a"}, token=token)
        assert error.value.response.status_code == status
        assert message in str(error.value)
    with pytest.raises(HfHubHTTPError, match="You don't have the rights to create a model under this namespace"):
        as_user("stranger").create_repo("org/other")
    assert as_user("stranger").create_repo("own").repo_id == "stranger/own"
    commit(as_user("member", orgs=("org",)), {"a.txt": b"a"})
    assert repo.read("a.txt") == b"a"
    assert repo.resolve().author == "member"


# ---- uploads


@pytest.fixture
def folder(tmp_path):
    """A README and two files for LFS of 300,000 and 200,000 bytes."""
    folder = tmp_path / "upload"
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_bytes(b"# Tiny\n")
    (folder / "data" / "a.parquet").write_bytes(bytes(300_000))
    (folder / "data" / "b.parquet").write_bytes(b"\1" * 200_000)
    return folder


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_upload_folder_keeps_every_byte_and_sends_none_twice(hub, api, folder):
    repo = hub.add_repo("dataset", ID)
    api.upload_folder(folder_path=folder, repo_id=ID, repo_type="dataset")
    files = repo.files()
    assert {path: (file.lfs, file.size) for path, file in files.items()} == {
        ".gitattributes": (False, len(repo.read(".gitattributes"))),
        "README.md": (False, 7),
        "data/a.parquet": (True, 300_000),
        "data/b.parquet": (True, 200_000),
    }
    for path in ("README.md", "data/a.parquet", "data/b.parquet"):
        assert files[path].read() == (folder / path).read_bytes()
    assert sorted(r.bytes_in for r in hub.requests("PUT", "^/_lfs/")) == [200_000, 300_000]
    assert 500_000 < hub.bytes_in < 510_000

    hub.log.clear()
    api.upload_folder(folder_path=folder, repo_id=ID, repo_type="dataset")
    assert hub.requests("PUT") == []
    assert len(api.list_repo_commits(ID, repo_type="dataset")) == 2  # nothing new, so no third commit


def test_an_upload_that_failed_resumes_with_what_is_missing(hub, api, folder, waits):
    from huggingface_hub.errors import HfHubHTTPError

    repo = hub.add_repo("dataset", ID)
    fault = hub.fail("PUT", sha256(folder / "data" / "a.parquet"), times=6, status=503)
    with pytest.raises(RuntimeError, match=r"Error while uploading 'data/a\.parquet'") as error:
        api.upload_folder(folder_path=folder, repo_id=ID, repo_type="dataset")
    assert isinstance(error.value.__cause__, HfHubHTTPError)
    assert (fault.count, waits) == (6, [1, 2, 4, 8, 8])
    assert "README.md" not in repo.files()

    hub.log.clear()
    api.upload_folder(folder_path=folder, repo_id=ID, repo_type="dataset")
    assert [r.bytes_in for r in hub.requests("PUT", "^/_lfs/")] == [300_000]
    assert repo.read("data/b.parquet") == (folder / "data" / "b.parquet").read_bytes()


def test_half_an_upload_leaves_nothing(hub):
    content = b"x" * 1000
    sha = hashlib.sha256(content).hexdigest()
    with socket.create_connection(("127.0.0.1", int(hub.url.rsplit(":", 1)[1]))) as client:
        client.sendall(f"PUT /_lfs/{sha} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n".encode() + content[:400])
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""
    assert list(hub.store.folder.iterdir()) == []
    assert (hub.log[0].bytes_in, hub.log[0].status) == (400, None)


def test_wrong_content_is_refused(hub):
    status, headers, _ = request(hub, f"/_lfs/{'0' * 64}", "PUT", b"not that")
    assert (status, headers["X-Error-Message"].split(":")[0]) == (400, "sha256 mismatch")
    assert list(hub.store.folder.iterdir()) == []


def test_chunked_uploads_are_read_whole(hub):
    content = [b"a" * 10, b"b" * 70_000]
    sha = hashlib.sha256(b"".join(content)).hexdigest()
    assert request(hub, f"/_lfs/{sha}", "PUT", iter(content))[0] == 200
    assert hub.store.path(sha).read_bytes() == b"".join(content)
    assert hub.log[0].bytes_in == 70_010


def request(hub, path, method="GET", body=None, headers=None):
    """(status, headers, content) of a request without the client; a body that is an iterator goes out in chunks."""
    with contextlib.closing(connect(hub)) as connection:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read()


def connect(hub):
    return http.client.HTTPConnection(hub.url.removeprefix("http://"))


@pytest.mark.parametrize(
    ("path", "size", "sample", "lfs"),
    [
        ("README.md", 7, b"# Tiny\n", False),
        ("scores.jsonl", 5, "naïve".encode()[:3], False),  # the sample ends inside a letter
        ("scores.jsonl", 10 << 20, b"{}", False),
        ("scores.jsonl", (10 << 20) + 1, b"{}", True),
        ("a/b.parquet", 4, b"PAR1", True),
        ("model", 4, b"a\0bc", True),
        ("model", 4, b"\xff\xfe00", True),
    ],
)
def test_which_files_go_to_lfs(path, size, sample, lfs):
    assert goes_to_lfs(path, size, sample) is lfs


def test_commits_replace_delete_and_are_refused_where_wrong(hub, api):
    from huggingface_hub import CommitOperationDelete
    from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

    repo = hub.add_repo("dataset", ID, {"a.txt": b"1", "old/x.txt": b"x", "old/y/z.txt": b"z", "older.txt": b"o"})
    first = repo.resolve().oid
    operations = [CommitOperationDelete("old/"), CommitOperationDelete("older.txt"), add("a.txt", b"2")]
    api.create_commit(ID, operations, commit_message="Tidy", repo_type="dataset", parent_commit=first)
    assert set(repo.files()) == {".gitattributes", "a.txt"}
    assert repo.read("a.txt") == b"2"
    assert repo.read("a.txt", first) == b"1"

    with pytest.raises(HfHubHTTPError, match="A commit has happened since") as error:
        commit(api, {"b.txt": b"b"}, parent_commit=first)
    assert error.value.response.status_code == 412
    with pytest.raises(RemoteEntryNotFoundError):
        api.delete_file("nope.txt", ID, repo_type="dataset", create_pr=True)
    assert list(api.get_repo_discussions(ID, repo_type="dataset")) == []  # no pull request for what cannot be
    with pytest.raises(HubError, match="Invalid path in repo: a/../b"):
        repo.commit({"a/../b": b""})
    titles = [commit.title for commit in api.list_repo_commits(ID, repo_type="dataset")]
    assert titles == ["Tidy", "First files", "initial commit"]


def test_commits_of_many_threads_are_all_there(hub, api, monkeypatch):
    repo = hub.add_repo("dataset", ID)
    apply = repo.apply
    monkeypatch.setattr(repo, "apply", lambda *args: (time.sleep(0.002), apply(*args))[1])  # let the others run
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: commit(api, {f"{i}.txt": b"%d" % i}), range(24)))
    assert {path: file.read() for path, file in repo.files().items() if path != ".gitattributes"} == {
        f"{i}.txt": b"%d" % i for i in range(24)
    }
    assert len(api.list_repo_commits(ID, repo_type="dataset")) == 25


# ---- pull requests, branches, tags


def test_a_stranger_proposes_and_the_owner_merges(hub, api, as_user):
    repo = hub.add_repo("dataset", ID, {"board.json": b"[]"})
    stranger = as_user("stranger")
    proposed = commit(stranger, {"new/a.txt": b"1", "new/b.png": b"\0"}, create_pr=True, commit_description="Mine")
    assert (proposed.pr_num, proposed.pr_revision) == (1, "refs/pr/1")
    assert proposed.pr_url == f"{hub.url}/datasets/{ID}/discussions/1"
    assert set(repo.files()) == {".gitattributes", "board.json"}
    assert set(repo.files("refs/pr/1")) == {".gitattributes", "board.json", "new/a.txt", "new/b.png"}
    commit(stranger, {"new/a.txt": b"2"}, revision="refs/pr/1")  # its author may go on

    stranger.comment_discussion(ID, 1, "Please merge.", repo_type="dataset")
    details = api.get_discussion_details(ID, 1, repo_type="dataset")
    assert (details.title, details.author, details.status) == ("Some files", "stranger", "open")
    assert (details.git_reference, details.target_branch) == ("refs/pr/1", "refs/heads/main")
    assert details.conflicting_files == []
    assert [event.type for event in details.events] == ["comment", "commit", "commit", "comment"]
    assert [event.content for event in details.events if event.type == "comment"] == ["Mine", "Please merge."]

    repo.commit({"board.json": b"[1]"})  # main goes on meanwhile, elsewhere
    api.merge_pull_request(ID, 1, repo_type="dataset")
    assert repo.read("board.json") == b"[1]"
    assert repo.read("new/a.txt") == b"2"
    details = api.get_discussion_details(ID, 1, repo_type="dataset")
    assert (details.status, details.merge_commit_oid) == ("merged", repo.resolve().oid)
    assert details.events[-1].new_status == "merged"


def test_conflicting_pull_requests_are_not_merged(hub, api, as_user):
    from huggingface_hub.errors import HfHubHTTPError

    repo = hub.add_repo("dataset", ID, {"a.txt": b"0", "b.txt": b"0"})
    for content in (b"1", b"2"):
        commit(api, {"a.txt": content, "b.txt": b"same"}, create_pr=True)
    assert hub.merge_pr(repo, 1) == repo.resolve().oid
    assert api.get_discussion_details(ID, 2, repo_type="dataset").conflicting_files == ["a.txt"]
    with pytest.raises(HfHubHTTPError, match=r"This pull request has conflicts: a\.txt") as error:
        api.merge_pull_request(ID, 2, repo_type="dataset")
    assert error.value.response.status_code == 409
    with pytest.raises(HubError, match="Discussion 1 is no open pull request"):
        hub.merge_pr(repo, 1)
    with pytest.raises(HfHubHTTPError, match="403"):
        as_user("stranger").merge_pull_request(ID, 2, repo_type="dataset")
    assert repo.read("a.txt") == b"1"


def test_discussions_are_listed_by_kind_and_closed(hub, api):
    hub.add_repo("model", ID)
    api.create_discussion(ID, "A question", description="Why?")
    draft = api.create_pull_request(ID, "A proposal")
    assert (draft.num, draft.status, draft.is_pull_request) == (2, "draft", True)
    commit(api, {"a.txt": b"1"}, repo_type="model", revision="refs/pr/2")
    assert hub.repo("model", ID).read("a.txt", "refs/pr/2") == b"1"
    assert [d.num for d in api.get_repo_discussions(ID)] == [2, 1]
    assert [d.num for d in api.get_repo_discussions(ID, discussion_type="pull_request")] == [2]
    assert api.change_discussion_status(ID, 1, "closed", comment="Answered").new_status == "closed"
    assert [d.num for d in api.get_repo_discussions(ID, discussion_status="open")] == [2]
    assert [d.title for d in api.get_repo_discussions(ID, discussion_status="closed", author="tester")] == [
        "A question"
    ]


def test_tags_and_branches_keep_their_commit(hub, api, tmp_path):
    from huggingface_hub.errors import BadRequestError, HfHubHTTPError, RevisionNotFoundError

    repo = hub.add_repo("dataset", ID, {"a.txt": b"1"})
    api.create_tag(ID, tag="v1", repo_type="dataset")
    api.create_branch(ID, branch="next", repo_type="dataset")
    commit(api, {"a.txt": b"2"})
    commit(api, {"a.txt": b"3"}, revision="next")
    commit(api, {"a.txt": b"4"}, create_pr=True)
    for revision, content in (("v1", b"1"), ("main", b"2"), ("next", b"3"), ("refs/pr/1", b"4")):
        path = api.hf_hub_download(ID, "a.txt", repo_type="dataset", revision=revision)
        with open(path, "rb") as file:
            assert file.read() == content
    refs = api.list_repo_refs(ID, repo_type="dataset", include_pull_requests=True)
    assert [(tag.name, tag.ref) for tag in refs.tags] == [("v1", "refs/tags/v1")]
    assert [branch.name for branch in refs.branches] == ["main", "next"]
    assert [pr.ref for pr in refs.pull_requests] == ["refs/pr/1"]
    assert api.dataset_info(ID, revision=repo.resolve("v1").oid[:7]).sha == repo.resolve("v1").oid

    with pytest.raises(HfHubHTTPError, match="Reference already exists"):
        api.create_tag(ID, tag="v1", repo_type="dataset")
    api.create_tag(ID, tag="v1", repo_type="dataset", exist_ok=True)
    with pytest.raises(BadRequestError):
        api.create_branch(ID, branch="refs/pr/7", repo_type="dataset")
    with pytest.raises(RevisionNotFoundError):
        commit(api, {"a.txt": b"5"}, revision="v1")  # a tag does not move
    api.delete_tag(ID, tag="v1", repo_type="dataset")
    api.delete_branch(ID, branch="next", repo_type="dataset")
    with pytest.raises(RevisionNotFoundError):
        api.dataset_info(ID, revision="v1")


# ---- downloads


@given(st.binary(min_size=1, max_size=20), st.data())
def test_byte_ranges_are_those_of_slices(content, data):
    size = len(content)
    first = data.draw(st.integers(0, size - 1))
    last = data.draw(st.integers(first, size + 3))
    suffix = data.draw(st.integers(1, size + 3))
    for header, expected in (
        (f"bytes={first}-{last}", content[first : last + 1]),
        (f"bytes={first}-", content[first:]),
        (f"bytes=-{suffix}", content[-suffix:]),
    ):
        start, end = byte_range(header, size)
        assert content[start:end] == expected
    for beyond in (f"bytes={size}-", f"bytes={size}-{size + 1}", "bytes=-0"):
        with pytest.raises(HubError) as error:
            byte_range(beyond, size)
        assert error.value.status == 416
    assert byte_range(None, size) is byte_range("lines=1-2", size) is byte_range("bytes=-", size) is None


def test_ranges_over_http(hub):
    hub.add_repo("dataset", ID, {"a.bin": bytes(range(100))})
    path = f"/datasets/{ID}/resolve/main/a.bin"
    status, headers, content = request(hub, path, headers={"Range": "bytes=10-19"})
    assert (status, headers["Content-Range"], content) == (206, "bytes 10-19/100", bytes(range(10, 20)))
    assert request(hub, path, headers={"Range": "bytes=100-"})[0] == 416
    assert request(hub, path, "HEAD")[1]["Content-Length"] == "100"
    logged = [(r.method, r.range, r.status, r.bytes_out) for r in hub.log]
    assert logged[0] == ("GET", "bytes=10-19", 206, 10)
    assert logged[2] == ("HEAD", None, 200, 0)


def test_downloads_resume_where_the_line_broke(hub, api, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)  # it keeps whole chunks, of 10 MB
    content = os.urandom(100_000)
    hub.add_repo("dataset", ID, {"a.parquet": content})
    fault = hub.drop("GET", "/resolve/.*/a.parquet", when="halfway")
    path = api.hf_hub_download(ID, "a.parquet", repo_type="dataset", local_dir=tmp_path)
    with open(path, "rb") as file:
        assert file.read() == content
    gets = hub.requests("GET", "a.parquet")
    assert [(r.range, r.bytes_out, r.fault) for r in gets] == [(None, 50_000, fault), ("bytes=50000-", 50_000, None)]
    assert 100_000 <= hub.bytes_out < 101_000


def test_snapshots_fetch_only_what_the_patterns_allow(hub, api, tmp_path):
    files = {"README.md": b"# Tiny", "data/key-0.parquet": b"key", "data/rest-0.parquet": b"rest"}
    hub.add_repo("dataset", ID, files)
    local = tmp_path / "snapshot"
    api.snapshot_download(ID, repo_type="dataset", allow_patterns=["*.md", "data/key-*"], local_dir=local)
    found = {str(path.relative_to(local)) for path in local.rglob("*") if path.is_file()}
    assert {path for path in found if not path.startswith(".cache")} == {"README.md", "data/key-0.parquet"}
    assert hub.requests(path_regex="rest-0") == []


def test_listings_come_in_pages_and_names_are_those_of_git(hub, api, tmp_path):
    from huggingface_hub.hf_api import RepoFile, RepoFolder

    repo = hub.add_repo(
        "dataset", ID, {"hello.txt": b"hello\n", "a/b/c.parquet": b"PAR1", "a/d.txt": b"d", "e.txt": b""}
    )
    hub.page_size = 2
    tree = list(api.list_repo_tree(ID, repo_type="dataset", recursive=True))
    assert [entry.path for entry in tree if isinstance(entry, RepoFolder)] == ["a", "a/b"]
    files = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}
    assert set(files) == set(repo.files())
    assert files["hello.txt"].blob_id == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    assert files["e.txt"].blob_id == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert files["a/b/c.parquet"].lfs.sha256 == hashlib.sha256(b"PAR1").hexdigest()
    assert len(hub.requests("GET", "/tree/")) == 4
    assert [entry.path for entry in api.list_repo_tree(ID, "a", repo_type="dataset")] == ["a/b", "a/d.txt"]
    info = api.get_paths_info(ID, ["a/b", "e.txt", "none"], repo_type="dataset", expand=True)
    assert [entry.path for entry in info] == ["a/b", "e.txt"]
    assert info[1].last_commit.oid == repo.resolve().oid
    assert len(api.list_repo_commits(ID, repo_type="dataset")) == 2

    api.snapshot_download(ID, repo_type="dataset", local_dir=tmp_path)
    checked = api.verify_repo_checksums(ID, repo_type="dataset", local_dir=tmp_path)
    assert (checked.checked_count, checked.mismatches, checked.missing_paths) == (5, [], [])


def test_what_is_not_there_has_the_clients_own_errors(hub, api, tmp_path):
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError

    hub.add_repo("dataset", ID)
    with pytest.raises(EntryNotFoundError):
        api.hf_hub_download(ID, "none.txt", repo_type="dataset")
    with pytest.raises(RepositoryNotFoundError):
        api.hf_hub_download(ID, "none.txt")  # there is no such model
    with pytest.raises(EntryNotFoundError):
        list(api.list_repo_tree(ID, "none", repo_type="dataset"))
    assert not api.file_exists(ID, "none.txt", repo_type="dataset")
    with pytest.raises(HfHubHTTPError, match=f"the fake Hub has no GET /api/datasets/{ID}/likers"):
        list(api.list_repo_likers(ID, repo_type="dataset"))


def test_connect_points_the_whole_client_at_the_hub(hub, api, tmp_path):
    from huggingface_hub import hf_hub_download, whoami

    hub.add_repo("model", ID, {"a.txt": b"1"})
    assert whoami()["name"] == "tester"
    assert hf_hub_download(ID, "a.txt").startswith(str(tmp_path / "home" / "hub"))


def test_the_leaderboard_is_what_the_test_sets(hub, api):
    entry = {"rank": 1, "modelId": "a/b", "value": 0.5, "filename": "x.yaml", "verified": False}
    repo = hub.add_repo("dataset", ID)
    repo.leaderboard = [{**entry, "author": {"name": "tester", "type": "user", "fullname": "T", "avatarUrl": ""}}]
    assert [(e.rank, e.model_id, e.value) for e in api.get_dataset_leaderboard(ID)] == [(1, "a/b", 0.5)]


# ---- faults


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "Invalid credentials"), (403, "403 Forbidden"), (409, "Conflict"), (412, "A commit has happened since")],
)
def test_refusals_are_raised_at_once_and_do_nothing(hub, api, waits, status, message):
    from huggingface_hub.errors import HfHubHTTPError

    repo = hub.add_repo("dataset", ID)
    fault = hub.fail("POST", "/commit/main", status=status)
    with pytest.raises(HfHubHTTPError, match=message) as error:
        commit(api, {"a.txt": b"a"})
    assert (error.value.response.status_code, fault.count, waits) == (status, 1, [])
    assert "a.txt" not in repo.files()
    commit(api, {"a.txt": b"a"})  # the fault is spent, and the connection still good
    assert repo.read("a.txt") == b"a"


@pytest.mark.parametrize(("status", "slept"), [(500, [1, 2]), (503, [1, 2]), (429, [8.0, 8.0])])
def test_passing_trouble_is_tried_again(hub, api, waits, status, slept):
    repo = hub.add_repo("dataset", ID)
    fault = hub.fail("POST", "/preupload/", times=2, status=status, retry_after=7)
    commit(api, {"a.txt": b"a"})
    assert (fault.count, waits) == (2, slept)  # after a 429 the client waits Retry-After and a second
    assert [r.status for r in hub.requests("POST", "/preupload/")] == [status, status, 200]
    assert repo.read("a.txt") == b"a"


def test_a_dropped_request_did_nothing_and_a_dropped_answer_did_all(hub, api):
    repo = hub.add_repo("dataset", ID)
    for when, there in (("before", False), ("after", True)):
        fault = hub.drop("POST", "/commit/main", when=when)
        with pytest.raises(Exception, match="Server disconnected without sending a response"):
            commit(api, {"a.txt": b"a"})
        assert fault.count == 1
        assert ("a.txt" in repo.files()) is there
    assert [r.status for r in hub.requests("POST", "/commit/")] == [None, None]


def test_a_truncated_upload_is_sent_again(hub, api, waits):
    content = os.urandom(4 << 20)  # more than the sockets hold, so that the client is cut while it sends
    repo = hub.add_repo("dataset", ID)
    fault = hub.truncate("PUT", "^/_lfs/")
    commit(api, {"a.bin": content})
    assert (fault.count, waits) == (1, [1])
    assert [r.bytes_in for r in hub.requests("PUT")] == [2 << 20, 4 << 20]
    assert repo.read("a.bin") == content


def test_a_delayed_answer_comes_late(hub, api):
    hub.add_repo("dataset", ID)
    fault = hub.delay("GET", "/api/datasets/", seconds=0.2)
    start = time.monotonic()
    assert api.dataset_info(ID).id == ID
    assert time.monotonic() - start >= 0.2
    assert fault.count == 1


def test_a_closed_hub_answers_nobody_and_keeps_nothing():
    with FakeHub() as hub:
        kept_open = connect(hub)
        kept_open.request("GET", "/api/whoami-v2")
        with kept_open.getresponse() as response:
            assert response.status == 401
            response.read()
        folder = hub.store.folder
        hub.close()
        for connection in (kept_open, connect(hub)):
            with pytest.raises(ConnectionError):
                connection.request("GET", "/api/whoami-v2")
                connection.getresponse()
    assert not folder.exists()


# ---- datasets, in a process of its own that knows the hub from its environment alone

CARD = b"""---
configs:
- config_name: key
  data_files: [{split: test, path: data/key-*.parquet}]
- config_name: all
  default: true
  data_files: [{split: test, path: data/*.parquet}]
---
# Tiny
"""

SCRIPT = """
    import json
    from datasets import Dataset, load_dataset
    from huggingface_hub import create_repo, hf_hub_download, upload_file

    def rows(*args, **options):
        return [dict(row) for row in load_dataset(*args, split="test", **options)]

    out = {"all": rows("org/tiny"), "key": rows("org/tiny", "key")}
    out["at tag"] = rows("org/tiny", "key", revision="v1")
    out["streamed"] = rows("org/tiny", streaming=True)
    filters = [("round", "==", 5)]
    out["filtered"] = rows("org/tiny", streaming=True, columns=["run", "round"], filters=filters)
    Dataset.from_dict({"score": [0.5, 1.5]}).push_to_hub("org/pushed", private=True, split="test")
    out["pushed"] = rows("org/pushed")
    create_repo("own")
    upload_file(path_or_fileobj=b"- value: 1", path_in_repo=".eval_results/b.yaml", repo_id="tester/own")
    out["cache"] = hf_hub_download("tester/own", ".eval_results/b.yaml")
    print(json.dumps(out))
"""


def test_datasets_loads_streams_filters_and_pushes(hub, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(name, rounds):
        rows = [{"run": f"run{run}", "round": number, "image": os.urandom(20_000)} for number in rounds for run in "AB"]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name, row_group_size=2, compression=None)
        return [{"run": row["run"], "round": row["round"]} for row in rows]

    key, rest = write("key.parquet", (1, 5, 10, 20)), write("rest.parquet", (2, 3))
    parts = {"data/key-0.parquet": tmp_path / "key.parquet", "data/rest-0.parquet": tmp_path / "rest.parquet"}
    repo = hub.add_repo("dataset", "org/tiny", {"README.md": CARD, **parts})
    repo.refs["refs/tags/v1"] = repo.resolve().oid
    home = tmp_path / "home"
    script = textwrap.dedent(SCRIPT).replace("dict(row)", '{k: v for k, v in row.items() if k != "image"}')
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **hub.env(home)}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert out["all"] == out["streamed"] == key + rest
    assert out["key"] == out["at tag"] == key
    assert out["filtered"] == [{"run": "runA", "round": 5}, {"run": "runB", "round": 5}]
    assert out["pushed"] == [{"score": 0.5}, {"score": 1.5}]
    assert hub.repo("dataset", "org/pushed").private
    assert hub.repo("model", "tester/own").read(".eval_results/b.yaml") == b"- value: 1"
    assert out["cache"].startswith(str(home / "hub"))
    assert [r for r in hub.log if r.status == 501] == []
    assert any(r.range for r in hub.requests("GET", "key-0.parquet"))
