"""The page in a real browser: Debian's chromium, found on the path. NOGS_NEED_BROWSER=1 makes its absence a failure."""

import io
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from nogs.data import load_task
from nogs.report import write_report
from nogs.report.contents import read_run

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
    out = tmp_path_factory.mktemp("browser") / "report.html"
    return write_report([whole_run], out=out, task=lambda config: load_task(config), images=None, device="cpu")


@pytest.fixture(params=["desktop", "phone"])
def opened(browser, report, request):
    """The page, with its errors and its requests."""
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
    """The number of colours on a canvas."""
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


def place(page):
    """The same as numbers."""
    return [int(number) for number in at(page).split("/")]


def images(page):
    """The gallery's images, as the page holds them."""
    return page.evaluate("JSON.parse(document.getElementById('looks').textContent).images")


def shown(page):
    """The images that the filters leave."""
    return page.evaluate("[...document.querySelectorAll('.thumbs button')].map((button) => !button.hidden)")


def test_gallery_has_every_class_of_the_test_pictures(opened, whole_run):
    task = load_task(read_run(whole_run).data)
    present = {task.space.names[task.labels[task.position[id]]] for id in task.splits["test"]}
    tests = [image for image in images(opened) if image["split"] == "test picture"]
    assert {image["label"] for image in tests} == present
    assert opened.locator(".thumbs button").count() == len(images(opened))
    options = opened.locator(".by-class option").all_inner_texts()
    assert set(options[1:]) == {image["label"] for image in images(opened)}


def test_numbers_beside_the_bars_fit(opened):
    opened.evaluate(
        "document.querySelectorAll('.bars .share').forEach((share) => { share.textContent = '100.0\u00a0%'; })"
    )
    wide = "[...document.querySelectorAll('.bars .share')].map((share) => share.scrollWidth - share.clientWidth)"
    assert max(opened.evaluate(wide)) <= 0


@pytest.mark.parametrize(
    ("greedy", "words"),
    [
        ("false", "probability of each location for this glimpse"),
        ("true", "score of each location; the network takes the brightest"),
    ],
)
def test_map_of_a_network_says_whether_locations_are_drawn_from_it(browser, report, greedy, words):
    path = report.with_name(f"greedy-{greedy}.html")
    text = report.read_text()
    assert '"greedy":false' in text  # all of these networks draw theirs
    path.write_text(text.replace('"greedy":false', f'"greedy":{greedy}'))
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector(".viewer[data-at]")
    assert page.text_content(".viewer .meaning") == words
    assert page.is_visible(".viewer .range") == (greedy == "false")
    page.close()


def test_gallery_opens_on_a_test_picture_and_the_best_network_and_plays_once(opened):
    image, look, step = place(opened)
    assert images(opened)[image]["split"] == opened.inner_text(".where") == "test picture"
    assert look == 0
    assert step == 1
    assert opened.get_attribute(".play", "aria-pressed") == "false"  # it is not seen yet
    opened.locator(".viewer").scroll_into_view_if_needed()
    opened.wait_for_selector(".play[aria-pressed='true']")
    opened.wait_for_selector(f".viewer[data-at='{image}/0/3']", timeout=10_000)
    opened.wait_for_selector(".play[aria-pressed='false']")
    opened.wait_for_timeout(1200)
    assert at(opened) == f"{image}/0/3"  # it holds the last glimpse


def test_keys_work_before_any_click_and_stop_the_playing(opened):
    image, _, _ = place(opened)
    opened.keyboard.press("Space")
    assert opened.get_attribute(".play", "aria-pressed") == "true"
    opened.keyboard.press("ArrowRight")
    assert opened.get_attribute(".play", "aria-pressed") == "false"
    step = place(opened)[2]
    assert step in (2, 3)
    opened.keyboard.press("ArrowLeft")
    assert at(opened) == f"{image}/0/{step - 1}"
    opened.wait_for_timeout(1200)
    assert at(opened) == f"{image}/0/{step - 1}"  # nothing moves any more
    opened.keyboard.press("n")
    opened.wait_for_selector(f".viewer[data-at^='{(image + 1) % len(images(opened))}/']")
    opened.keyboard.press("p")
    opened.wait_for_selector(f".viewer[data-at^='{image}/']")
    top = opened.evaluate("window.scrollY")
    opened.keyboard.press("ArrowDown")  # scrolls, as long as the viewer does not have the focus
    opened.wait_for_timeout(400)
    assert opened.evaluate("window.scrollY") > top
    assert place(opened)[0] == image


