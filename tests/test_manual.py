"""The manual builds without a warning, says nothing of code that is not there, and its notebook runs."""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from pydantic import BaseModel

from nogs.recipes import Recipe

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOK = ROOT / "examples" / "tour.ipynb"
FEWER = {"iterations": "40", "validate_every": "20", "count": "1000", "annotated": "12"}
"""Numbers of the notebook, as small as it works with."""
PAGES = sorted(DOCS.rglob("*.md"))
FILES = (".csv", ".html", ".json", ".jsonl", ".md", ".npy", ".safetensors", ".yaml", ".zip")


@pytest.mark.slow
def test_notebook_runs_from_top_to_bottom_and_shows_its_figures(tmp_path, monkeypatch):
    """With less training than a reader has it do, and for fewer images."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    book = nbformat.read(NOTEBOOK, as_version=4)
    for name, value in FEWER.items():
        number = re.compile(rf'(?<="{name}": )\d+')
        assert any(number.search(cell.source) for cell in book.cells), name
        for cell in book.cells:
            cell.source = number.sub(value, cell.source)
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    shown = [
        output for cell in book.cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})
    ]
    assert len(shown) == 5


def test_notebook_is_kept_without_outputs():
    book = nbformat.read(NOTEBOOK, as_version=4)
    for cell in book.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.slow
def test_manual_builds_without_a_warning(tmp_path):
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs is not installed; make docs does that, and builds the manual too")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)  # result pages are taken along
    for page in pages:
        assert not re.search(r'(src|href)="https?://[^"]*\.(js|css|woff2?|png|svg)"', page.read_text()), page


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


@pytest.mark.parametrize("page", [ROOT / "README.md", NOTEBOOK, *PAGES], ids=lambda page: page.name)
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
