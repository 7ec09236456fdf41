"""The runner of `results/measure.py`: order, going on, a failure, and the archive."""

import tarfile

import pytest

import measure
from measure import Job


@pytest.fixture
def jobs(monkeypatch):
    made = {
        "first": Job("echo one >> WORK/first.txt", keep=("first.txt",)),
        "second": Job(
            "cat WORK/first.txt > WORK/second.txt\necho DATA >> WORK/second.txt", ("first",), ("second.txt",)
        ),
        "broken": Job("echo no reason\nfalse\ntouch WORK/after-false"),
        "on-broken": Job("touch WORK/on-broken", after=("broken",)),
        "long": Job("sleep 60"),
    }
    monkeypatch.setattr(measure, "JOBS", made)


def run(folder, *names, minutes=1.0):
    return measure.run(
        names, data=folder / "data", work=folder / "w", out=folder / "o.tar.gz", minutes=minutes, abreast=2
    )


def test_a_job_comes_behind_those_that_it_builds_on(jobs, tmp_path):
    assert measure.ordered(["second", "first"]) == ["first", "second"]
    assert run(tmp_path, "second") == []
    assert (tmp_path / "w/second.txt").read_text() == f"one\n{tmp_path}/data\n"
    with tarfile.open(tmp_path / "o.tar.gz") as archive:
        assert {"provenance.json", "second.txt", "second.log", "first.log"} == set(archive.getnames())


def test_what_is_done_is_skipped(jobs, tmp_path):
    for _ in range(2):
        assert run(tmp_path, "first") == []
    assert (tmp_path / "w/first.txt").read_text() == "one\n"


def test_a_failed_command_ends_its_job_and_those_on_it_alone(jobs, tmp_path):
    assert set(run(tmp_path, "broken", "on-broken", "first")) == {"broken", "on-broken"}
    assert sorted(path.name for path in (tmp_path / "w").glob("*.done")) == ["first.done"]
    assert not (tmp_path / "w/after-false").exists()
    assert not (tmp_path / "w/on-broken").exists()
    assert (tmp_path / "w/broken.log").read_text() == "no reason\n"


def test_it_ends_when_the_minutes_are_over(jobs, tmp_path):
    assert run(tmp_path, "long", minutes=0.02) == ["long"]
    assert (tmp_path / "o.tar.gz").exists()
