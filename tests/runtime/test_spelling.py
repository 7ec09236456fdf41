import errno
import os
from pathlib import Path

import pytest

from nogs.runtime.spelling import closest, instead, instead_of_run, nearby

NAMES = ("ram", "ram+", "ps-nogs", "Smiling")


@pytest.mark.parametrize(
    ("word", "name"),
    [("rma", "ram"), ("PS-NOGS", "ps-nogs"), ("psnogs", "ps-nogs"), ("smilling", "Smiling"), ("xyz", None), ("", None)],
)
def test_the_name_that_was_meant_is_found_whatever_its_capitals(word, name):
    assert closest(word, NAMES) == name


def test_a_name_like_no_other_gets_the_other_advice():
    assert instead("rma", NAMES, otherwise="choose one.") == "did you mean 'ram'?"
    assert instead("xyz", NAMES, otherwise="choose one.") == "choose one."


def test_the_run_of_the_pictures_is_meant_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs/birds").mkdir(parents=True)
    Path("birds").mkdir()
    for folder in ("birds", "elsewhere/birds"):
        assert instead_of_run(Path(folder), otherwise="make one.") == f"did you mean {Path('runs/birds')}?"
    for folder in ("cats", "runs/birds"):
        assert instead_of_run(Path(folder), otherwise="make one.") == "make one."


def test_a_run_with_a_similar_name_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs/pictures").mkdir(parents=True)
    Path("runs/picture.txt").touch()
    assert instead_of_run(Path("runs/pictur"), otherwise="make one.") == "make one."
    Path("runs/pictures/run.json").touch()
    assert instead_of_run(Path("runs/pictur"), otherwise="make one.") == f"did you mean {Path('runs/pictures')}?"
    for folder in ("runs/cats", "nowhere/pictures2"):
        assert instead_of_run(Path(folder), otherwise="make one.") == "make one."


def test_runs_in_a_folder_that_is_none_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for folder in (".", "runs"):
        assert instead_of_run(Path(folder), otherwise="make one.") == "make one."
    for n, sentence in enumerate(("{0}?", "one of {0}, {1}?"), 1):
        Path(f"runs/{n}").mkdir()
        Path(f"runs/{n}/run.json").touch()
        meant = f"did you mean {sentence.format(Path('runs/1'), Path('runs/2'))}"
        for folder in (".", "runs"):
            assert instead_of_run(Path(folder), otherwise="make one.") == meant
    for n in range(3, 8):
        Path(f"runs/{n}").mkdir()
        Path(f"runs/{n}/run.json").touch()
    assert instead_of_run(Path(), otherwise="").endswith(f"{Path('runs/5')} or 2 more?")


def test_folders_that_others_have_closed_are_passed_over(tmp_path, monkeypatch):
    (tmp_path / "runs" / "pictures").mkdir(parents=True)
    stat = os.stat

    def closed(path, **keywords):
        if str(path).endswith("run.json"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return stat(path, **keywords)

    def unreadable(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "stat", closed)
    assert nearby(tmp_path / "runs" / "pictur", has="run.json") is None
    assert nearby(tmp_path / "runs" / "pictur") == tmp_path / "runs" / "pictures"
    monkeypatch.setattr(os, "listdir", unreadable)
    assert nearby(tmp_path / "runs" / "pictur") is None
