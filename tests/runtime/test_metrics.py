import json

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
    with pytest.raises(InputError, match=r"^Line 2 of .*metrics\.jsonl is not JSON \(.*\); mend or delete it\.$"):
        read_metrics(tmp_path)


def test_folder_without_metrics_is_named(tmp_path):
    with pytest.raises(InputError, match=r"^There is no file .*metrics\.jsonl; check the path\.$"):
        read_metrics(tmp_path)
