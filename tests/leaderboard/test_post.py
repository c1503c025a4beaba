import pytest
import yaml

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.leaderboard import post
from tests.fakes.judged import make_rows
from tests.leaderboard.conftest import BOARD
from tests.leaderboard.making import submission

MADE = submission(hub_repo="org/metric")
PATH = "submissions/metric.json"
REAL = submission(rows=make_rows(simulated=False), hub_repo="org/metric")


# --- a folder


def test_into_a_folder_once_and_again(home):
    path, new = post.to_folder(MADE, home)
    assert (path, new) == (home / PATH, True)
    assert path.read_text() == MADE.text()
    assert post.to_folder(MADE, home) == (path, False)


def test_another_row_of_that_name_is_not_overwritten_unless_told(home):
    post.to_folder(MADE, home)
    with pytest.raises(
        BananaError, match="a row called 'Metric' stands there with other content; choose another --name"
    ):
        post.to_folder(submission(seed=2), home)
    assert (home / PATH).read_text() == MADE.text()
    post.to_folder(submission(seed=2), home, replace=True)
    assert (home / PATH).read_text() == submission(seed=2).text()


def test_a_link_in_the_folder_leads_nowhere(home, tmp_path):
    (tmp_path / "victim").write_text("precious")
    (home / PATH).symlink_to(tmp_path / "victim")
    with pytest.raises(BananaError, match="is a link"):
        post.to_folder(MADE, home, replace=True)
    assert (tmp_path / "victim").read_text() == "precious"
    with pytest.raises(UsageError, match="not a board's folder"):
        post.to_folder(MADE, tmp_path)


# --- the Hub


def prs(hub):
    return [(one.num, one.title, one.status, one.author) for one in hub.board.discussions]


def test_a_stranger_opens_a_pull_request_and_a_rerun_opens_no_second(hub, log_in):
    log_in("stranger")
    done = post.to_hub(MADE, BOARD)
    assert done == f"opened a pull request: {hub.url}/datasets/{BOARD}/discussions/1"
    assert prs(hub) == [(1, "Submission: Metric", "open", "stranger")]
    assert PATH not in hub.board.files()
    assert hub.board.files("refs/pr/1")[PATH].read() == MADE.text().encode()
    assert post.to_hub(MADE, BOARD).startswith("the pull request is open already: ")
    assert len(prs(hub)) == 1


def test_a_better_file_goes_into_the_same_pull_request(hub, log_in):
    log_in("stranger")
    post.to_hub(MADE, BOARD)
    assert post.to_hub(submission(seed=2), BOARD).startswith("brought the open pull request up to date: ")
    assert hub.board.files("refs/pr/1")[PATH].read() == submission(seed=2).text().encode()
    assert len(prs(hub)) == 1


def test_anothers_pull_request_of_the_same_title_is_left_alone(hub, log_in):
    log_in("one")
    post.to_hub(MADE, BOARD)
    log_in("two")
    assert post.to_hub(submission(seed=2), BOARD).startswith("opened a pull request")
    assert [author for *_, author in prs(hub)] == ["one", "two"]
    assert hub.board.files("refs/pr/1")[PATH].read() == MADE.text().encode()


def test_what_is_merged_is_not_sent_and_a_conflict_told(hub, log_in):
    log_in("stranger")
    post.to_hub(MADE, BOARD)
    hub.merge_pr(hub.board, 1)
    assert post.to_hub(MADE, BOARD) == f"{BOARD} has it already, merged"
    with pytest.raises(BananaError, match="a row called 'Metric' stands there with other content"):
        post.to_hub(submission(seed=2), BOARD)
    assert post.to_hub(submission(seed=2), BOARD, replace=True).startswith("opened a pull request")
    assert len(prs(hub)) == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_when_the_network_is_lost_halfway_the_rerun_opens_one_pull_request(hub, log_in, when):
    log_in("stranger")
    fault = hub.drop("POST", "/commit/main", when=when)
    with pytest.raises(BananaError, match="the connection failed .*run the same command again: nothing is sent twice"):
        post.to_hub(MADE, BOARD)
    assert fault.count == 1
    assert len(prs(hub)) == (when == "after")
    said = post.to_hub(MADE, BOARD)
    assert said.startswith("the pull request is open already" if when == "after" else "opened a pull request")
    assert len(prs(hub)) == 1


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, "the Hub does not accept the token, or it has expired"),
        (403, "the token may not write there"),
        (409, "someone else is changing it at this moment"),
        (412, "someone else has changed it meanwhile"),
        (400, "the Hub is in trouble"),
    ],
)
def test_refusals_are_one_clear_line(hub, log_in, status, told):
    log_in("stranger")
    hub.fail("POST", "/commit/main", status=status)
    with pytest.raises(BananaError) as error:
        post.to_hub(MADE, BOARD)
    assert str(error.value).startswith(f"{BOARD}: {told}")
    assert str(error.value).endswith(f"(HTTP {status})")
    assert "\n" not in str(error.value)
    assert prs(hub) == []


def test_expired_token_missing_repository_and_no_name(hub, log_in):
    log_in("late", expired=True)
    with pytest.raises(BananaError, match=r"does not accept the token, or it has expired: log in anew .*\(HTTP 401\)"):
        post.to_hub(MADE, BOARD)
    log_in("stranger")
    with pytest.raises(BananaError, match=r"org/nowhere: no such repository, or the token may not see it \(HTTP 404\)"):
        post.to_hub(MADE, "org/nowhere")
    log_in("reader", role="read")
    with pytest.raises(BananaError, match="the token may not write there"):
        post.to_hub(MADE, BOARD)
    with pytest.raises(UsageError, match="not a repository of the Hub, as org/name"):
        post.to_hub(MADE, "no/such/path")
    assert prs(hub) == []


# --- the model's own repository


def test_the_models_page_gets_its_results_once(hub, log_in):
    repo = hub.add_repo("model", "org/metric", {"README.md": b"# Metric"})
    log_in("stranger")
    assert post.to_model_repo(REAL, "org/banana100").startswith("opened a pull request: ")
    assert post.to_model_repo(REAL, "org/banana100").startswith("the pull request is open already")
    assert len(repo.discussions) == 1
    entries = yaml.safe_load(repo.files("refs/pr/1")[post.EVAL_RESULTS].read())
    assert [(one["dataset"], one["value"]) for one in entries] == [
        ({"id": "org/banana100", "task_id": "strict_pass_rate"}, REAL.claims.strict_pass_rate),
        ({"id": "org/banana100", "task_id": "concordance"}, REAL.claims.concordance),
    ]
    hub.merge_pr(repo, 1)
    assert post.to_model_repo(REAL, "org/banana100") == "org/metric has it already, merged"


def test_simulated_results_never_go_to_a_models_page(hub):
    with pytest.raises(UsageError, match="the images are simulated"):
        post.to_model_repo(MADE, "org/banana100")
    with pytest.raises(UsageError, match="names no repository of the model"):
        post.to_model_repo(submission(rows=make_rows(simulated=False)), "org/banana100")
    assert hub.requests("POST", "/commit/") == []
