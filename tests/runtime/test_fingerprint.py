import dataclasses
import os
from pathlib import Path

import numpy as np
import pydantic
import pytest
import torch

from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import file_digest, files_fingerprint, fingerprint


def test_fingerprint_is_16_hexadecimal_digits_and_does_not_change_between_versions():
    # these values are in users' folders: a change here makes every finished stage run again
    assert fingerprint() == "a35f821ee01732d4"
    assert fingerprint({"seed": 1, "rate": 0.1}, ["a", None, True], b"x") == "ef57aed439ed7c2d"
    assert fingerprint(np.arange(6, dtype=np.float32).reshape(2, 3)) == "dfff0fe4eab412eb"


def test_values_that_differ_have_different_fingerprints():
    values = [
        None, False, True, 0, 1, -1, 2**70, 0.0, 1.0, -0.0, float("inf"), float("nan"), "", "1", "None", b"1", b"",
        [], [[]], [1], [1, 2], [[1], 2], [1, [2]], ["12"], ["1", "2"], {}, {"a": 1}, {"a": "1"}, {1: "a"},
        {"a": {"b": 1}},
        {1}, {1, 2}, np.zeros(2), np.zeros(3), np.zeros((2, 1)), np.zeros(2, np.float32), np.zeros(2, np.int64),
        np.array("a"), torch.zeros(2, dtype=torch.bfloat16), torch.zeros(0), torch.zeros(0, 2),
    ]  # fmt: skip
    assert len({fingerprint(value) for value in values}) == len(values)
    assert fingerprint(1, 2) != fingerprint(12)
    assert fingerprint("a", "b") != fingerprint("ab")
    assert fingerprint("a", "b") != fingerprint(["a"], "b")


def test_what_means_the_same_has_the_same_fingerprint():
    class Model(pydantic.BaseModel):
        rate: float
        where: Path

    @dataclasses.dataclass
    class Pair:
        rate: float
        where: Path

    fields = {"where": "a/b", "rate": 0.5}
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint([1, 2]) == fingerprint((1, 2))
    assert fingerprint(Model(**fields)) == fingerprint(Pair(rate=0.5, where=Path("a/b"))) == fingerprint(fields)
    assert fingerprint(np.int32(3), np.float64(0.5), np.bool_(True)) == fingerprint(3, 0.5, True)
    assert fingerprint(Grid.cub()) == fingerprint(Grid.from_json(Grid.cub().to_json()))
    assert fingerprint(Grid.cub()) != fingerprint(Grid.cub(paper=True))


def test_arrays_count_by_content_not_by_layout():
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    same = [array.copy(order="F"), array.astype(">i4"), np.repeat(array, 2, 0)[::2], torch.from_numpy(array)]
    assert {fingerprint(value) for value in same} == {fingerprint(array)}
    assert fingerprint(torch.from_numpy(array).T) != fingerprint(array)
    assert fingerprint(torch.tensor(1.0)) == fingerprint(np.array(1, np.float32))


@pytest.mark.parametrize("value", [object(), lambda: 0, np.array([object()]), Grid])
def test_what_has_no_content_is_refused(value):
    with pytest.raises(TypeError, match="has no fingerprint"):
        fingerprint({"a": [value]})


def test_files_count_by_name_size_and_time(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_text("x")
        os.utime(path, ns=(0, 10**9))
    first = files_fingerprint(paths)
    assert files_fingerprint(reversed(paths)) == first
    os.utime(paths[0], ns=(0, 10**9 + 1))
    touched = files_fingerprint(paths)
    paths[0].write_text("xy")
    os.utime(paths[0], ns=(0, 10**9))
    assert len({first, touched, files_fingerprint(paths), files_fingerprint(paths[:1])}) == 4
    with pytest.raises(InputError, match=r"^Cannot read .*missing \(No such file or directory\); check the path\.$"):
        files_fingerprint([tmp_path / "missing"])


def test_digest_follows_content_alone(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "b").write_bytes(b"content")
    assert file_digest(tmp_path / "a") == file_digest(tmp_path / "b")
    (tmp_path / "b").write_bytes(b"Content")
    assert file_digest(tmp_path / "a") != file_digest(tmp_path / "b")
    assert len(file_digest(tmp_path / "a")) == 32
    with pytest.raises(InputError, match=r"Cannot read .*missing"):
        file_digest(tmp_path / "missing")
