"""Additions to mkdocs for the manual's build: pages from outside `docs/`, and equations as pictures.

Pages must read well both on a code host, which shows the files as they are, and in mkdocs. So links are relative paths
in the repository, and equations are TeX between `$$`. The built pages need no script and no other host for either.
"""

import html
import io
import posixpath
import re
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import mathtext
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
BESIDE = {
    "results/": "results/",
    "examples/": "examples/",
    "src/nogs/pretrained/": "published/",
    "CHANGELOG.md": "changelog.md",
}
"""Files that the manual takes from outside `docs/`: their place in the repository, and in the manual."""
KINDS = {"src/nogs/pretrained/": "*.md"}
"""Pattern of the files to take from such a folder; by default all."""

_INK = "#010203"  # a placeholder for the page's text colour
_LINK = re.compile(r"(\]\()((?:\.\.?/|[\w/-]+\.md\b)[^)#\s]*)")  # code may hold "](" too
_EQUATION = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.MULTILINE | re.DOTALL)
_TAG = re.compile(r"\\tag\{(.*?)\}")
_PUBLIC = re.compile(r"^::: (nogs(?:\.\w+)?)\.(\w+)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files from outside `docs/`."""
    for place in BESIDE:
        found = sorted((ROOT / place).rglob(KINDS.get(place, "*"))) if place.endswith("/") else [ROOT / place]
        for path in found:
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and "__pycache__" not in name:
                there = BESIDE[place] + name.removeprefix(place)
                files.append(File.generated(config, there, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links of the built manual, drawn equations, and public names where mkdocstrings finds them."""
    name = page.file.src_uri
    here = posixpath.dirname(in_repository(name))

    def link(found: re.Match[str]) -> str:
        target = in_manual(posixpath.normpath(posixpath.join(here, found[2])))
        return found[1] + posixpath.relpath(target, posixpath.dirname(name) or ".")

    markdown = _PUBLIC.sub(lambda found: documented(found[1], found[2]), markdown)
    return _EQUATION.sub(lambda found: equation(found[1]), _LINK.sub(link, markdown))


def documented(package: str, name: str) -> str:
    """The directive of a public name: read where it is defined, headed as users import it. Others stay as they are."""
    public, home = f"{package}.{name}", import_module(package)
    if name not in home.__all__:
        return f"::: {public}"
    module = getattr(home, "_HOMES", {}).get(name) or getattr(getattr(home, name), "__module__", package)
    module = package if module == "builtins" else module
    return f"::: {module}.{name}\n    options:\n      heading: {public}\n      toc_label: {public}"


def on_page_content(content: str, **_: Any) -> str:
    """Exclude source code from the search, where it would hide everything else."""
    source = '<details class="mkdocstrings-source"'
    return content.replace(source, f"{source} data-search-exclude")


def in_manual(path: str) -> str:
    """The manual's path of a file in the repository; a notebook is a page, made by `tutorials.py`."""
    for place, moved in BESIDE.items():
        if path.startswith(place):
            return re.sub(r"\.ipynb$", ".md", moved + path.removeprefix(place))
    return path.removeprefix("docs/")


def in_repository(name: str) -> str:
    """The repository's path of a file in the manual."""
    for place, moved in BESIDE.items():
        if name.startswith(moved):
            return place + name.removeprefix(moved)
    return f"docs/{name}"


def equation(tex: str) -> str:
    r"""One equation as SVG in the colour of the text, with its number if it has a `\tag`."""
    number = _TAG.search(tex)
    tex = " ".join(_TAG.sub("", tex).split())
    drawn = io.StringIO()
    with matplotlib.rc_context({"mathtext.fontset": "stix", "svg.hashsalt": tex}):
        mathtext.math_to_image(f"${tex}$", drawn, format="svg", color=_INK)
    picture = drawn.getvalue().partition("<svg")[2].replace(_INK, "currentColor")
    picture = re.sub(r"<metadata>.*?</metadata>", "", picture, flags=re.DOTALL)
    # ids of the glyphs must differ between the pictures of a page
    mark = f"e{zlib.crc32(tex.encode()):08x}-"
    picture = re.sub(r'(id="|href="#|url\(#)', rf"\1{mark}", picture)
    label = f'<span class="number">({number[1]})</span>' if number else ""
    svg = f'<svg role="img" aria-label="{html.escape(tex, quote=True)}"{picture}'
    return f'<div class="equation">{" ".join(svg.split())}{label}</div>'
