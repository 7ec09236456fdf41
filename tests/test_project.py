"""The project's own files agree: hooks and workflow with the Makefile, the changelog with the version."""

import re
import tomllib
from pathlib import Path

import yaml

import nogs

ROOT = Path(__file__).parents[1]


def test_hooks_run_every_check_of_make_check():
    (recipe,) = re.findall(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    checks = [line.strip().removeprefix("$(BIN)/").split(" --")[0] for line in recipe.splitlines()]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    entries = [hook["entry"].removeprefix(".venv/bin/") for hook in hooks]
    assert checks
    for check in checks:
        assert any(entry.startswith(check) for entry in entries), check


def test_workflow_runs_make_test_with_the_oldest_python():
    flow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    (job,) = flow["jobs"].values()
    assert {"run": "make test"} in job["steps"]
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert oldest in job["strategy"]["matrix"]["python"]


def test_make_test_leaves_out_no_test():
    assert "not slow" not in (ROOT / "Makefile").read_text()
    assert (
        "not slow"
        not in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    )


def test_issue_forms_ask_for_something():
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert [form.stem for form in forms] == ["bug", "idea", "question"]
    for form in forms:
        asked = yaml.safe_load(form.read_text())
        assert {"name", "description", "body"} <= set(asked)
        ids = [field["id"] for field in asked["body"]]
        assert len(set(ids)) == len(ids)
        assert any(field.get("validations", {}).get("required") for field in asked["body"])


def test_changelog_begins_with_the_version_in_work():
    versions = re.findall(r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    written = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert versions[0][0] == written == nogs.__version__
    assert len(versions) == len(re.findall(r"^## ", (ROOT / "CHANGELOG.md").read_text(), re.M))
