import errno
import json
import os

import numpy as np
import pytest
import torch

from nogs.runtime.errors import InputError
from nogs.runtime.metrics import Metrics, read_metrics


def tensorboard_scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, pytest.approx(event.value)) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_lines_return_as_they_were_logged(tmp_path):
    with Metrics(tmp_path / "run", tensorboard=False) as metrics:
        metrics.log(0, loss=0.5, phase="warm", locations=[1, 2])
        assert read_metrics(tmp_path / "run")[0]["loss"] == 0.5  # already on the disk
        metrics.log(1, loss=np.float32(0.25), accuracy=torch.tensor(0.75))
    assert read_metrics(tmp_path / "run") == [
        {"step": 0, "loss": 0.5, "phase": "warm", "locations": [1, 2]},
        {"step": 1, "loss": 0.25, "accuracy": 0.75},
    ]


def test_numbers_that_are_not_finite_are_null_so_that_each_line_is_json(tmp_path):
    with Metrics(tmp_path) as metrics:
        metrics.log(3, loss=float("nan"), list=[1.0, float("inf")], tensor=torch.tensor(-torch.inf))

    def refuse(name):
        raise AssertionError(name)

    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    assert line == {"step": 3, "loss": None, "list": [1.0, None], "tensor": None}


def test_tensorboard_reads_the_same_scalars(tmp_path):
    with Metrics(tmp_path) as metrics:
        for step in range(3):
            metrics.log(step, loss=1 / (step + 1), note="text")
    assert tensorboard_scalars(tmp_path) == {"loss": [(0, 1.0), (1, 0.5), (2, 1 / 3)]}


def test_resumed_run_drops_what_it_will_do_again(tmp_path):
    with Metrics(tmp_path) as metrics:
        for step in range(5):
            metrics.log(step, loss=float(step))
    with Metrics(tmp_path, resume_after=2) as metrics:
        assert [line["step"] for line in read_metrics(tmp_path)] == [0, 1, 2]
        metrics.log(3, loss=30.0)
    assert [line["loss"] for line in read_metrics(tmp_path)] == [0, 1, 2, 30]
    assert tensorboard_scalars(tmp_path) == {"loss": [(0, 0.0), (1, 1.0), (2, 2.0), (3, 30.0)]}


def test_without_resume_lines_are_added_to_those_that_are_there(tmp_path):
    for step in (0, 1):
        with Metrics(tmp_path, tensorboard=False) as metrics:
            metrics.log(step)
    assert [line["step"] for line in read_metrics(tmp_path)] == [0, 1]


def test_torn_last_line_is_ignored_and_the_next_run_writes_on_cleanly(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n{"step": 1, "lo')
    assert read_metrics(tmp_path) == [{"step": 0}]
    with Metrics(tmp_path, tensorboard=False) as metrics:
        metrics.log(1)
    assert read_metrics(tmp_path) == [{"step": 0}, {"step": 1}]


def test_broken_line_in_the_middle_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n{"st\n{"step": 2}\n')
    with pytest.raises(InputError, match=r"^Line 2 of .*metrics\.jsonl is not JSON \(.*\); correct or delete it\.$"):
        read_metrics(tmp_path)


def test_folder_without_metrics_is_named(tmp_path):
    with pytest.raises(InputError, match=r"^There is no file .*metrics\.jsonl; check the path\.$"):
        read_metrics(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_disk_that_fills_is_told_in_one_sentence(tmp_path):
    sentence = rf"^Cannot write {tmp_path / 'metrics.jsonl'} \(No space left on device\): free some space or choose"
    metrics = Metrics(tmp_path, tensorboard=False)
    metrics.log(1, loss=0.5)
    metrics._file.close()
    metrics._file = open("/dev/full", "w")  # noqa: SIM115
    for write in (lambda: metrics.log(2, loss=0.25), metrics.close):
        with pytest.raises(InputError, match=sentence):
            write()
    assert [line["step"] for line in read_metrics(tmp_path)] == [1]


def test_events_on_a_full_disk_are_told_in_the_same_words(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    metrics = Metrics(tmp_path)
    monkeypatch.setattr(metrics._events, "add", full)
    with pytest.raises(InputError, match=r"\(No space left on device\): free some space"):
        metrics.log(1, loss=0.5)
    metrics.close()


@pytest.mark.parametrize("damage", ["cut in half", "another number"])
def test_lines_that_changed_while_a_training_was_interrupted_are_refused(tmp_path, damage):
    with Metrics(tmp_path, tensorboard=False) as metrics:
        for step in range(6):
            metrics.log(step, loss=step / 8)
            digest = metrics.digest if step == 3 else locals().get("digest")
    path = tmp_path / "metrics.jsonl"
    whole = path.read_text()
    with Metrics(tmp_path, resume_after=3, digest=digest, tensorboard=False) as metrics:
        assert metrics.digest == digest
    path.write_text(whole[: len(whole) // 2] if damage == "cut in half" else whole.replace("0.125", "0.625"))
    with pytest.raises(
        InputError, match=r"metrics.jsonl has changed since the training was interrupted; bring it back"
    ):
        Metrics(tmp_path, resume_after=3, digest=digest, tensorboard=False)


@pytest.mark.parametrize("line", ['{"loss": 1}', '{"step": "1"}', "[1]", "[" * 100_000])
def test_a_line_without_a_step_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n')
    with pytest.raises(InputError, match=r"^Line 2 of .*metrics.jsonl "):
        read_metrics(tmp_path)