def test_play_and_stop(opened):
    opened.locator(".viewer").scroll_into_view_if_needed()
    opened.wait_for_selector(".play[aria-pressed='true']")
    opened.click(".play")
    assert opened.inner_text(".play") == "play"
    before = at(opened)
    opened.wait_for_timeout(1200)
    assert at(opened) == before
    opened.keyboard.press("End")
    opened.click(".play")  # from the last glimpse it begins again
    assert place(opened)[2] == 1
    assert opened.inner_text(".play") == "stop"
    opened.click(".thumbs button >> nth=1")
    assert opened.inner_text(".play") == "play"


def test_filters_leave_what_they_say(opened):
    every = images(opened)
    opened.select_option(".by-answer", "wrong")
    assert shown(opened) == [image["right"] is False for image in every]
    assert opened.inner_text(".count") == f"{sum(image['right'] is False for image in every)} of {len(every)}"
    opened.wait_for_timeout(100)
    assert every[place(opened)[0]]["right"] is False
    opened.select_option(".by-answer", "")
    name = every[-1]["label"]
    opened.select_option(".by-class", name)
    assert shown(opened) == [image["label"] == name for image in every]
    opened.select_option(".by-split", "picture with a sequence")
    left = [image["label"] == name and image["split"] != "test picture" for image in every]
    assert shown(opened) == left
    opened.focus(".viewer")
    for _ in range(3):
        opened.keyboard.press("ArrowDown")
        opened.wait_for_timeout(50)
        assert left[place(opened)[0]]


def test_gallery_steps_with_the_mouse(opened):
    opened.click(".thumbs button >> nth=0")
    opened.keyboard.press("Home")
    assert at(opened) == "0/0/1"
    assert opened.is_disabled(".back")
    opened.click(".next")
    assert at(opened) == "0/0/2"
    assert "Glimpse 2 of 3" in opened.inner_text(".told")
    opened.click(".next")
    assert at(opened) == "0/0/3"
    assert opened.is_disabled(".next")
    opened.click(".back")
    opened.click(".lookers button:nth-child(2)")
    assert at(opened) == "0/1/2"
    # the true class is always listed, and probabilities are drawn for each glimpse
    truth = images(opened)[0]["label"]
    assert opened.locator(".key .true").inner_text().startswith(f"{truth} (true): ")
    assert opened.locator(".chart polyline").first.get_attribute("points").count(",") == 4
    for name, least in (("whole", 5), ("seen", 2), ("map", 5)):  # glimpses of black ground have one colour
        assert painted(opened, name) >= least, name


def test_glimpses_are_stepped_right_below_the_pictures_on_a_phone(opened):
    whole, controls = (opened.locator(f".viewer {name}").bounding_box() for name in (".whole", ".controls"))
    gap = controls["y"] - whole["y"] - whole["height"]
    assert (0 < gap < 60) == (opened.viewport_size["width"] < 700)
    assert opened.locator(".told").bounding_box()["y"] >= controls["y"] + controls["height"]


def test_touch_screens_have_large_menus_and_no_hints_about_keys(opened):
    touch = opened.viewport_size["width"] < 700
    assert opened.is_visible(".keys") == (not touch)
    assert (opened.locator(".by-class").bounding_box()["height"] >= 36) == touch


def test_classes_keep_their_colours_whichever_network_is_shown(opened):
    def colours():
        keys = opened.locator(".key li")
        inks = keys.evaluate_all("(keys) => keys.map((key) => key.querySelector('i').style.background)")
        return {text.partition(":")[0]: ink for text, ink in zip(keys.all_inner_texts(), inks)}

    opened.click(".thumbs button >> nth=0")
    opened.wait_for_selector(".viewer[data-at^='0/0/']")
    first = colours()
    assert len(set(first.values())) == len(first) == 8
    opened.click(".lookers button:nth-child(2)")
    assert colours() == first


