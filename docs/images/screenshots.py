"""Writes report.png and report-phone.png beside it: a report's page as a desktop and a phone show it.

    python docs/images/screenshots.py runs/demo/report.html

Only pages of the embedded task may be shown here: no photograph of a research dataset is committed.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent


def main(page_file: Path) -> None:
    """Open the page in chromium and take both pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, width, height, scheme, top in (
            ("report", 1200, 900, "light", "body"),
            ("report-phone", 390, 844, "dark", ".viewer"),
        ):
            page = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                device_scale_factor=1.5,
                reduced_motion="reduce",
            ).new_page()
            page.goto(page_file.resolve().as_uri())
            page.wait_for_selector(".viewer[data-at]")
            page.evaluate("(top) => document.querySelector(top).scrollIntoView({behavior: 'instant'})", top)
            page.wait_for_timeout(300)
            page.screenshot(path=HERE / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
