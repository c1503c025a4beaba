"""The report page as a person opens it: no console message, no request, figures there, sortable by keyboard."""

import pytest

from banana100_bench import harness
from banana100_bench.data import open_data
from banana100_bench.report.page import write_page
from tests.browser.conftest import PHONE
from tests.report.making import make_dataset

MODELS = ("baseline:noise", "baseline:constant", "baseline:file-size", "baseline:random")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    data = make_dataset(folder)
    results = [harness.evaluate(model, open_data(data), store=folder / "scores") for model in MODELS]
    return write_page(results, data, folder / "report.html", save_figures=False)[0]


def test_figures_and_pictures_are_there(open_page, report):
    page = open_page(report).page
    boxes = page.eval_on_selector_all("svg", "all => all.map(one => one.getBoundingClientRect().height)")
    assert len(boxes) == 2 + len(MODELS)
    assert min(boxes) > 200
    assert page.eval_on_selector_all("img", "all => all.every(one => one.complete && one.naturalWidth > 30)")
    assert page.eval_on_selector_all("img", "all => all.every(one => one.alt)")
    assert page.locator("h1").inner_text().endswith("SIMULATED data")


def test_tables_sort_by_keyboard(open_page, report):
    page = open_page(report).page
    first = page.locator("table.sortable").first
    head = first.locator("th", has_text="Detected").first

    def column():
        return [int(text.split()[0]) for text in first.locator("tbody tr td:nth-child(3)").all_inner_texts()]

    before = column()
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert column() == sorted(before, reverse=True)
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "ascending"
    assert column() == sorted(before)


def test_it_fits_a_phone_and_reads_without_script(open_page, report):
    visit = open_page(report, viewport=PHONE, java_script_enabled=True)
    assert visit.overflow == 0
    plain = open_page(report, java_script_enabled=False)
    assert plain.page.locator("text=detects the degradation on").count() == len(MODELS)


def test_it_prints(open_page, report, tmp_path):
    page = open_page(report).page
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000
