"""The guard itself must notice what it is there for, or every clean page below would be an empty claim."""


def test_what_a_bad_page_does_is_noted(open_page, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><title>bad</title><img src='https://example.invalid/a.png'><div style='width:2000px'>x</div>"
        "<script>console.warn('watch out'); throw new Error('broken')</script>"
    )
    visit = open_page(page)
    visit.page.wait_for_load_state("networkidle")
    assert visit.outside == ["https://example.invalid/a.png"]
    assert [line for line in visit.console if "broken" in line or "watch out" in line] == [
        "warning: watch out",
        "exception: broken",
    ]
    assert visit.overflow > 500
    visit.outside.clear()
    visit.console.clear()


def test_a_good_page_is_clean(open_page, tmp_path):
    page = tmp_path / "good.html"
    page.write_text("<!doctype html><title>good</title><link rel=icon href=data:,><p>hello")
    visit = open_page(page, java_script_enabled=True)
    assert visit.page.title() == "good"
    assert visit.overflow == 0
