"""The executor of many machines: items as tasks of a Ray cluster, on nodes that may come and go.

It needs the extra `ray` (pip install "nogs[ray]") on every node, and a cluster that runs: `ray start --head` on one
machine, `ray start --address HEAD:6379` on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from nogs.runtime.errors import InputError

__all__ = ["RayExecutor"]

R = TypeVar("R")


class RayExecutor:
    """Tasks of an existing cluster. What all items share goes once into its object store.

    A task whose node or process is lost is done again elsewhere by Ray; its result comes once. `gpus` is what one task
    takes of a node's GPUs, `cpus` of its cores.
    """

    def __init__(self, *, address: str = "auto", cpus: float = 1, gpus: float = 0) -> None:
        self.address, self.cpus, self.gpus = address, cpus, gpus

    def map(self, function: Callable[..., R], items: Iterable[Any], *, shared: Any = None) -> Iterator[tuple[int, R]]:
        """Results as they finish, each with its item's index; see `Executor`."""
        ray = self._connected()
        # -1: as often as nodes are lost; an error of the function itself is not retried
        remote = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=-1)(_work)
        common = ray.put((function, shared))
        numbered = iter(enumerate(items))
        running: dict[Any, tuple[int, str]] = {}
        try:
            while True:
                # two items for each place of the cluster as it is now, so that none idles and the rest stays here
                for index, item in islice(numbered, max(0, 2 * self._places(ray) - len(running))):
                    running[remote.remote(item, common)] = index, repr(item)[:200]
                if not running:
                    return
                done, _ = ray.wait(
                    list(running), num_returns=1, timeout=10
                )  # then look again how many places there are
                for reference in done:
                    index, item = running[reference]
                    try:
                        result = ray.get(reference)
                    except ray.exceptions.RayTaskError as error:
                        cause = error.cause if isinstance(getattr(error, "cause", None), Exception) else error
                        cause.add_note(f"while working on item {index}: {item}")
                        raise cause from error
                    del running[reference]
                    yield index, result
        finally:
            for reference in running:
                ray.cancel(reference)

    def _places(self, ray: Any) -> int:
        resources = ray.cluster_resources()
        places = [resources.get("CPU", 0) / self.cpus] if self.cpus else []
        places += [resources.get("GPU", 0) / self.gpus] if self.gpus else []
        return max(1, int(min(places, default=1)))

    def _connected(self) -> Any:
        try:
            import ray
        except ImportError:
            raise InputError('The executor ray needs Ray; install it with pip install "nogs[ray]".') from None
        if not ray.is_initialized():
            try:
                ray.init(address=self.address, log_to_driver=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"There is no Ray cluster at {self.address!r} ({str(error).splitlines()[0]}); start one with "
                    "ray start --head, or correct --address."
                ) from error
        return ray


def _work(item: Any, common: tuple[Callable[..., Any], Any]) -> Any:
    function, shared = common
    return function(item) if shared is None else function(item, shared)
