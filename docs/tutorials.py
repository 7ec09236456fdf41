"""The notebooks of `examples/` as pages of the manual: run during the build, and shown with their outputs.

A notebook's outputs are kept in `.cache/tutorials` until the notebook or the package changes. With
`NOGS_TUTORIALS=unrun` in the environment the pages have no outputs; the tests run each notebook by itself.
"""

import base64
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
CACHE = ROOT / ".cache" / "tutorials"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, and its pictures."""
    if os.environ.get("NOGS_TUTORIALS") == "unrun":
        books = [nbformat.read(path, as_version=4) for path in NOTEBOOKS]
    else:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            books = list(pool.map(kept, NOTEBOOKS))
    for path, book in zip(NOTEBOOKS, books):
        text, pictures = page(book, path.stem)
        files.append(File.generated(config, f"examples/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"examples/{name}", content=content))
    return files


def kept(path: Path) -> NotebookNode:
    """The notebook with its outputs, from an earlier build if nothing has changed since."""
    mark = hashlib.sha256(path.read_bytes())
    for source in sorted((ROOT / "src").rglob("*.py")):
        mark.update(source.read_bytes())
    known = CACHE / f"{path.stem}-{mark.hexdigest()[:16]}.ipynb"
    if not known.exists():
        book = run(path)
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob(f"{path.stem}-*.ipynb"):
            old.unlink()
        nbformat.write(book, known)
    return nbformat.read(known, as_version=4)


def run(path: Path) -> NotebookNode:
    """Run a notebook in an empty folder, from top to bottom, by this Python and with this package."""
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as place:
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
            "NOGS_CACHE": str(Path(place) / "cache"),
            "TMPDIR": place,
            "OMP_NUM_THREADS": "1",  # the networks are small, so more threads would only wait for each other
        }
        client = NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": place}})
        client.execute(env=environment)
    return book


def page(book: NotebookNode, stem: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    title = ""
    for cell in book.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            title = (re.findall(r"^#+ (.*)", cell.source, re.MULTILINE) or [title])[-1]
            if len(parts) == 1:
                link = f'<a href="{stem}.ipynb" download>{stem}.ipynb</a>'
                parts.append(f"This page is the notebook {link}, with what it printed when the manual was built.")
            continue
        parts.append(code(cell.source))
        for kind, content in outputs(cell):
            if kind == "picture":
                name = f"{stem}-{len(pictures) + 1}.png"
                pictures[name] = content
                parts.append(f"![{title}]({name})")
            else:
                parts.append(f"``` {{ .text .output }}\n{content}\n```")
    return "\n\n".join(parts) + "\n", pictures


def code(source: str) -> str:
    """A cell as a block, without the lines that only a notebook needs."""
    language = "bash" if source.startswith("%%bash") else "python"
    lines = [line for line in source.splitlines() if not line.startswith("%")]
    return f"```{language}\n" + "\n".join(lines).strip() + "\n```"


def outputs(cell: NotebookNode) -> Iterator[tuple[str, Any]]:
    """The outputs of a cell, as text or picture, without progress, which goes to standard error."""
    printed = "".join(o.text for o in cell.get("outputs", ()) if o.output_type == "stream" and o.name == "stdout")
    if printed.strip():
        yield "text", printed.strip("\n")
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        if "image/png" in data:
            yield "picture", base64.b64decode(data["image/png"])
        elif "text/plain" in data:
            yield "text", data["text/plain"]
