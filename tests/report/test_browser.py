"""The page in a real browser: Debian's chromium, found on the path. NOGS_NEED_BROWSER=1 makes its absence a failure."""

import os
import shutil

import pytest

from nogs.report import write_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        reason = "there is no chromium on the path, so the report's page is not opened in a browser"
        if os.environ.get("NOGS_NEED_BROWSER") == "1":
            pytest.fail(reason)
        print(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(whole_run, tmp_path_factory):
    from nogs.data import load_task

    out = tmp_path_factory.mktemp("browser") / "report.html"
    return write_report([whole_run], out=out, task=lambda config: load_task(config), images=2, device="cpu")


@pytest.fixture(params=["desktop", "phone"])
def opened(browser, report, request):
    """The page, with all that went wrong and all that it asked for."""
    size = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}[request.param]
    scheme = {"desktop": "light", "phone": "dark"}[request.param]
    context = browser.new_context(viewport=size, color_scheme=scheme, has_touch=request.param == "phone")
    page = context.new_page()
    page.wrong, page.asked = [], []
    page.on("console", lambda message: page.wrong.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("request", lambda asked: page.asked.append(asked.url))
    page.goto(report.as_uri())
    page.wait_for_selector(".viewer[data-at]")
    yield page
    assert page.wrong == []
    outside = [url for url in page.asked if not url.startswith(("data:", report.as_uri()))]
    assert outside == []
    context.close()


def at(page):
    """Image, looker and glimpse of the gallery."""
    return page.get_attribute(".viewer", "data-at")


def painted(page, name):
    """How many colours a canvas shows."""
    return page.evaluate(
        """(name) => {
          const canvas = document.querySelector(`canvas.${name}`);
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          const seen = new Set();
          for (let n = 0; n < data.length; n += 4) seen.add((data[n] << 16) | (data[n + 1] << 8) | data[n + 2]);
          return seen.size;
        }""",
        name,
    )


def test_gallery_steps_with_the_mouse(opened):
    assert at(opened) == "0/0/1"
    assert opened.is_disabled(".back")
    opened.click(".next")
    assert at(opened) == "0/0/2"
    assert "Glimpse 2 of 3" in opened.inner_text(".told")
    opened.click(".next")
    assert at(opened) == "0/0/3"
    assert opened.is_disabled(".next")
    opened.click(".back")
    opened.click(".lookers button:nth-child(3)")
    assert at(opened) == "0/2/2"
    assert opened.locator(".answers li").count() == 4
    opened.click(".thumbs button >> nth=3")
    opened.wait_for_selector(".viewer[data-at^='3/']")
    assert opened.inner_text(".where") == "test image"
    for name, least in (("whole", 5), ("seen", 2), ("map", 5)):  # glimpses of black ground have one colour
        assert painted(opened, name) >= least, name


def test_gallery_steps_with_the_keyboard(opened):
    opened.focus(".viewer")
    for key, place in (
        *(("ArrowRight", "0/0/2"), ("ArrowRight", "0/0/3"), ("ArrowRight", "0/0/3"), ("Home", "0/0/1")),
        *(("End", "0/0/3"), ("ArrowLeft", "0/0/2")),
    ):
        opened.keyboard.press(key)
        assert at(opened) == place, key
    opened.keyboard.press("ArrowDown")
    opened.wait_for_selector(".viewer[data-at='1/0/2']")
    opened.keyboard.press("ArrowUp")
    opened.wait_for_selector(".viewer[data-at='0/0/2']")
    opened.keyboard.press("ArrowUp")
    opened.wait_for_selector(".viewer[data-at^='3/']")  # the last one
    opened.keyboard.press("Space")
    assert opened.get_attribute(".play", "aria-pressed") == "true"
    opened.keyboard.press("Space")
    opened.focus(".step")
    opened.keyboard.press("Home")
    opened.keyboard.press("ArrowRight")
    assert at(opened).endswith("/2")


def test_figures_enlarge_and_are_left_again(opened):
    first = opened.locator(".enlarge").first
    first.focus()
    opened.keyboard.press("Enter")
    title = opened.inner_text("dialog .title")
    assert title == "Validation curves"
    assert opened.locator("dialog .held svg, dialog .held img").count() == 1
    opened.keyboard.press("ArrowRight")
    assert opened.inner_text("dialog .title") != title
    opened.keyboard.press("Escape")
    assert not opened.is_visible("dialog")
    assert opened.evaluate("document.activeElement.className") == "enlarge"


def test_tables_sort_both_ways_by_number(opened):
    table = opened.locator("#networks table")

    def column():
        return [float(cell.replace("\xa0%", "")) for cell in table.locator("td:nth-child(2)").all_inner_texts()]

    head = table.locator("th:nth-child(2)")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert column() == sorted(column())
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert column() == sorted(column(), reverse=True)
    assert len(set(column())) > 1


def test_page_is_no_wider_than_the_screen(opened):
    wide, screen = opened.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= screen


def test_ink_is_readable_on_the_paper(opened):
    ratio = opened.evaluate(
        """() => {
          const light = (text) => {
            const [r, g, b] = text.match(/\\d+/g).slice(0, 3).map((n) => {
              const share = n / 255;
              return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const paper = light(getComputedStyle(document.body).backgroundColor);
          return ["h1", ".note", "td", "nav a", ".plate figcaption"].map((selector) => {
            const ink = light(getComputedStyle(document.querySelector(selector)).color);
            return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
          });
        }"""
    )
    assert min(ratio) >= 4.5
