import csv
import io
import json
import math

import pytest

from banana100_bench.criteria import ABOUT
from banana100_bench.errors import UsageError
from banana100_bench.report.exports import FORMATS, every_eval_ever, latex, markdown, plain, shown, tidy_csv
from tests.fakes.judged import info, judge, make_rows

ROWS = make_rows(["a", "b", "c", "d"], repetitions=2)
GOOD = judge(ROWS, lambda row: -row.round - row.repetition / 8, info("pyiqa:good"))
BAD = judge(ROWS, lambda row: row.round, info("callable:=cmd|_x$&%{}.py:f"))
BROKEN = judge(ROWS, lambda row: math.nan if row.initial_image == "a" else -row.round, info("file:nan"))
EVERY = [BAD, BROKEN, GOOD]


def test_plain_holds_all_but_the_raw_scores_best_first():
    found = json.loads(FORMATS["json"](EVERY))
    assert [tree["model"]["id"] for tree in found] == ["pyiqa:good", BAD.model.id, "file:nan"]
    assert [tree["standing"] and tree["standing"]["rank"] for tree in found] == [1, 2, None]
    assert found[1]["standing"]["p_value_against_leader"] == 2 / 2**4
    assert found[0]["criteria"]["srcc_early"]["value"] == 1.0
    assert "scores" not in found[0]
    with pytest.raises(UsageError, match="no result to show"):
        plain([])


def test_the_cheat_is_called_one_in_every_format():
    both = [judge(ROWS, lambda row: -float(row.round), info("baseline:step-leak")), GOOD]
    assert {tree["model"]["id"]: tree["model"]["cheat"] for tree in plain(both)} == {
        "baseline:step-leak": True,
        "pyiqa:good": False,
    }
    lines = csv.DictReader(io.StringIO(tidy_csv(both)))
    assert {(line["model"], line["cheat"]) for line in lines} == {
        ("baseline:step-leak", "True"),
        ("pyiqa:good", "False"),
    }
    assert r"| baseline:step\-leak \(CHEAT\) |" in markdown(both)
    assert "& baseline:step-leak (CHEAT) &" in latex(both)
    assert [every_eval_ever(one, "1")["model_info"]["additional_details"]["cheat"] for one in both] == ["true", "false"]


def test_tidy_csv_has_a_line_for_each_model_and_criterion_to_the_last_digit():
    lines = list(csv.DictReader(io.StringIO(tidy_csv(EVERY))))
    assert len(lines) == sum(1 + len(result.criteria) for result in EVERY)
    order = [line["criterion"] for line in lines if line["model"] == GOOD.model.id][1:]
    assert order == [name for name in ABOUT if name in GOOD.criteria]
    for line in lines:
        result = next(r for r in EVERY if r.model.id == line["model"].removeprefix("'"))
        assert line["simulated"] == "True"
        if line["criterion"] == "images_detected":
            assert float(line["value"]) == result.verdict.detected / 4
        else:
            criterion = result.criteria[line["criterion"]]
            assert (float(line["value"]) if line["value"] else None) == criterion.value
            assert line["low"] == (str(criterion.interval[0]) if criterion.interval else "")
            assert int(line["used"]) == criterion.used
    assert {line["chance"] for line in lines if line["criterion"] == "strict_pass_rate"} == {"0.25"}


def test_no_cell_is_a_formula():
    result = judge(ROWS, lambda row: row.round, info("pyiqa:x"))
    evil = result.model_copy(update={"model": result.model.model_copy(update={"id": "=1+1"})})
    assert next(csv.DictReader(io.StringIO(tidy_csv([evil]))))["model"] == "'=1+1"


def test_markdown_and_latex_escape_what_strangers_write():
    table = markdown(EVERY).splitlines()
    assert table[0].startswith("| Rank | Group | Model | Detected | Strict pass | SRCC |")
    assert table[2].startswith(r"| 1 | 1 | pyiqa:good | 4 of 4 | 1.00 [0.40, 1.00] | 1.00 ")
    assert r"callable:=cmd\|\_x\$\&%\{\}.py:f" in table[3]
    assert table[4].startswith("| - | - | file:nan | 3 of 4 |")
    assert "SIMULATED data" in table[-1]
    assert r"callable:=cmd|\_x\$\&\%\{\}.py:f" in latex(EVERY)
    assert latex(EVERY).count(r" \\") == 4


def test_shown():
    assert shown(GOOD.criteria["strict_pass_rate"]) == "1.00 [0.40, 1.00]"
    assert shown(GOOD.criteria["inversion_size"]) == "-"
    assert shown(None) == "-"


def test_every_eval_ever_has_the_fields_that_its_schema_requires():
    record = every_eval_ever(GOOD, "1767225600")
    assert record["schema_version"] == "0.2.2"
    assert record["evaluation_id"] == "banana100-simulated/pyiqa:good/1767225600"
    by_name = {item["metric_config"]["metric_name"]: item for item in record["evaluation_results"]}
    assert by_name.keys() == {"images_detected"} | {n for n, c in GOOD.criteria.items() if c.value is not None}
    images = by_name["images_detected"]
    assert images["score_details"]["score"] == 1.0
    assert images["score_details"]["uncertainty"]["confidence_interval"] == {
        "lower": GOOD.verdict.interval[0],
        "upper": 1.0,
        "confidence_level": 0.95,
        "method": "clopper-pearson",
    }
    assert by_name["inversion_rate"]["metric_config"]["lower_is_better"] is True
    assert by_name["first_notice"]["metric_config"].keys() & {"score_type", "min_score"} == set()
    assert all(
        set(item) == {"evaluation_name", "source_data", "metric_config", "score_details"} for item in by_name.values()
    )
    assert all(isinstance(v, str) for v in record["model_info"]["additional_details"].values())


def test_every_criterion_has_a_description_and_a_source():
    for name, about in ABOUT.items():
        assert about.label, name
        assert about.says, name
        assert about.source, name
        assert about.chance is None or about.low is None or about.low <= about.chance <= about.high, name