def test_long_names_in_a_table_are_wrapped(opened):
    opened.evaluate(
        "document.querySelectorAll('#classes td:last-child').forEach((cell) => { cell.textContent = "
        "'Pileated Woodpecker (4), Blue winged Warbler (3), Red-headed (2)'; })"
    )
    box = opened.locator("#classes .scroll")
    hidden = box.evaluate("(box) => box.scrollWidth - box.clientWidth")
    if opened.viewport_size["width"] > 700:
        assert hidden == 0
        return
    assert hidden > 0

    def edge():
        picture = Image.open(io.BytesIO(box.screenshot())).convert("L")
        column = np.asarray(picture)[:, -4]
        return int(np.median(column)) - int(np.median(np.asarray(picture)[:, picture.width // 2]))

    assert abs(edge()) > 5  # a shadow, where a part of the table is hidden
    box.evaluate("(box) => box.scrollTo(box.scrollWidth, 0)")
    assert edge() == 0


def test_completions_stand_beside_the_map_of_a_sequence(opened):
    assert not opened.is_visible(".completed")
    last = len(images(opened)) - 1
    opened.click(f".thumbs button >> nth={last}")
    opened.wait_for_selector(f".viewer[data-at^='{last}/']")
    opened.click(".lookers button:last-child")
    assert opened.is_visible(".completed img")
    first = opened.get_attribute(".completed img", "src")
    opened.click(".next")
    assert opened.get_attribute(".completed img", "src") != first
    assert "expected entropy" in opened.inner_text(".meaning")


def test_gallery_steps_with_the_keyboard(opened):
    opened.click(".thumbs button >> nth=0")
    opened.focus(".viewer")
    opened.keyboard.press("Home")
    for key, where in (
        *(("ArrowRight", "0/0/2"), ("ArrowRight", "0/0/3"), ("ArrowRight", "0/0/3"), ("Home", "0/0/1")),
        *(("End", "0/0/3"), ("ArrowLeft", "0/0/2")),
    ):
        opened.keyboard.press(key)
        assert at(opened) == where, key
    opened.keyboard.press("ArrowDown")
    opened.wait_for_selector(".viewer[data-at='1/0/2']")
    opened.keyboard.press("ArrowUp")
    opened.wait_for_selector(".viewer[data-at='0/0/2']")
    opened.keyboard.press("ArrowUp")
    opened.wait_for_selector(f".viewer[data-at^='{len(images(opened)) - 1}/']")
    opened.focus(".step")
    opened.keyboard.press("Home")
    opened.keyboard.press("ArrowRight")
    assert at(opened).endswith("/2")


def test_verdict_picture_and_numbers_are_on_the_first_screen(opened):
    opened.evaluate("window.scrollTo(0, 0)")
    screen = opened.evaluate("window.innerHeight")
    for selector in (".verdict", ".headlines li:nth-child(3)", ".looking img"):
        box = opened.locator(selector).bounding_box()
        assert 0 <= box["y"] < screen, selector
    assert opened.evaluate("document.querySelector('.looking img').naturalWidth") == 480
    opened.evaluate("window.scrollTo(0, 3000)")
    assert opened.locator("nav").bounding_box()["y"] == 0  # it stays


def test_figures_fit_the_screen(opened):
    wide = opened.evaluate(
        "[...document.querySelectorAll('.enlarge.twin')].map((one) => one.scrollWidth - one.clientWidth)"
    )
    assert len(wide) > 5
    assert max(wide) <= 1
    slim = opened.locator("#figure-curves .slim").is_visible()
    assert slim == (opened.viewport_size["width"] < 700)


def test_figures_enlarge_and_are_left_again(opened):
    first = opened.locator(".enlarge").first
    first.focus()
    opened.keyboard.press("Enter")
    title = opened.inner_text("dialog .title")
    assert title == "Confusion matrix"
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
