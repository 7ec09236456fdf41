"""The manual builds without a warning, says nothing of code that is not there, and its tutorials run."""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from pydantic import BaseModel

from nogs.cli import COMMANDS
from nogs.recipes import Recipe

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
PAGES = sorted(DOCS.rglob("*.md"))
FILES = (".csv", ".html", ".json", ".jsonl", ".md", ".npy", ".safetensors", ".yaml", ".zip")
SHOWN = {
    "digits": (5, "ps-nogs test accuracy"),
    "gaze": (1, "all are valid"),
    "own-pictures": (2, "one fixed order"),
    "plug-in": (1, "images by Corners"),
    "ray-cluster": (0, "the same bytes"),
}
"""Of each tutorial, how many pictures it shows, and words of what it prints."""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings") is None,
    reason="mkdocs is not installed; make docs does that, and builds the manual too",
)


@needs_mkdocs
@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_tutorial_runs_from_top_to_bottom_and_shows_its_outputs(notebook):
    tutorials = importlib.import_module("tutorials")
    text, pictures = tutorials.page(tutorials.run(notebook), notebook.stem)
    number, words = SHOWN[notebook.stem]
    assert len(pictures) == number
    assert all(content.startswith(b"\x89PNG") and f"({name})" in text for name, content in pictures.items())
    assert words in "".join(re.findall(r"^``` \{ \.text .*?^```$", text, re.M | re.S))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_without_outputs(notebook):
    for cell in nbformat.read(notebook, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@needs_mkdocs
def test_page_of_a_notebook_has_code_text_and_pictures_in_their_order():
    tutorials = importlib.import_module("tutorials")
    book = nbformat.v4.new_notebook()
    png = nbformat.v4.new_output("display_data", {"image/png": "AAEC", "text/plain": "<Figure>"})
    printed = [nbformat.v4.new_output("stream", name=name, text=f"{name}\n") for name in ("stdout", "stderr")]
    book.cells = [
        nbformat.v4.new_markdown_cell("# A title"),
        nbformat.v4.new_code_cell("%matplotlib inline\nshow()", outputs=[png, *printed]),
        nbformat.v4.new_code_cell("%%bash\nnogs demo"),
    ]
    text, pictures = tutorials.page(book, "one")
    assert pictures == {"one-1.png": bytes([0, 1, 2])}
    parts = ("# A title", 'href="one.ipynb"', "```python\nshow()\n```", "stdout", "(one-1.png)", "```bash\nnogs demo")
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert not any(word in text for word in ("stderr", "%", "<Figure>"))


@needs_mkdocs
def test_links_lead_to_where_the_manual_has_a_file():
    manual = importlib.import_module("manual")
    assert manual.in_manual("docs/plus.md") == "plus.md"
    assert manual.in_manual("examples/gaze.ipynb") == "examples/gaze.md"
    assert manual.in_manual("src/nogs/pretrained/cub.md") == "published/cub.md"
    for name in ("plus.md", "changelog.md", "published/cub.md", "results/plus/README.md"):
        assert manual.in_manual(manual.in_repository(name)) == name


@needs_mkdocs
def test_table_of_flags_is_what_help_says():
    commands = importlib.import_module("commands")
    usage, about, boxes = commands.parsed(commands.help_of("sequences", "import", "--help-all"))
    assert usage == "nogs sequences import [-h] [OPTIONS] SOURCE"
    assert about.startswith("Import glimpse sequences")
    assert [flag for flag, _ in boxes["positional arguments"]] == ["SOURCE"]
    flags = dict(boxes["options"])
    assert flags["--step STR"].endswith("with the glimpse's number, from 0 or from 1. (default: step)")
    assert "| `--length INT` | Table: number of glimpses per image" in commands.table(boxes["options"])


@needs_mkdocs
@pytest.mark.slow
def test_manual_builds_without_a_warning_and_works_from_the_disk(tmp_path):
    """Its tutorials have no outputs here, since a test of their own runs them."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "NOGS_TUTORIALS": "unrun"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)  # result pages are taken along
    for page in pages:
        assert not re.search(r'(src|href)="?https?://[^"> ]*\.(js|css|woff2?|png|svg)\b', page.read_text()), page
        assert "unpkg.com" not in page.read_text(), page
    assert {page.stem for page in (tmp_path / "examples").glob("*.html")} == {path.stem for path in NOTEBOOKS}
    assert "0.1.0" in (tmp_path / "changelog.html").read_text()
    assert "calibration error" in (tmp_path / "published" / "cub.html").read_text()
    commands = (tmp_path / "commands.html").read_text()
    for command in COMMANDS:
        assert f">nogs {command}<" in commands, command
    assert "<code>--attention.iterations INT</code>" in commands
    if CHROMIUM:
        check_in_a_browser(tmp_path)


def check_in_a_browser(site):
    """Search and the dark look work on a phone, and no page asks another host."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="light").new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        for name in ("index", "commands", "when", "examples/digits"):
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        page.click("label[for=__palette_1]")
        assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
        page.click(".md-header__button[for=__search]")
        page.type("input.md-search__input", "calibration")
        page.wait_for_selector(".md-search-result__item a")
        assert "calibr" in page.inner_text(".md-search-result__list").lower()
        browser.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_every_python_name_exists(page):
    for name in set(re.findall(r"`(nogs(?:\.\w+)+)|#(nogs(?:\.\w+)+)\)|^::: (nogs(?:\.\w+)+)", page.read_text(), re.M)):
        resolve("".join(name))


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.name)
def test_every_field_of_a_recipe_that_is_named_exists(page):
    """As `attention.iterations`; names of the code are written so too, and those of files."""
    for name in set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", page.read_text())):
        part, *fields = name.split(".")
        if part in Recipe.model_fields and f".{fields[-1]}" not in FILES and not is_field(Recipe, [part, *fields]):
            resolve(f"nogs.{name}")


