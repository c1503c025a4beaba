"""The board in a real browser, from a disk: sort, filter, open a model, follow a download; three looks."""

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from banana100_bench.leaderboard import folder
from tests.browser.conftest import DESKTOP, PHONE
from tests.fakes.judged import info, judge, save_rows
from tests.leaderboard.making import ROWS, metric, submission

LOOKS = {
    "light": {"viewport": DESKTOP, "color_scheme": "light"},
    "dark": {"viewport": DESKTOP, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light"},
}
# The contrast of a text with what is behind it, by WCAG 2: (L1 + 0.05) / (L2 + 0.05); the worst on the page.
CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const back = (node) => {
    for (; node; node = node.parentElement) {
      const c = rgb(getComputedStyle(node).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !node.getClientRects().length || node.closest("svg")) continue;
    const a = light(rgb(getComputedStyle(node).color)), b = light(back(node));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, node.outerHTML.slice(0, 80)];
  }
  return worst;
}"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("site") / "board"
    (home / "submissions").mkdir(parents=True)
    save_rows(ROWS, home / "dataset")
    gap = metric(4)
    made = [
        submission("Alpha", seed=1, parameters=5_000_000),
        submission("Beta", seed=2, function=metric(2, slope=0.2), licence="apache-2.0", parameters=10**10),
        submission("Gap", seed=4, function=lambda row: float("nan") if row is ROWS[0] else gap(row)),
        submission("Constant", function=lambda row: 0.0, model=info("baseline:constant")),
    ]
    for one in made:
        one.save(home / "submissions" / f"{one.card.slug}.json")
    reported = [{"name": "RALI", "statement": "No failure.", "source": "A paper", "url": "https://example.org/p"}]
    (home / "reported.json").write_text(json.dumps(reported))
    (home / "submissions" / "broken.json").write_text("{")
    judge(ROWS, metric(6), info("pyiqa:</script><img src=x onerror=alert(1)>")).save(
        home / "submissions" / "hostile.json"
    )
    folder.build([home], folder.open_ground(home / "dataset"), home, "2026-05-01")
    return home


def names(page):
    return page.locator("#board tbody tr:visible th a").all_inner_texts()


def test_it_sorts_by_every_column_both_ways_and_tells_screen_readers(home, open_page):
    page = open_page(home / "index.html").page
    ranked = names(page)
    assert ranked[0] == "Alpha"
    assert ranked[-1] == "Gap"  # no rank
    rows = page.locator("#board tbody tr")
    heads = page.locator("#board thead th")
    assert heads.count() == 13
    textual = {"name", "badge", "kind", "licence", "seen"}
    for column in range(heads.count()):
        head = heads.nth(column)
        key = head.get_attribute("data-key")
        for _ in range(2):
            head.locator("button").click()
            order = head.get_attribute("aria-sort")
            assert page.locator("#board thead th[aria-sort]").count() == 1
            cells = [rows.nth(i).get_attribute(f"data-{key}") for i in range(rows.count())]
            known = [cell for cell in cells if cell != ""]
            assert cells[: len(known)] == known  # what no one has said comes last
            values = [cell.lower() if key in textual else float(cell) for cell in known]
            assert values == sorted(values, reverse=order == "descending"), key
        assert len(cells) == 5


def test_it_sorts_by_keyboard(home, open_page):
    page = open_page(home / "index.html").page
    page.locator("#board th[data-key=name] button").focus()
    page.keyboard.press("Enter")
    assert page.locator("#board th[data-key=name]").get_attribute("aria-sort") == "ascending"
    assert names(page)[:3] == ["Alpha", "Beta", "Constant"]
    page.keyboard.press("Enter")
    assert names(page)[-1] == "Alpha"


