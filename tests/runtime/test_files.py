import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from nogs.runtime import files, tensors
from nogs.runtime.errors import InputError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def interrupted_write(path: Path, error: type[BaseException]) -> None:
    path.write_bytes(b"half of the n")
    raise error


def refuse(code):
    def raise_error(*_):
        raise OSError(code, os.strerror(code))

    return raise_error


def test_write_makes_parents_and_leaves_only_the_file(tmp_path):
    files.write_text(tmp_path / "a" / "b" / "note.txt", "one\ntwo\n")
    assert (tmp_path / "a" / "b" / "note.txt").read_bytes() == b"one\ntwo\n"
    assert names(tmp_path / "a" / "b") == ["note.txt"]


def test_temporary_file_is_a_neighbour_with_the_same_suffix(tmp_path):
    path = tmp_path / "sheet.png"
    with files.atomic(path) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".png"
        assert not path.exists()
        temporary.write_bytes(b"x")
    assert path.read_bytes() == b"x"


def test_failure_in_the_block_keeps_the_old_file(tmp_path):
    path = tmp_path / "file"
    files.write_bytes(path, b"old")
    for mistake in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(mistake), files.atomic(path) as temporary:
            interrupted_write(temporary, mistake)
        assert path.read_bytes() == b"old"
        assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("call", "code", "sentence"),
    [
        ("fsync", errno.ENOSPC, r"\(No space left on device\): free some space or choose another folder\.$"),
        ("replace", errno.EACCES, r"\(Permission denied\): choose a folder that you may write to\.$"),
        ("fsync", errno.EIO, r"\(Input/output error\): check the path or choose another folder\.$"),
    ],
)
def test_disk_that_refuses_keeps_the_old_file_and_is_told_in_one_sentence(tmp_path, monkeypatch, call, code, sentence):
    path = tmp_path / "weights.bin"
    files.write_bytes(path, b"old")
    monkeypatch.setattr(os, call, refuse(code))
    with pytest.raises(InputError, match=f"^Cannot write {path} {sentence}"):
        files.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["weights.bin"]


def test_no_space_while_writing_is_told_by_every_writer(tmp_path, monkeypatch):
    # a real full disk: every write to it fails, whatever library does it
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    monkeypatch.setattr("nogs.runtime.files.secrets.token_hex", lambda _: "x")
    for name, write in {
        "a.txt": lambda path: files.write_text(path, "text"),
        "a.npy": lambda path: files.save_array(path, np.zeros(10_000)),
    }.items():
        path = tmp_path / name
        path.write_bytes(b"old")
        (tmp_path / f".a.x.part{path.suffix}").symlink_to("/dev/full")
        with pytest.raises(InputError, match=f"^Cannot write {path} .*: .*choose another folder"):
            write(path)
        assert path.read_bytes() == b"old"


def test_safetensors_failure_is_told_in_the_same_words(tmp_path, monkeypatch):
    from safetensors import SafetensorError

    def fail(*_):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", fail)
    with pytest.raises(
        InputError,
        match=r"^Cannot write .*w\.safetensors \(No space left on device\): free some space or choose another folder",
    ):
        tensors.save_tensors(tmp_path / "w.safetensors", {"a": torch.zeros(1)})


def test_parent_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(
        InputError, match=r"^Cannot write .*taken/out\.json .*: check the path or choose another folder"
    ):
        files.write_json(tmp_path / "taken" / "out.json", {})


def test_folder_in_the_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "out.json").mkdir()
    with pytest.raises(InputError, match=r"^Cannot write .*out\.json "):
        files.write_json(tmp_path / "out.json", {})
    assert names(tmp_path) == ["out.json"]


def test_failure_to_read_another_file_is_not_a_failure_to_write(tmp_path):
    with pytest.raises(FileNotFoundError), files.atomic(tmp_path / "copy") as temporary:
        temporary.write_bytes((tmp_path / "missing").read_bytes())


def test_killed_writer_leaves_a_file_that_parses(tmp_path):
    path = tmp_path / "state.json"
    program = textwrap.dedent(
        """
        import itertools, sys
        from nogs.runtime.files import write_json
        for n in itertools.count():
            write_json(sys.argv[1], {"n": n, "filling": ["x" * 100] * 2000})
        """
    )
    seen = []
    for delay in (0.0, 0.013, 0.031, 0.057):
        before = path.stat().st_mtime_ns if path.exists() else 0
        process = subprocess.Popen([sys.executable, "-c", program, str(path)])
        deadline = time.monotonic() + 30
        while (not path.exists() or path.stat().st_mtime_ns == before) and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        seen.append(files.read_json(path))
    assert all(len(value["filling"]) == 2000 for value in seen)


def test_json_keeps_order_and_takes_arrays_and_paths(tmp_path):
    path = tmp_path / "a.json"
    value = {"z": 1, "a": np.float32(0.5), "b": np.arange(2), "c": torch.tensor([1.0]), "d": Path("x/y"), "e": "θ"}
    files.write_json(path, value)
    text = path.read_text(encoding="utf-8")
    assert text.startswith('{\n  "z": 1,\n  "a": 0.5,')
    assert text.endswith("}\n")
    assert files.read_json(path) == {"z": 1, "a": 0.5, "b": [0, 1], "c": [1.0], "d": "x/y", "e": "θ"}
    with pytest.raises(TypeError, match="A set has no JSON form"):
        files.write_json(path, {"a": {1}})
    assert json.loads(text) == files.read_json(path)


