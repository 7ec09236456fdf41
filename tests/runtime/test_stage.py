import json
from datetime import datetime

import numpy as np
import pytest
import torch

from nogs.runtime import files, tensors
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_sealed
from nogs.runtime.stage import Stage


@pytest.fixture
def stage(tmp_path):
    return lambda fingerprint="aaaa": Stage(tmp_path / "posterior", name="posterior", fingerprint=fingerprint)


def test_new_stage_is_not_done_and_says_so(stage):
    assert not stage().done
    assert not stage().begun
    assert stage().why() == "posterior: not done before."
    stage().check_folder()


def test_begun_stage_goes_on(stage):
    stage().begin()
    assert stage().begun
    assert not stage().done
    assert stage().why() == "posterior: begun before and not finished, goes on."
    stage().check_folder()


def test_finished_stage_is_done_and_tells_how(stage, tmp_path):
    stage().begin()
    stage().finish(images=3)
    assert stage().done
    assert not stage().begun
    assert stage().why() is None
    stage().check_folder()
    record = json.loads((tmp_path / "posterior" / "done.json").read_text())
    assert record["fingerprint"] == "aaaa"
    assert record["images"] == 3
    assert record["seconds"] >= 0
    assert {"nogs", "python", "torch"} <= record["versions"].keys()
    assert datetime.fromisoformat(record["time"]).tzinfo is not None


def test_change_of_recipe_is_refused(stage):
    stage().begin()
    for finished in (False, True):
        if finished:
            stage().finish()
        other = stage("bbbb")
        assert not other.done
        assert not other.begun
        sentence = (
            r"^.*posterior holds posterior of another recipe or other inputs \(aaaa, not bbbb\); choose another folder"
        )
        with pytest.raises(InputError, match=sentence):
            other.check_folder()


def test_redone_stage_is_not_done_until_it_finishes(stage):
    stage().begin()
    stage().finish()
    stage("bbbb").begin()
    assert not stage().done
    assert stage("bbbb").begun
    stage("bbbb").finish()
    assert stage("bbbb").done


def test_mark_without_a_fingerprint_is_refused(stage, tmp_path):
    stage().begin()
    (tmp_path / "posterior" / "done.json").write_text("[]")
    with pytest.raises(InputError, match=r"done\.json has no field 'seal'; bring it back .* or delete .*posterior and"):
        _ = stage().done
    write_sealed(tmp_path / "posterior" / "done.json", {"stage": "posterior"})
    with pytest.raises(
        InputError, match=r"done\.json has no field 'fingerprint'; delete the folder to do posterior again"
    ):
        _ = stage().done


def test_the_first_field_that_differs_is_named(tmp_path):
    def made(mark, **fields):
        return Stage(tmp_path / "bank", name="bank", fingerprint=mark, fields=fields)

    made("aaaa", count=3, sizes=(1, 2)).begin()
    made("aaaa", count=3, sizes=(1, 2)).finish()
    for other, named in (
        (made("bbbb", count=4, sizes=(1, 3)), "count = 3, not 4"),
        (made("bbbb", count=3, sizes=(1, 3)), "sizes = [1, 2], not [1, 3]"),
        (made("bbbb", count=3, sizes=(1, 2), colour=0.5), "colour = None, not 0.5"),
        (made("bbbb", count=3, sizes=(1, 2)), "aaaa, not bbbb"),
    ):
        with pytest.raises(InputError) as refused:
            other.check_folder()
        assert str(refused.value).endswith(
            f"bank holds bank of another recipe or other inputs ({named}); choose another folder or delete this one."
        )


@pytest.mark.parametrize("fields", [None, [], "x"])
def test_a_mark_without_fields_is_refused_by_its_fingerprint(tmp_path, fields):
    write_sealed(tmp_path / "stage.json", {"fingerprint": "aaaa", "fields": fields})
    with pytest.raises(InputError, match=r"other inputs \(aaaa, not bbbb\)"):
        Stage(tmp_path, name="bank", fingerprint="bbbb", fields={"count": 3}).check_folder()


def test_a_changed_product_is_refused_by_every_reader(stage, tmp_path):
    folder = tmp_path / "posterior"
    writers = {
        "a.json": lambda path: files.write_json(path, {"a": 1}),
        "a.npy": lambda path: files.save_array(path, np.arange(3)),
        "inner/a.txt": lambda path: files.write_text(path, "text"),
        "a.safetensors": lambda path: tensors.save_tensors(path, {"a": torch.ones(3)}),  # has no seal
    }
    readers = {"a.json": files.read_json, "a.npy": files.load_array, "inner/a.txt": files.read_text}
    readers["a.safetensors"] = tensors.load_tensors
    stage().begin()
    for name, write in writers.items():
        write(folder / name)
    (folder / "state.safetensors").write_bytes(b"of the training, which is deleted then")
    (folder / "events.out.tfevents.1").write_bytes(b"TensorBoard's")
    stage().finish(also=["inner/a.txt"])
    assert files.read_json(folder / "done.json")["files"].keys() == writers.keys()
    for name, read in readers.items():
        path = folder / name
        read(path)
        whole = path.read_bytes()
        path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
        with pytest.raises(InputError, match=r"has changed since it was made .*; bring it back from a copy, or delete"):
            read(path)
        path.write_bytes(whole)
    stage().begin()
    files.write_json(folder / "a.json", {"a": 2})
    assert files.read_json(folder / "a.json") == {"a": 2}, "a stage that is done again writes other products"


@pytest.mark.parametrize("name", ["done.json", "stage.json"])
def test_a_changed_mark_is_refused(stage, tmp_path, name):
    stage().begin()
    stage().finish(images=3)
    path = tmp_path / "posterior" / name
    path.write_text(path.read_text().replace("aaaa", "aaab"))
    with pytest.raises(
        InputError, match=rf"{name} has changed since it was written; bring it back .* delete .*posterior"
    ):
        stage().check_folder()
