"""Whatever happens to a file of a run, reading it gives the same result or one sentence that names the file.

NOGS_FUZZ says how many mutations are tried; docs/safety.md says how many were.
"""

import json
import os
import struct
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from damage import Target, World
from nogs.runtime.digests import SEAL, sealed
from nogs.runtime.errors import InputError

EXAMPLES = int(os.environ.get("NOGS_FUZZ", "700"))
WRONG = (None, True, -1, 3, 10**9, 2**70, 1e308, float("nan"), "", "x", "../../etc", [], [[]], {}, {"a": {}}, [1, "b"])


class Refused(str):
    """The sentence of a file that was not used."""


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """The run, what reading each of its files gives, and the bytes of all."""
    made = World(tmp_path_factory.mktemp("world"))
    targets = list(made.targets())
    expected = [target.read() for target in targets]
    files = {path: path.read_bytes() for path in made.run.parent.rglob("*") if path.is_file()}
    return lambda: (made, targets, expected, files)  # a short repr for hypothesis


def restored(made: World, files: dict[Path, bytes]) -> None:
    """Put back what a reader wrote, as a cache that is decoded again."""
    for path in made.run.parent.rglob("*"):
        if path.is_file() and path not in files:
            path.unlink()
    for path, content in files.items():
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def bytes_changed(chance: Random, content: bytes) -> bytes:
    """A bit flipped, a part cut off or out, a part overwritten, something appended."""
    # headers are short beside tensors, and more can go wrong there
    place = chance.randrange(min(len(content), chance.choice([512, len(content)]))) if content else 0
    length = chance.randint(1, 64)
    kind = chance.choice(["flip", "cut", "out", "zeros", "noise", "longer"])
    if kind == "flip":
        flipped = [byte ^ (1 << chance.randrange(8)) for byte in content[place : place + 1]]
        return content[:place] + bytes(flipped) + content[place + 1 :]
    if kind == "cut":
        return content[:place]
    if kind == "out":
        return content[:place] + content[place + length :]
    new = bytes(length) if kind == "zeros" else chance.randbytes(length)
    return content + new if kind == "longer" else content[:place] + new + content[place + length :]


def value_changed(chance: Random, value):
    """A JSON value with a field dropped, renamed or given another value, somewhere inside."""
    if isinstance(value, dict) and value:
        name, kind = chance.choice(sorted(value)), chance.choice(["drop", "rename", "retype", "inside", "inside"])
        if kind == "drop":
            return {key: item for key, item in value.items() if key != name}
        if kind == "rename":
            return {f"{name}_" if key == name else key: item for key, item in value.items()}
        return {**value, name: chance.choice(WRONG) if kind == "retype" else value_changed(chance, value[name])}
    if isinstance(value, list) and value and chance.random() < 0.5:
        place, kind = chance.randrange(len(value)), chance.choice(["drop", "retype", "inside"])
        new = [chance.choice(WRONG) if kind == "retype" else value_changed(chance, value[place])]
        return value[:place] + ([] if kind == "drop" else new) + value[place + 1 :]
    return chance.choice(WRONG)


def fields_changed(chance: Random, path: Path, content: bytes, *, reseal: bool) -> bytes:
    """A JSON file, a line of one, or a safetensors header with other fields; `reseal` as a stranger would."""

    def changed(text: str) -> str:
        value = json.loads(text)
        if reseal and isinstance(value, dict) and SEAL in value:
            value = value_changed(chance, {name: item for name, item in value.items() if name != SEAL})
            return json.dumps(sealed(value) if isinstance(value, dict) else value)
        return json.dumps(value_changed(chance, value))

    if path.suffix == ".json":
        return changed(content.decode()).encode()
    if path.suffix == ".jsonl":
        lines = content.decode().splitlines()
        place = chance.randrange(len(lines))
        return "".join(f"{changed(line) if n == place else line}\n" for n, line in enumerate(lines)).encode()
    if path.suffix == ".safetensors":
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        if chance.random() < 0.5:
            header["__metadata__"]["nogs"] = changed(header["__metadata__"]["nogs"])
        else:
            header = value_changed(chance, header)
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + content[8 + length :]
    return bytes_changed(chance, content)


def outcome(target: Target, content: bytes, *, names: str):
    """What reading the file gives when it has this content, or the sentence, in which `names` must occur."""
    target.path.write_bytes(content)
    try:
        return target.read()
    except InputError as error:
        sentence = str(error)
        assert names in sentence, f"{target.path}: {sentence}"
        assert "\n" not in sentence or sentence.splitlines()[0].endswith("problems:")  # a line for each of a file
        return Refused(sentence)


SEEDS = st.integers(0, 2**63)


@settings(max_examples=EXAMPLES * 3 // 4, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(seed=SEEDS)
def test_damaged_file_gives_the_same_result_or_one_sentence(world, seed):
    made, targets, expected, files = world()
    chance = Random(seed)
    number = chance.randrange(len(targets))
    target, content = targets[number], files[targets[number].path]
    if chance.random() < 0.5:
        content = bytes_changed(chance, content)
    else:
        content = fields_changed(chance, target.path, content, reseal=False)
    try:
        found = outcome(target, content, names=target.path.name)
        assert target.editable or isinstance(found, Refused) or found == expected[number], target.path
    finally:
        restored(made, files)


@settings(max_examples=EXAMPLES // 4, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(seed=SEEDS)
@example(seed=197812)  # a network whose architecture is a number
def test_file_of_a_stranger_is_used_or_refused_in_one_sentence(world, seed):
    """As above, but with seals that fit and no digests in done.json: another result is fair, a traceback is not."""
    made, targets, _, files = world()
    chance = Random(seed)
    target = chance.choice([target for target in targets if target.path.suffix in (".json", ".jsonl", ".safetensors")])
    try:
        for done in made.run.rglob("done.json"):
            record = {name: value for name, value in json.loads(done.read_text()).items() if name != SEAL}
            done.write_text(json.dumps(sealed({**record, "files": {}})))
        content = target.path.read_bytes() if target.path.name == "done.json" else files[target.path]
        content = fields_changed(chance, target.path, content, reseal=True)
        outcome(target, content, names=str(made.run.parent))  # of two files that disagree either may be named
    finally:
        restored(made, files)
