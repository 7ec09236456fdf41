"""The executor of many machines: items as tasks of a Ray cluster, on nodes that may come and go.

It needs the extra `ray` (pip install "nogs[ray]") on every node, and a cluster that runs: `ray start --head` on one
machine, `ray start --address HEAD:6379` on the others.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from nogs.runtime import progress
from nogs.runtime.errors import InputError

__all__ = ["RayExecutor", "Stored"]

R = TypeVar("R")

_TRIES = 10  # of one item whose node or process was lost: more than nodes are lost by chance
_PATIENCE = 10.0  # seconds until it looks again how many places the cluster has


@dataclass(frozen=True)
class Stored(Generic[R]):
    """A value in the cluster's object store; called anywhere on the cluster, it is the value, arrays without a copy."""

    reference: Any

    def __call__(self) -> R:
        """The value; its arrays can't be written to."""
        import ray

        value: R = ray.get(self.reference)
        return value


class RayExecutor:
    """Tasks of an existing cluster. What all items share goes once into its object store.

    A task whose node or process is lost is done again elsewhere by Ray; its result comes once. `gpus` is what one task
    takes of a node's GPUs, `cpus` of its cores.
    """

    def __init__(self, *, address: str = "auto", cpus: float = 1, gpus: float = 0) -> None:
        self.address, self.cpus, self.gpus = address, cpus, gpus
        self._ours = False  # whether the connection was made here, to be closed here

    def map(self, function: Callable[..., R], items: Iterable[Any], *, shared: Any = None) -> Iterator[tuple[int, R]]:
        """Results as they finish, each with its item's index; see `Executor`."""
        ray = self.connect()
        remote = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=_TRIES)(_work)
        common = ray.put((function, shared))
        numbered = iter(enumerate(items))
        running: dict[Any, tuple[int, str]] = {}
        waiting = False
        # tasks that nobody waits for after an error are left to end: Ray 2.60 may crash when one is cancelled just then
        while True:
            # two items for each place of the cluster as it is now, so that none idles and the rest stays here
            places = self.places()
            for index, item in islice(numbered, max(0, 2 * max(1, places) - len(running))):
                running[remote.remote(item, common)] = index, repr(item)[:200]
            if not running:
                return
            if not places and not waiting:
                progress.say(f"no node of the Ray cluster offers {self.wanted} now; waiting for one.")
            waiting = not places
            done, _ = ray.wait(list(running), num_returns=1, timeout=_PATIENCE)
            for reference in done:
                result = self._result(ray, reference, *running[reference])
                yield running.pop(reference)[0], result

    def share(self, value: R) -> Stored[R]:
        """Put a value into the object store, for as long as the result or a copy of it is somewhere in use."""
        return Stored(self.connect().put(value))

    def room(self) -> int:
        """Bytes that fit the object store of every node that works: a share of the smallest one is left to results."""
        stores = [node["Resources"].get("object_store_memory", 0) for node in self._nodes() if self._fit(node)]
        return int(0.7 * min(stores, default=0))

    def places(self) -> int:
        """How many tasks the cluster has room for, as it is now."""
        return sum(self._fit(node) for node in self._nodes())

    @property
    def wanted(self) -> str:
        """What one task takes, in words."""
        return f"{self.gpus:g} GPU" if self.gpus else f"{self.cpus:g} core"

    def has_gpus(self) -> bool:
        """Whether some node of the cluster has a GPU."""
        return any(node["Resources"].get("GPU", 0) >= 1 for node in self._nodes())

    def connect(self) -> Any:
        """The module `ray`, connected to the cluster."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing about a user's work is sent anywhere
        try:
            import ray
        except ImportError:
            raise InputError('The executor ray needs Ray; install it with pip install "nogs[ray]".') from None
        if not ray.is_initialized():
            try:
                _knock(self.address)
                ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError, OSError) as error:
                raise InputError(
                    f"There is no Ray cluster at {self.address!r} ({_first_line(error)}); start one with "
                    "ray start --head, or correct --address."
                ) from error
            self._ours = True
        return ray

    def close(self) -> None:
        """Leave the cluster, if this executor had joined it; what was shared is gone then."""
        if self._ours:
            import ray

            ray.shutdown()
            self._ours = False

    def _result(self, ray: Any, reference: Any, index: int, item: str) -> Any:
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(getattr(error, "cause", None), Exception) else error
            cause.add_note(f"while working on item {index}: {item}")
            raise cause from error
        except ray.exceptions.RayError as error:
            raise InputError(
                f"The Ray cluster lost the workers of item {index} ({item}) {_TRIES + 1} times "
                f"({_first_line(error)}); what was finished before is kept: run again with more memory for each worker."
            ) from error

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self.connect().nodes() if node["Alive"]]

    def _fit(self, node: dict[str, Any]) -> int:
        """Tasks for which a node has the resources."""
        wanted = [("CPU", self.cpus), ("GPU", self.gpus)]
        return int(min((node["Resources"].get(name, 0) / each for name, each in wanted if each), default=1))


def _knock(address: str) -> None:
    """Raise if nobody listens there: Ray itself would try again for minutes, and then end the process."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise ValueError("an address is auto, or HOST:PORT as ray start printed it")
    socket.create_connection((host, int(port)), timeout=5).close()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".:")


def _work(item: Any, common: tuple[Callable[..., Any], Any]) -> Any:
    function, shared = common
    return function(item) if shared is None else function(item, shared)
