"""The stages of a run: data, posterior, bank, sequences, whole-image, attention, report; `run` does them in order.

In: an `Experiment` (a recipe, `Settings` and the folder of a run). Out: that folder with the stage's product in it.
Each resumes when it was stopped, checks its inputs before it begins, and records what its product was made from.
"""

from nogs.stages.experiment import STAGES, Experiment
from nogs.stages.order import run
from nogs.stages.settings import Settings, run_task

__all__ = ["STAGES", "Experiment", "Settings", "run", "run_task"]