def is_field(model: type[BaseModel], path: list[str]) -> bool:
    """Whether a path of names leads from a recipe to one of its fields."""
    for name in path:
        field = getattr(model, "model_fields", {}).get(name)
        if field is None:
            return False
        model = field.annotation
    return True


def resolve(name: str) -> object:
    """The module or object of a dotted name; a module where both have the name."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            annotations = getattr(found, "__annotations__", {})
            found = annotations[part] if part in annotations else getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("page", [ROOT / "README.md", *NOTEBOOKS, *PAGES], ids=lambda page: page.name)
def test_programs_import_public_names_only(page):
    for package, names in re.findall(r"^ *\"?from (nogs[\w.]*) import ([\w, ]+)", page.read_text(), re.M):
        assert package.count(".") <= 1, package
        assert set(names.split(", ")) <= set(importlib.import_module(package).__all__), package


def test_every_equation_and_algorithm_of_the_paper_is_linked_to_the_code():
    text = (DOCS / "mathematics.md").read_text()
    assert [int(tag) for tag in re.findall(r"\\tag\{(\d+)\}", text)] == list(range(1, 18))
    for chapter in re.split(r"^(?=\*\*|## )", text, flags=re.M):
        if chapter.startswith(("**", "## Algorithm")):
            assert "](reference/" in chapter, chapter.splitlines()[0]
    assert len(re.findall(r"^## Algorithm \d", text, re.M)) == 2


@pytest.mark.parametrize("page", sorted((DOCS / "reference").glob("*.md")), ids=lambda page: page.stem)
def test_reference_has_the_public_names_and_those_that_other_pages_link_to(page):
    package = f"nogs.{page.stem}"
    public, _, inside = page.read_text().partition("## Inside")
    named = re.findall(rf"^::: {package}\.(\w+)$|^`{package}\.(\w+)\(|^::: nogs\.(load)$", public, re.M)
    assert sorted("".join(name) for name in named) == sorted(importlib.import_module(package).__all__)
    manual = "".join(other.read_text() for other in DOCS.glob("*.md"))
    linked = re.findall(rf"\]\(reference/{page.name}#([\w.]+)\)", manual)
    for name in re.findall(r"^::: (\S+)$", inside, re.M):
        assert any(f"{link}.".startswith(f"{name}.") for link in linked), name


def test_every_package_has_a_page_of_reference():
    packages = {path.parent.name for path in (ROOT / "src" / "nogs").glob("*/__init__.py")} - {"cli"}
    assert {page.stem for page in (DOCS / "reference").glob("*.md")} == packages
