import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from annotate_world import run
from nogs.runtime import files
from nogs.runtime.digests import sealed
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json
from nogs.runtime.tensors import load_tensors
from nogs.sequences import load, validate

SCRIPT = Path(__file__).parents[1] / "annotate_world.py"


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The bytes that an undisturbed run leaves."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


def same(folder, expected):
    names = {"sequences.jsonl", "manifest.json"}
    return all((folder / name).read_bytes() == (expected / name).read_bytes() for name in names)


def test_annotation_is_a_valid_folder_of_sequences(expected):
    sequences = load(expected)
    assert len(sequences) == 14
    assert sequences.length == 3
    assert sequences.entropy_before is not None
    assert (sequences.entropy_before[:, 0] > sequences.epe[:, 0]).all()
    assert validate(expected).sequences == 14
    done = read_json(expected / "done.json")
    assert done["evaluations"] > 0
    assert done["evaluations_of_first_step"] > 0
    assert not (expected / "blocks").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "kills"), [(1, (0, 2)), (2, (1, 3))])
def test_killed_annotation_goes_on_to_the_same_bytes(expected, tmp_path, workers, kills):
    """Killed at a random moment after so many of the seven blocks are there."""
    command = [sys.executable, str(SCRIPT), str(tmp_path / "run"), str(workers), "0.2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    chance = random.Random(workers)
    for blocks in kills:
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        begin, stage = time.monotonic(), tmp_path / "run" / "stage.json"
        while not stage.exists() or len(list((tmp_path / "run" / "blocks").glob("[0-9]*.json"))) < blocks:
            assert time.monotonic() - begin < 100
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "run" / "done.json").exists()
    found = subprocess.run([*command[:-1], "0"], env=environment, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    assert "begun before and not finished, goes on" in found.stderr
    assert same(tmp_path / "run", expected)


@pytest.mark.slow
def test_two_workers_leave_the_same_bytes(expected, tmp_path):
    run(tmp_path, workers=2)
    assert same(tmp_path, expected)


def test_progress_is_shown_while_the_first_block_is_done(expected, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("nogs.runtime.progress._EVERY", 0.0)
    run(tmp_path)
    said = capsys.readouterr().err
    assert "annotating: 0/14 images, evaluations/s " in said
    assert same(tmp_path, expected)


def test_finished_annotation_is_not_done_again(expected, capsys):
    before = (expected / "done.json").read_bytes()
    found = run(expected)
    assert len(found) == 14
    assert (expected / "done.json").read_bytes() == before
    assert "annotating" not in capsys.readouterr().err


def test_full_disk_stops_with_a_sentence_and_loses_nothing(expected, tmp_path, monkeypatch):
    whole = files._sync

    def full(path):
        if path.name.startswith(".00003."):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_sync", full)
        with pytest.raises(InputError, match=r"Cannot write .*00003.json .*: free some space or choose another folder"):
            run(tmp_path)
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "blocks").iterdir()}
    assert set(kept) == {"00000.json", "00001.json", "00002.json"}
    worked = []
    monkeypatch.setattr("nogs.design.annotation.annotate_block", _noting(worked))
    run(tmp_path)
    assert worked == [3, 4, 5, 6]
    assert same(tmp_path, expected)


def _noting(worked):
    from nogs.design.annotation import annotate_block

    def noted(block, job, **options):
        worked.append(block.number)
        return annotate_block(block, job, **options)

    return noted


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"images": 3}, "images = 14, not 3"),
        ({"search": "grid"}, "design.search = 'race', not 'grid'"),
        ({"growth": 2.0}, "design.growth = 1.5, not 2.0"),
    ],
)
def test_another_recipe_is_refused_the_folder(expected, change, named):
    before = (expected / "sequences.jsonl").read_bytes()
    sentence = rf"holds annotation of another recipe or other inputs \({re.escape(named)}\); choose another folder"
    with pytest.raises(InputError, match=sentence):
        run(expected, **change)
    assert (expected / "sequences.jsonl").read_bytes() == before


def test_other_peoples_sequences_are_not_written_over(expected, tmp_path):
    for name in ("sequences.jsonl", "manifest.json"):
        (tmp_path / name).write_bytes((expected / name).read_bytes())
    with pytest.raises(InputError, match="holds sequences that were not annotated here; choose another folder"):
        run(tmp_path)


def test_damaged_block_is_named(tmp_path, monkeypatch):
    def stop(*_, **__):
        raise InputError("stop here")

    with monkeypatch.context() as patch:
        patch.setattr("nogs.design.annotation._joined", stop)
        with pytest.raises(InputError, match="stop here"):
            run(tmp_path, images=4)
    block = tmp_path / "blocks" / "00001.json"
    whole, text = read_json(block), block.read_text()
    another = [[1, 2, 8], *whole["locations"][1:]]
    without = {name: value for name, value in whole.items() if name != "epe"}
    for damaged, why in (
        ('{"ids": []}', "it can't be read, or has changed since it was written"),
        (text.replace(str(whole["locations"]), str(another)), "it can't be read, or has changed"),
        (json.dumps(sealed({**whole, "locations": [[9999] * 3] * 2})), r"a location is outside 0\.\.8"),
        (json.dumps(sealed({**whole, "locations": [[1, 2]] * 2})), "not every image has 3 steps"),
        (json.dumps(sealed({**whole, "ids": ["x", "y"]})), "it is of other images"),
        (json.dumps(sealed(without)), "field epe: Field required"),
        (json.dumps(sealed({**whole, "sure": None})), "field sure: Input should be a valid list"),
    ):
        block.write_text(damaged)
        with pytest.raises(InputError, match=rf"00001.json is damaged \({why}.*\); delete it, and this block is done"):
            run(tmp_path, images=4)
    block.unlink()
    assert len(run(tmp_path, images=4)) == 4


def test_maps_are_kept_on_request(tmp_path):
    sequences = run(tmp_path, images=4, keep_maps=True, search="grid")
    maps, _ = load_tensors(tmp_path / "maps.safetensors")
    assert maps["estimate"].shape == maps["error"].shape == (4, 3, 9)
    chosen = torch.from_numpy(sequences.indices())
    least = maps["estimate"].gather(2, chosen[..., None])[..., 0]
    torch.testing.assert_close(least, torch.from_numpy(sequences.epe).float(), atol=1e-6, rtol=0)
    torch.testing.assert_close(least, maps["estimate"].min(-1).values, atol=2e-6, rtol=0)
