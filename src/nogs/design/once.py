"""What an annotation computes once per task (first step, the posterior's confidence) and opens once per process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nogs.data.task import Task
from nogs.design.blocks import read_first, save_first
from nogs.design.confidence import MOST, confidence, evenly
from nogs.design.config import DesignConfig
from nogs.design.steps import First, Tools, first_step
from nogs.runtime.device import one_thread
from nogs.runtime.executors import Executor, LocalExecutor
from nogs.runtime.files import read_sealed, write_sealed
from nogs.runtime.fingerprint import fingerprint

__all__ = ["CONFIDENCE", "close_tools", "confidence_of_task", "first_of_task", "opened"]

CONFIDENCE = "confidence.json"


def first_of_task(
    task: Task,
    path: Path,
    *,
    open_tools: Callable[[], Tools],
    config: DesignConfig,
    made_from: str,
    executor: Executor | None = None,
) -> First:
    """The first step, from its file if the fingerprint agrees, else computed (here, or on a cluster) and kept."""
    if path.exists() and (found := read_first(path, made_from=made_from)) is not None:
        return found
    first: First = _once(
        partial(first_step, config=config, shown=True), np.array(task.images[0]), made_from, open_tools, executor
    )
    save_first(path, first, made_from=made_from)
    return first


def confidence_of_task(
    task: Task,
    path: Path,
    ids: Sequence[str],
    *,
    open_tools: Callable[[], Tools],
    glimpses: int,
    seed: int,
    made_from: str,
    executor: Executor,
) -> dict[str, Any]:
    """The posterior's confidence on the bank's images and on those to annotate, computed once for all attributes."""
    chosen = [ids[index] for index in evenly(len(ids), MOST).tolist()]
    own = fingerprint("confidence", made_from, glimpses, chosen)
    if path.exists() and (found := read_sealed(path)).get("fingerprint") == own:
        return found
    work = partial(confidence, glimpses=glimpses, seed=seed)
    found = _once(work, np.array(task.images[task.rows(chosen)]), made_from, open_tools, executor)
    record = {"fingerprint": own, "glimpses": glimpses, **found}
    write_sealed(path, record)
    return record


def _once(
    work: Callable[..., Any], item: Any, made_from: str, open_tools: Callable[[], Tools], executor: Executor | None
) -> Any:
    """Process one item on a cluster, else in this process, since it does not justify another one."""
    if executor is None or isinstance(executor, LocalExecutor):
        executor = LocalExecutor()
    ((_, found),) = executor.map(_with_tools, [item], shared=(made_from, open_tools, work))
    return found


def _with_tools(item: Any, job: tuple[str, Callable[[], Tools], Callable[..., Any]]) -> Any:
    """Process one item, in any process."""
    made_from, open_tools, work = job
    tools = opened(made_from, open_tools)
    with one_thread(tools.device.type):
        return work(tools, item)


_held: list[tuple[str, Callable[[], Tools], Tools]] = []  # at most one: the tools of this process


def close_tools() -> None:
    """Release posterior and bank, which otherwise stay open for the next annotation with the same ones."""
    _held.clear()


def opened(made_from: str, open_tools: Callable[[], Tools]) -> Tools:
    """The tools of this process, opened once for all its blocks."""
    if not _held or _held[0][:2] != (made_from, open_tools):
        close_tools()
        _held.append((made_from, open_tools, open_tools()))
    return _held[0][2]