def test_yaml_keeps_order_and_plain_values(tmp_path):
    value = {"z": 1, "a": [0.5, None, True], "name": "θ"}
    files.write_yaml(tmp_path / "r.yaml", value)
    assert files.read_yaml(tmp_path / "r.yaml") == value
    assert (tmp_path / "r.yaml").read_text(encoding="utf-8").startswith("z: 1\na:\n")


@pytest.mark.parametrize(
    ("read", "content", "sentence"),
    [
        (files.read_json, None, r"^There is no file .*f; check the path\.$"),
        (files.read_json, b'{"a": 1,', r"^.*f is not valid JSON \(line 1, column 9: "),
        (files.read_json, b"\xff\xfe", r"^.*f is not UTF-8 text \(byte 0\); save it as UTF-8\.$"),
        (files.read_yaml, None, r"^There is no file .*f; check the path\.$"),
        (files.read_yaml, b"a: [1\nb: 2", r"^.*f is not valid YAML \(line 2, column \d+: .*\); correct it\.$"),
        (
            files.read_yaml,
            b"!!python/object/apply:os.getcwd []",
            r"^.*f is not valid YAML \(line 1, .*could not determine",
        ),
        (tensors.load_tensors, None, r"^There is no file .*f; check the path\.$"),
        (
            tensors.load_tensors,
            b"not tensors",
            r"^.*f is not a whole safetensors file \(.*\); bring it back from a copy, or delete it and make it",
        ),
        (files.load_array, None, r"^There is no file .*f; check the path\.$"),
        (files.load_array, b"", r"^.*f is not a whole \.npy file of numbers; delete it and make it again\.$"),
        (
            files.load_array,
            b"\x80\x04K\x01.",
            r"^.*f is not a whole \.npy file of numbers; delete it and make it again\.$",
        ),
    ],
)
def test_unreadable_file_is_named_in_one_sentence(tmp_path, read, content, sentence):
    if content is not None:
        (tmp_path / "f").write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read(tmp_path / "f")


def test_folder_in_the_place_of_a_file_is_not_read(tmp_path):
    with pytest.raises(InputError, match=r"^Cannot read .* \(Is a directory\); check the path and its permissions\.$"):
        files.read_json(tmp_path)


def test_tensors_and_metadata_return_as_they_were(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    given = {
        "whole": base,
        "transposed": base.T,
        "row": base[1],
        "tied": base,
        "half": torch.ones(2, dtype=torch.bfloat16),
        "scalar": torch.tensor(3),
    }
    path = tmp_path / "w.safetensors"
    tensors.save_tensors(path, given, {"grid": [13, 13], "file": Path("x")})
    loaded, metadata = tensors.load_tensors(path)
    assert metadata == {"grid": [13, 13], "file": "x"}
    assert tensors.tensor_header(path) == (metadata, {name: tuple(value.shape) for name, value in given.items()})
    assert loaded.keys() == given.keys()
    for name, tensor in given.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].equal(tensor)
        assert loaded[name].data_ptr() % 64 == 0, "in torch's own memory"
    tensors.save_tensors(path, {}, None)
    assert tensors.load_tensors(path) == ({}, {})


def test_same_tensors_are_the_same_file(tmp_path):
    for n in range(5):
        said = {f"field {k}": k for k in range(9)}
        tensors.save_tensors(tmp_path / f"{n}.safetensors", {"a": torch.ones(3), "b": torch.zeros(2)}, said)
        assert (tmp_path / f"{n}.safetensors").read_bytes() == (tmp_path / "0.safetensors").read_bytes()


@pytest.mark.parametrize("mmap", [False, True])
def test_arrays_return_as_they_were_and_truncated_ones_are_refused(tmp_path, mmap):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / "a.npy"
    files.save_array(path, array)
    loaded = files.load_array(path, mmap=mmap)
    assert np.array_equal(loaded, array)
    assert isinstance(loaded, np.memmap) == mmap
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"a\.npy is not a whole \.npy file"):
        files.load_array(path, mmap=mmap)


def test_arrays_of_objects_are_neither_written_nor_read(tmp_path):
    with pytest.raises(ValueError, match="allow_pickle"):
        files.save_array(tmp_path / "a.npy", np.array([object()]))
    assert names(tmp_path) == []
    np.savez(tmp_path / "many.npz", a=np.zeros(1))
    with pytest.raises(InputError, match="is an archive of arrays"):
        files.load_array(tmp_path / "many.npz")


def test_tensors_may_be_read_by_whoever_may_read_other_files(tmp_path):
    tensors.save_tensors(tmp_path / "a.safetensors", {"x": torch.zeros(2)})
    files.write_text(tmp_path / "a.txt", "x")
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "a.txt").stat().st_mode


@pytest.mark.parametrize("read", [tensors.load_tensors, files.load_array])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "a")
    with pytest.raises(InputError, match=r"a \(not a regular file\); check the path"):
        read(tmp_path / "a")
