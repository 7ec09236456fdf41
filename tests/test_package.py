"""The package as a whole: what it promises about its files, its versions and what may stand in them."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import nogs

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "src").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pickling(source):
    """What in a module's source may read or write a pickle, as `line: what`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            if ast.unparse(node) == "from pickle import UnpicklingError":
                continue  # what torch.load raises for a file that is no plain state dict
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [f"{node.lineno}: imports {name}" for name in names if name.partition(".")[0] in PICKLERS]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if called == "torch.load" and given.get("weights_only") != "True":
                found.append(f"{node.lineno}: torch.load without weights_only=True")
            if called in ("torch.jit.load", "torch.export.load"):
                found.append(f"{node.lineno}: {called}, which runs code of the file")
            if called == "torch.save":
                found.append(f"{node.lineno}: torch.save")
            if given.get("allow_pickle", "False") != "False":
                found.append(f"{node.lineno}: {called} with allow_pickle={given['allow_pickle']}")
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_pickle_is_read_or_written(path):
    assert pickling(path.read_text()) == []


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import pickle", "imports pickle"),
        ("from joblib import dump", "imports joblib"),
        ("torch.load(path)", "torch.load without weights_only=True"),
        ("torch.load(path, weights_only=False)", "torch.load without weights_only=True"),
        ("torch.save(x, path)", "torch.save"),
        ("torch.jit.load(path)", "torch.jit.load, which runs code of the file"),
        ("torch.export.load(path)", "torch.export.load, which runs code of the file"),
        ("np.load(path, allow_pickle=True)", "np.load with allow_pickle=True"),
        ("np.load(path, allow_pickle=flag)", "np.load with allow_pickle=flag"),
    ],
)
def test_each_way_to_pickle_would_be_noticed(source, what):
    assert pickling(source) == [f"1: {what}"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_module_is_small_and_opens_with_what_it_is(path):
    source = path.read_text()
    assert ast.get_docstring(ast.parse(source))
    assert source.count("\n") < 350


def test_one_version_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert nogs.__version__ == PROJECT["version"] == citation["version"]
    assert nogs.__version__ in (ROOT / "CHANGELOG.md").read_text()


def test_constraints_are_names_and_versions_only():
    for line in pins():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line), line
    names = [canonicalize_name(line.partition("==")[0]) for line in pins()]
    assert len(set(names)) == len(names)


def test_constraints_hold_a_fitting_version_of_everything_that_is_installed():
    versions = {canonicalize_name(name): version for name, version in (line.split("==") for line in pins())}
    extras = PROJECT["optional-dependencies"]
    own = next(Requirement(text) for text in extras["dev"] if text.startswith("nogs["))
    installed = [text for name in ("dev", *own.extras) for text in extras[name] if not text.startswith("nogs[")]
    for text in [*PROJECT["dependencies"], *installed]:
        requirement = Requirement(text)
        assert versions[canonicalize_name(requirement.name)] in requirement.specifier, text


def test_no_path_of_a_workplace_stands_in_a_file():
    wrong = re.compile(r"/(?:work|root|home|tmp)/[a-z]|\.\./shared")
    folders = ["src", "tests", "docs", "benchmarks", "examples", "results", ".ci"]
    files = [*ROOT.iterdir(), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    files.remove(ROOT / ".git")  # in a git worktree a file with a path
    text = {".py", ".md", ".yml", ".yaml", ".toml", ".txt", ".json", ".jsonl", ".csv", ".cff", ".svg", ".html", ""}
    for path in files:
        if path.is_file() and path.suffix in text and "__pycache__" not in path.parts:
            found = wrong.search(path.read_text(encoding="utf-8"))
            assert found is None, f"{path.relative_to(ROOT)}: {found}"


def test_wheel_holds_every_module_and_its_types(tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == f"nogs-{nogs.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = archive.read(f"nogs-{nogs.__version__}.dist-info/METADATA").decode()
        scripts = archive.read(f"nogs-{nogs.__version__}.dist-info/entry_points.txt").decode()
    inside = {
        path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "nogs").rglob("*") if path.is_file()
    }
    assert {name for name in names if name.startswith("nogs/")} == {n for n in inside if "__pycache__" not in n}
    assert "nogs/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "License-Expression: MIT" in about
    assert "nogs = nogs.cli:main" in scripts