def test_it_filters_by_name_kind_licence_size_check_and_baselines(home, open_page):
    page = open_page(home / "index.html").page
    assert len(names(page)) == 5
    page.get_by_role("searchbox", name="Name", exact=True).fill("alPH")
    assert names(page) == ["Alpha"]
    assert page.locator("#count").inner_text() == "1 of 5 models"
    page.get_by_role("searchbox", name="Name", exact=True).fill("")
    for label, choice, expected in (
        ("Kind", "baseline", ["Constant"]),
        ("Licence", "apache-2.0", ["Beta"]),
        ("Size", "above 1 B", ["Beta"]),
        ("Check", "verified", ["Constant"]),
    ):
        choose = page.get_by_role("combobox", name=label, exact=True)
        choose.select_option(choice)
        assert names(page) == expected, label
        choose.select_option("")
    page.get_by_label("baselines").uncheck()
    assert "Constant" not in names(page)
    assert len(names(page)) == 4


@pytest.fixture
def served(home):
    """The same folder from a server, as a Space serves it: from a disk browsers show a link's file, not save it."""
    handler = partial(SimpleHTTPRequestHandler, directory=home)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def saved(page, link):
    with page.expect_download(timeout=10_000) as download:
        link.click()
    return Path(download.value.path()).read_bytes()


def test_a_model_is_opened_and_its_scores_and_the_board_downloaded(home, served, open_page):
    page = open_page(f"{served}/index.html").page
    for name in ("leaderboard.json", "leaderboard.csv"):
        assert saved(page, page.locator(f"a[href='{name}']")) == (home / name).read_bytes()
    page.get_by_role("link", name="Beta").click()
    assert page.locator("h1").inner_text() == "Beta"
    assert page.locator("figure svg").count() == 3
    assert "SIMULATED data." in page.locator("header").inner_text()
    scores = saved(page, page.get_by_role("link", name="raw scores"))
    assert scores == (home / "submissions" / "beta.json").read_bytes()


def test_from_a_disk_every_link_leads_to_a_file_of_the_board(home, open_page):
    page = open_page(home / "index.html").page
    page.get_by_role("link", name="Gap").click()
    assert page.url.endswith("/models/gap.html")
    assert "No rank: 23 of 24 scores are usable" in page.locator("header").inner_text()
    page.get_by_role("link", name="Leaderboard").click()
    assert page.url.endswith("/index.html")
    for name in ("index.html", "models/gap.html", "models/beta.html"):
        page.goto((home / name).as_uri())
        hrefs = page.eval_on_selector_all("a", "links => links.map(link => link.href)")
        for href in hrefs:
            if href.startswith("file:"):
                assert Path(unquote(urlsplit(href).path)).is_file(), href
        assert any(href.startswith("file:") for href in hrefs)


def test_markup_in_a_name_runs_nothing(home, open_page):
    visit = open_page(home / "index.html")
    assert visit.page.locator("img").count() == 0
    assert any("</script><img" in name for name in names(visit.page))
    visit.page.get_by_role("link", name="onerror").click()
    assert "<img src=x" in visit.page.locator("h1").inner_text()
    assert visit.page.locator("img").count() == 0


def test_it_is_whole_without_script(home, open_page):
    page = open_page(home / "index.html", java_script_enabled=False).page
    assert len(names(page)) == 5
    assert not page.locator("#filters").is_visible()


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", ["index.html", "models/beta.html", "models/gap.html"])
def test_it_fits_and_can_be_read(home, open_page, look, name, tmp_path):
    visit = open_page(home / name, **LOOKS[look])
    assert visit.overflow == 0
    ratio, where = visit.page.evaluate(CONTRAST)
    assert ratio >= 4.5, where
    unnamed = visit.page.locator("button:not([title]):empty, a:empty, input:not([id]), select:not([id])")
    assert unnamed.count() == 0
    assert visit.page.locator("h1").count() == 1
    assert visit.page.locator("html").get_attribute("lang") == "en"
    shot = visit.page.screenshot(path=tmp_path / "shot.png", full_page=True)
    assert len(shot) > 10_000


def test_it_is_light(home):
    assert (home / "index.html").stat().st_size < 40_000
    assert (home / "models" / "beta.html").stat().st_size < 20_000
