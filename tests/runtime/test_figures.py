import ast
import io
from pathlib import Path

import pytest
from matplotlib import rc_context

import nogs
from nogs.runtime.figures import Figure

HOSTILE = [r"$\frac$", "a$^$ 1.png", "$", r"\alpha$\alpha$"]


def saved(figure, kind):
    out = io.BytesIO()
    figure.savefig(out, format=kind)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["png", "svg"])
@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_is_drawn_wherever_it_stands(text, kind):
    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], label=text)
    axes.set(title=text, xlabel=text, ylabel=text)
    axes.set_xticks([0, 1], [text, text])
    axes.text(0, 0, text)
    axes.legend(title=text)
    figure.suptitle(text)
    figure.text(0, 0, text)
    assert saved(figure, kind)


def test_dollar_signs_are_drawn_as_such():
    figure = Figure()
    figure.text(0.1, 0.5, "$x^2$")
    with rc_context({"svg.fonttype": "none"}):
        assert "$x^2$" in saved(figure, "svg").decode()


def test_every_figure_of_the_package_is_such_a_one():
    source = Path(nogs.__file__).parent
    for path in source.rglob("*.py"):
        if path.name == "figures.py":
            continue
        tree = ast.parse(path.read_text())
        for_types = {
            inner
            for node in tree.body
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in node.body
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node not in for_types:
                names = {alias.name for alias in node.names}
                assert node.module != "matplotlib.figure" or "Figure" not in names, path
                assert "pyplot" not in f"{node.module} {names}", path
