"""Annotation on two real Ray nodes; everything of Ray runs in other processes than this one."""

import importlib.util
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

import annotate_digits
import cluster
from annotate_world import run

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
SCRIPT = Path(__file__).parents[1] / "annotate_world.py"


@pytest.fixture(scope="module")
def nodes():
    with cluster.running() as started:
        yield started


@pytest.mark.slow
def test_ray_writes_the_local_bytes(nodes, tmp_path):
    """With a bank's codes and a network from the object store, whose arrays are in other memory than those of files."""
    annotate_digits.make(tmp_path)
    annotate_digits.run(tmp_path, tmp_path / "local")
    command = [sys.executable, annotate_digits.__file__, str(tmp_path), str(tmp_path / "ray"), nodes.address]
    done = subprocess.run(command, env=nodes.environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("sequences.jsonl", "manifest.json", "first.safetensors"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


@pytest.mark.slow
def test_a_removed_nodes_images_are_redone_to_the_same_bytes(nodes, tmp_path):
    run(tmp_path / "local")
    diary, out = tmp_path / "diary", tmp_path / "run"
    diary.touch()
    (tmp_path / "diary.hold").write_text(nodes.second)
    command = [sys.executable, str(SCRIPT), str(out), nodes.address, "0.5", str(diary)]
    errors = tmp_path / "errors"
    with errors.open("w") as file:
        driver = subprocess.Popen(command, env=nodes.environment, stdout=file, stderr=file)
        try:
            lost = in_work(diary, out, nodes.second, driver)
            nodes.remove()
            assert driver.wait(200) == 0, errors.read_text()
        finally:
            driver.kill()
            driver.wait()
    begun = read(diary)
    assert begun[nodes.second] == lost
    assert lost <= begun[nodes.head], "they were done again"
    whole, found = ((folder / "sequences.jsonl").read_bytes() for folder in (tmp_path / "local", out))
    assert found == whole


def in_work(diary, out, node, driver):
    """Wait until a block is done and the node, which never ends one, has begun another; the ids of its images."""
    begin = time.monotonic()
    while time.monotonic() - begin < 200 and driver.poll() is None:
        if (lost := read(diary)[node]) and any((out / "blocks").glob("[0-9]*.json")):
            return lost
        time.sleep(0.02)
    pytest.fail("the second node did nothing")


def read(diary):
    """Images that each node has begun with."""
    out = defaultdict(set)
    for line in diary.read_text().splitlines():
        node, ids = line.split(" ")
        out[node] |= set(filter(None, ids.split(",")))
    return out
