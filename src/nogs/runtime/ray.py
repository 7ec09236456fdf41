"""The executor for many machines: items run as tasks of a Ray cluster, whose nodes may join and leave.

It needs the extra `ray` (pip install "nogs[ray]") on every node and a running cluster: `ray start --head` on one
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
from nogs.runtime.executors import call
from nogs.runtime.reading import reason

__all__ = ["RayExecutor", "Stored"]

R = TypeVar("R")

_TRIES = 10  # retries of an item whose node or process was lost
_PATIENCE = 10.0  # seconds between two checks of how many tasks the cluster has room for


@dataclass(frozen=True)
class Stored(Generic[R]):
    """A value in the cluster's object store; a call on any node returns it, without copying arrays."""

    reference: Any

    def __call__(self) -> R:
        """The value; its arrays can't be written to."""
        import ray

        value: R = ray.get(self.reference)
        return value


class RayExecutor:
    """Runs items as tasks of an existing cluster, whose object store holds the shared value once.

    Ray repeats a task whose node or process is lost; its result is returned once. One task takes `gpus` of a node's
    GPUs and `cpus` of its cores.
    """

    def __init__(self, *, address: str = "auto", cpus: float = 1, gpus: float = 0) -> None:
        self.address, self.cpus, self.gpus = address, cpus, gpus
        self._ours = False  # whether this executor made the connection and must close it

    def map(self, function: Callable[..., R], items: Iterable[Any], *, shared: Any = None) -> Iterator[tuple[int, R]]:
        """Results as they finish, each with its item's index; see `Executor`."""
        ray = self.connect()
        remote = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=_TRIES)(_work)
        common = ray.put((function, shared))
        numbered = iter(enumerate(items))
        running: dict[Any, tuple[int, str]] = {}
        waiting = False
        # after an error, running tasks are left to finish: Ray 2.60 may crash when one is cancelled at that moment
        while True:
            # twice as many items as the cluster now has room for: no node idles, and the rest stays here
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
        """Put a value into the object store, where it stays while the result or a copy of it is in use."""
        return Stored(self.connect().put(value))

    def room(self) -> int:
        """Bytes that fit the object store of every node in use; a share of the smallest store is left for results."""
        stores = [node["Resources"].get("object_store_memory", 0) for node in self._nodes() if self._fit(node)]
        return int(0.7 * min(stores, default=0))

    def places(self) -> int:
        """How many tasks the cluster has room for at present."""
        return sum(self._fit(node) for node in self._nodes())

    @property
    def wanted(self) -> str:
        """The resources that one task takes, in words."""
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
                _check_reachable(self.address)
                ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError, OSError) as error:
                raise InputError(
                    f"There is no Ray cluster at {self.address!r} ({reason(error)}); start one with "
                    "ray start --head, or correct --address."
                ) from error
            self._ours = True
        return ray

    def close(self) -> None:
        """Disconnect from the cluster if this executor connected to it; shared values are then lost."""
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
                f"({reason(error)}); finished items are kept: run again with more memory for each worker."
            ) from error

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self.connect().nodes() if node["Alive"]]

    def _fit(self, node: dict[str, Any]) -> int:
        """How many tasks a node has the resources for."""
        wanted = [("CPU", self.cpus), ("GPU", self.gpus)]
        return int(min((node["Resources"].get(name, 0) / each for name, each in wanted if each), default=1))


def _check_reachable(address: str) -> None:
    """Raise if nothing listens at the address: Ray itself would retry for minutes and then end the process."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise ValueError("an address is auto, or HOST:PORT as ray start printed it")
    socket.create_connection((host, int(port)), timeout=5).close()


def _work(item: Any, common: tuple[Callable[..., Any], Any]) -> Any:
    return call(common[0], item, common[1])
