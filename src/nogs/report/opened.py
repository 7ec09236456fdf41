"""A run's posterior and bank, opened for completions and for the walk-through of a design."""

from __future__ import annotations

from nogs.bank import load_bank
from nogs.completion import CompletionConfig, make_completion, weights_file
from nogs.data.task import Task
from nogs.design.steps import Tools
from nogs.posterior.store import load_posterior
from nogs.report.contents import Run
from nogs.runtime.device import pick_device
from nogs.runtime.errors import InputError

__all__ = ["open_tools"]

LARGEST_BANK = 200_000
"""Images of a bank that a report still opens; a larger one takes minutes."""


def open_tools(run: Run, task: Task | None, *, device: str = "auto") -> tuple[Tools | None, str]:
    """Posterior and bank of a run, if both exist, are small enough to open, and fit this task; or what is wrong."""
    if task is None or run.bank is None or not run.posterior_file.is_file() or run.bank["images"] > LARGEST_BANK:
        return None, ""
    where, config = pick_device(device), CompletionConfig.model_validate(run.recipe.get("completion", {}))
    try:
        posterior = load_posterior(run.posterior_file, task=task, device=where)
        bank = load_bank(run.folder / "bank", device=str(where), on_gpu=False)
        completion = make_completion(
            bank,
            config=config,
            glimpse=task.grid.glimpse,
            seed=int(run.recipe.get("seed", 0)),
            weights=weights_file(run.folder / "bank", config),
        )
    except InputError as error:  # damaged, or of another grid
        return None, f"There are no completions and no walk-through of the design: {error}"
    return Tools(posterior, completion, where), ""
