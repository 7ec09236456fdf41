"""Process many independent items in parallel: the protocol, and an implementation with local processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import connection, get_context, parent_process
from typing import Any, Protocol, TypeVar

from nogs.runtime.errors import InputError

__all__ = ["Executor", "LocalExecutor", "call"]

R = TypeVar("R")


class Executor(Protocol):
    """Applies a function to items, in processes or on machines of its choice."""

    def map(self, function: Callable[..., R], items: Iterable[Any], *, shared: Any = None) -> Iterator[tuple[int, R]]:
        """Results as they finish, each with its item's index, of `function(item)` or `function(item, shared)`.

        `shared` is sent to each worker once.
        """


class LocalExecutor:
    """Runs items in processes of this machine; with one worker, in the current process one after the other.

    Processes are spawned, not forked: a fork copies threads' locks and breaks CUDA. So the function must be importable,
    and a script must call `map` below `if __name__ == "__main__"`.
    """

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers

    def map(self, function: Callable[..., R], items: Iterable[Any], *, shared: Any = None) -> Iterator[tuple[int, R]]:
        """Results as they finish, each with its item's index; see `Executor`."""
        return (self._inline if self.workers <= 1 else self._spread)(function, items, shared)

    def _inline(self, function: Callable[..., R], items: Iterable[Any], shared: Any) -> Iterator[tuple[int, R]]:
        for index, item in enumerate(items):
            try:
                result = call(function, item, shared)
            except Exception as error:
                error.add_note(_note(index, item))
                raise
            yield index, result

    def _spread(self, function: Callable[..., R], items: Iterable[Any], shared: Any) -> Iterator[tuple[int, R]]:
        pool = ProcessPoolExecutor(
            self.workers, get_context("spawn"), initializer=_start, initargs=(function, shared, self.workers)
        )
        numbered = iter(enumerate(items))
        running: dict[Future[R], tuple[int, Any]] = {}
        try:
            while True:
                # a short queue for each worker: none idles, and millions of items are not queued at once
                for index, item in islice(numbered, 4 * self.workers - len(running)):
                    with _interrupts_blocked():
                        running[pool.submit(_work, item)] = index, item
                if not running:
                    return
                for future in sorted(wait(running, return_when=FIRST_COMPLETED).done, key=_failed):
                    result = _result(future, *running[future])
                    yield running.pop(future)[0], result
        except BrokenProcessPool as error:
            for future in [future for future in running if future.done() and not _failed(future)]:
                yield running.pop(future)[0], future.result()
            raise InputError(
                f"A worker process was killed (out of memory?) with {len(running)} items unfinished; finished items "
                f"are kept: run again with fewer than {self.workers} workers."
            ) from error
        except BaseException:
            # don't wait for running items, which may take minutes; finished items were already returned
            for process in list((pool._processes or {}).values()):
                process.kill()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Delay Ctrl-C until the block ends. A process started in the block never receives it, even during its imports."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def call(function: Callable[..., R], item: Any, shared: Any) -> R:
    """The function of an item, with the shared value if there is one."""
    return function(item) if shared is None else function(item, shared)


def _failed(future: Future[Any]) -> bool:
    return future.exception() is not None


def _result(future: Future[R], index: int, item: Any) -> R:
    error = future.exception()
    if error is not None and not isinstance(error, BrokenProcessPool):
        error.add_note(_note(index, item))
    return future.result()


def _note(index: int, item: Any) -> str:
    text = repr(item)
    return f"while working on item {index}: {text if len(text) <= 200 else text[:197] + '...'}"


_job: tuple[Callable[..., Any], Any] = (repr, None)  # a worker's function and shared value


def _start(function: Callable[..., Any], shared: Any, workers: int) -> None:
    """Set up a worker: its share of the cores, no traceback on Ctrl-C, and exit when its parent exits."""
    global _job
    _job = function, shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threads = max(1, (os.cpu_count() or 1) // workers)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)  # a killed parent can't ask its workers to stop


def _work(item: Any) -> Any:
    return call(_job[0], item, _job[1])
