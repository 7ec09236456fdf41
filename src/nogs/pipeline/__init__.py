"""A recipe's stages in order, each resumable: data, posterior, bank, sequences, attention, report.

In: a `Recipe`, its `Task` and the folder of a run. Out: that folder with every stage's product in it, and one page that
shows them. What is done is skipped, what was begun goes on, and what was made from other fields is made again.
"""

from nogs.pipeline.run import run_recipe
from nogs.pipeline.work import STAGES, Settings

__all__ = ["STAGES", "Settings", "run_recipe"]
