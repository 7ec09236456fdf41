import importlib.util
import subprocess
import sys
import textwrap

import pytest

import cluster
from executor_tasks import square
from nogs.runtime.errors import InputError
from nogs.runtime.ray import RayExecutor

HERE = importlib.util.find_spec("ray") is not None
PROGRAM = """
import sys
import numpy as np
from executor_tasks import add_first, die_at_three, fail_at_three, scale
from nogs.runtime import ray as module
from nogs.runtime.errors import InputError

module._TRIES = 1
executor = module.RayExecutor(address=sys.argv[1])
assert executor.places() == 2
assert not executor.has_gpus()
assert 0 < executor.room() < 96 << 20
assert dict(executor.map(scale, iter(range(20)), shared=3)) == {n: 3 * n for n in range(20)}
assert list(executor.map(scale, [], shared=3)) == []
stored = executor.share(np.arange(5, 1_000_000))
assert dict(executor.map(add_first, [1, 2], shared=stored)) == {0: 6, 1: 7}
try:
    list(executor.map(fail_at_three, range(5)))
except KeyError as error:
    assert error.__notes__ == ["while working on item 3: 3"], error.__notes__
else:
    raise AssertionError("no error")
done = []
try:
    for place, _ in executor.map(die_at_three, [0, 1, 3]):
        done.append(place)
except InputError as error:
    print(error)
assert sorted(done) == [0, 1]
executor.close()
"""


def test_without_ray_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r'needs Ray; install it with pip install "nogs\[ray\]"'):
        list(RayExecutor().map(square, [1]))


@pytest.mark.slow
@pytest.mark.skipif(not HERE, reason="Ray is not installed")
def test_items_are_done_on_the_cluster_once_each_and_failures_are_told():
    with cluster.running() as nodes:
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(PROGRAM), nodes.address]
        found = subprocess.run(command, env=nodes.environment, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    assert "The Ray cluster lost the workers of item 2 (3) 2 times" in found.stdout
    assert "finished items are kept" in found.stdout
