import io
import re
import sys
import time

import pytest

from nogs.runtime import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_plain_lines_are_the_first_the_last_and_one_every_four_seconds(capsys, clock):
    with progress.track("decoding", total=40, unit="images") as job:
        for _ in range(20):
            clock[0] += 0.5
            job.advance(2, loss=0.123456)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "decoding: 0/40 images",
        "decoding: 16/40 images, 4 images/s, 0:06 left, loss 0.1235",
        "decoding: 32/40 images, 4 images/s, 0:02 left, loss 0.1235",
        "decoding: 40/40 images, 4 images/s, 0:10 in all, loss 0.1235, done",
    ]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(progress, "_EVERY", 0.3)


def test_job_that_does_not_move_is_not_silent(capsys, impatient):
    with progress.track("annotating", total=8) as job:
        time.sleep(1.2)
        job.advance(8)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 4
    assert lines[1].startswith("annotating: 0/8 it")


def test_work_that_can_not_be_counted_is_named(capsys, impatient):
    with progress.working("sequences"):
        with progress.working("measuring"):
            time.sleep(0.9)
        progress.say("between")
        time.sleep(0.9)
    lines = capsys.readouterr().err.splitlines()
    place = lines.index("between")
    assert place > 0
    assert all(line.startswith("measuring: 0:0") for line in lines[:place])
    assert all(line.startswith("sequences: ") for line in lines[place + 1 :])
    assert len(lines) - place > 1
    time.sleep(0.8)
    assert capsys.readouterr().err == ""  # finished


def test_quick_work_says_nothing(capsys):
    with progress.working("sequences"):
        time.sleep(0.3)
    assert capsys.readouterr().err == ""


def test_rate_and_time_left_count_from_where_the_job_went_on(capsys, clock):
    with progress.track("annotating", total=10_000, start=5000) as job:
        clock[0] += 3600
        job.advance(1000)
    assert capsys.readouterr().err.splitlines()[1] == "annotating: 6000/10000 it, 0.278 it/s, 4:00:00 left"


def test_unknown_total_shows_count_and_rate(capsys, clock):
    with progress.track("reading", total=None) as job:
        clock[0] += 10
        job.advance(30_000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "reading: 0 it"
    assert lines[1] == "reading: 30000 it, 3,000 it/s"


def test_failed_job_says_where_it_stopped(capsys, clock):
    with pytest.raises(ZeroDivisionError), progress.track("x", total=2) as job:
        job.advance(1 // 0)
    assert capsys.readouterr().err.splitlines()[-1] == "x: 0/2 it, stopped"


def test_say_writes_one_line_to_the_error_stream(capsys):
    progress.say("[bold] 3 files skipped")
    assert capsys.readouterr() == ("", "[bold] 3 files skipped\n")


def test_terminal_shows_a_bar_and_what_is_said_above_it(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    with progress.track("outer [a]", total=4, unit="images") as outer:
        outer.advance(2, loss=0.5)
        progress.say("note [b]")
        with progress.track("inner", total=2) as inner:
            inner.advance(2)
        outer.advance(2, loss=0.25)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "note [b]\n" in text
    assert re.search(r"outer \[a\].*4/4.*loss 0\.25", text.splitlines()[-1])
    assert progress._live == []


def test_work_around_a_bar_is_not_named_when_the_bar_ends(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_EVERY", 1.0)
    with progress.working("sequences"):
        with progress.track("inner", total=2):
            time.sleep(1.2)
        time.sleep(0.3)
        assert "sequences" not in terminal.getvalue()
        time.sleep(1.2)
    assert "sequences: 0:0" in terminal.getvalue()


def test_bar_is_gone_after_a_failure(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(ZeroDivisionError), progress.track("x", total=2) as job:
        job.advance(1 // 0)
    assert progress._live == []
