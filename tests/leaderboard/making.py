"""Submissions made up for the tests: honest-looking metrics on made-up rows, and files that lie."""

import json

from banana100_bench.leaderboard.submission import Ground, make_card, make_submission, parse_submission
from banana100_bench.models.baselines import uniform
from banana100_bench.protocol import Rounds
from tests.fakes.judged import FakeData, info, judge, make_rows

ROWS = make_rows()
GROUND = Ground(FakeData(ROWS), Rounds())
URL = "https://example.org/model"


def metric(seed, slope=-1.0):
    """Scores that fall with the round, differ from picture to picture, and from seed to seed."""
    return lambda row: slope * row.round + 3 * uniform(row.sha256, seed)


def card(name="Metric", **facts):
    return make_card(**{"name": name, "url": URL, "licence": "mit", **facts})


def submission(name="Metric", seed=1, *, rows=ROWS, function=None, model=None, data=None, **facts):
    result = judge(rows, function or metric(seed), model or info(f"scores:{name.lower()}.csv", kind="file"))
    data = data or FakeData(list(rows))
    about = result.data.model_copy(update={"dataset_fingerprint": data.dataset_fingerprint})
    return make_submission(result.model_copy(update={"data": about}), data, card(name, **facts))


def tree(made):
    return json.loads(made.text())


def dumped(value):
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def forged(made, path, value):
    """`made` with one value replaced, in canonical form."""
    at = whole = tree(made)
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return parse_submission(dumped(whole))
