"""The whole-image reference: a small classifier of the whole image, the baseline for glimpses.

In: a `Task`, and the recipe's posterior, which determines whether training starts from ImageNet. Out: a folder with the
calibrated network and its test accuracy. A task with attributes has one network and an accuracy for each attribute.
"""

from nogs.runtime.lazy import imported

_HOMES = {
    "WholeConfig": "nogs.whole.config",
    "WholeImage": "nogs.whole.network",
    "train_whole": "nogs.whole.training",
    "whole_scores": "nogs.whole.evaluation",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = imported(__name__, _HOMES)  # lazy: a recipe needs only the fields
