import shutil

import pytest
import torch

import miniature
from nogs.cli import main

TINY = [
    "--data.count", "100", "--data.annotated", "10", "--attention.iterations", "4", "--attention.validate-every", "2",
    "--attention.hidden", "8", "--attention.batch", "16", "--attention.trajectories", "1", "--device", "cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("report") / "run"
    assert main(["train", "digits", "--out", str(out), *TINY]) == 0
    return out


def test_report_of_a_trained_run_ends_with_the_page_to_open(run, capsys):
    assert main(["report", str(run), "--images", "2", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"open {run / 'report.html'}"
    assert lines[0].endswith(f"with its figures in {run / 'report'}")
    page = (run / "report.html").read_text()
    assert 'id="gallery"' in page
    assert (run / "report" / "curves.png").exists()
    assert (run / "report" / "curves.svg").exists()


def test_report_is_opened_in_the_browser(run, tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    (tmp_path / "run").mkdir()
    assert main(["open", str(tmp_path / "run")]) == 2
    assert f"{tmp_path / 'run'} has no report yet; write it with nogs report" in capsys.readouterr().err
    assert main(["open", str(tmp_path / "none")]) == 2
    assert "There is no run" in capsys.readouterr().err
    page = tmp_path / "run" / "report.html"
    page.write_text("")
    for words in (page.parent, page):
        assert main(["open", str(words)]) == 0
        assert capsys.readouterr().out == f"{page}\n"
    assert opened == [page.as_uri()] * 2
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert main(["open", str(page)]) == 0
    assert capsys.readouterr().err == "No browser could be started; open this file in one.\n"


def test_run_that_has_a_report_is_named_where_none_is_given(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "other"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "report.html").touch()
    for words in ([], ["runs"]):
        assert main(["open", *words]) == 2
        assert capsys.readouterr().err.endswith("has no report yet; did you mean runs/demo?\n")


@pytest.mark.usefixtures("blank_figures")
def test_report_goes_where_it_is_told(run, tmp_path):
    assert main(["report", str(run), "--images", "0", "--out", str(tmp_path / "page.html")]) == 0
    assert 'id="gallery"' not in (tmp_path / "page.html").read_text()
    assert (tmp_path / "page" / "where.png").exists()


@pytest.mark.usefixtures("blank_figures")
def test_gallery_that_lacks_its_images_is_said(run, tmp_path, capsys):
    data, cats = miniature.folder(tmp_path / "DATA"), tmp_path / "cats"
    given, flags = ["--data", str(data), "--cache", str(tmp_path / "cache")], ["--images", "2", "--device", "cpu"]
    tiny = ["--data.image-size", "32", "--data.glimpse", "8", "--data.annotated", "4", *TINY[4:]]
    assert main(["train", "folder", *given, "--out", str(cats), *tiny]) == 0
    capsys.readouterr()
    (cats / "local.json").unlink()  # else the run knows where they are
    sentence = f"{cats}: There is no gallery without the images; give their folder with --data."
    assert main(["report", str(cats), *flags]) == 0
    assert capsys.readouterr().err.splitlines().count(sentence) == 1
    for words in ([str(cats), *given, *flags], [str(cats), "--images", "0"], [str(run), *flags]):
        assert main(["report", *words]) == 0
        assert "no gallery" not in capsys.readouterr().err
    shutil.rmtree(cats / "attention")  # without networks or sequences, images would not bring one
    assert main(["report", str(cats), *flags]) == 0
    assert "no gallery" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "A report needs at least one RUN"),
        (["nowhere"], "There is no folder nowhere; give the folder of a run."),
        (["nowhere", "--imges", "3"], "nogs report has no flag --imges; did you mean --images?"),
    ],
)
def test_mistake_is_one_sentence(words, sentence, capsys):
    assert main(["report", *words]) == 2
    assert sentence in capsys.readouterr().err
