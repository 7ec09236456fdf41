"""The whole-image reference: a small classifier that sees every pixel, which a few glimpses are held against.

In: a `Task` and where the recipe's posterior starts from (nothing, or ImageNet). Out: a folder with the network and its
test accuracy, calibrated; of a task with attributes one network and an accuracy for each.
"""

from nogs.runtime.lazy import imported

_HOMES = {
    "WholeConfig": "nogs.whole.config",
    "WholeImage": "nogs.whole.network",
    "train_whole": "nogs.whole.training",
    "whole_accuracy": "nogs.whole.evaluation",
}
__all__ = [*_HOMES]
__getattr__ = imported(__name__, _HOMES)  # a recipe needs the fields alone
