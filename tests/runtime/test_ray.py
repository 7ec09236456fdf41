import importlib.util

import pytest

from executor_tasks import fail_at_three, scale, square
from nogs.runtime.errors import InputError
from nogs.runtime.ray import RayExecutor

HERE = importlib.util.find_spec("ray") is not None


@pytest.mark.skipif(HERE, reason="Ray is installed")
def test_without_ray_the_sentence_says_what_to_install():
    with pytest.raises(InputError, match=r'needs Ray; install it with pip install "nogs\[ray\]"'):
        list(RayExecutor().map(square, [1]))


@pytest.mark.skipif(not HERE, reason="Ray is not installed")
@pytest.mark.filterwarnings("ignore")
def test_items_are_done_on_the_cluster_once_each():
    import ray

    ray.init(num_cpus=2, include_dashboard=False)
    try:
        found = dict(RayExecutor().map(scale, range(20), shared=3))
        assert found == {n: 3 * n for n in range(20)}
        with pytest.raises(KeyError, match="nothing for 3"):
            list(RayExecutor().map(fail_at_three, range(5)))
    finally:
        ray.shutdown()
