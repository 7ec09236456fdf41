"""Hard-attention image classifiers trained with near-optimal glimpse sequences.

import nogs

model = nogs.load("runs/demo")
answer = model.classify("photo.jpg")

`recipe` and `run` train a network. `Task` holds labelled images in memory. A class with the methods of `Posterior`,
`Completion`, `Generator`, `LocationSearch` or `Executor` can replace the package's own.
"""

from nogs.runtime.lazy import imported

__version__ = "0.1.0"

_HOMES = {
    "Completion": "nogs.completion.protocol",
    "Executor": "nogs.runtime.executors",
    "Generator": "nogs.bank.generators",
    "Grid": "nogs.glimpse",
    "InputError": "nogs.runtime.errors",
    "LocationSearch": "nogs.design.search",
    "Posterior": "nogs.posterior.protocol",
    "Sequences": "nogs.sequences",
    "Settings": "nogs.stages.settings",
    "Task": "nogs.data.task",
    "load": "nogs.model.loading",
    "load_task": "nogs.data",
    "recipe": "nogs.recipes",
    "run": "nogs.stages.order",
}

__all__ = ["__version__", *_HOMES]
__getattr__, __dir__ = imported(__name__, _HOMES)  # lazy: every subpackage imports this module
