"""Stochastic image completion r_img (section 4, algorithm 2): samples of the unseen rest of an image.

In: images, and the locations of the glimpses seen of each. Out: `Completions`, weighted whole images that agree with
those glimpses. `Retrieval` takes images from a bank, and `Corrected` then moves them to agree. `Conditional` is a
trained network. `HMC` samples the latent of the bank's generator. Any object with their `complete` is a `Completion`.
`make_completion` opens the one that a recipe names.
"""

from nogs.completion.conditional import Conditional
from nogs.completion.config import CompletionConfig
from nogs.completion.corrected import Corrected
from nogs.completion.hmc import HMC
from nogs.completion.opening import make_completion, weights_file
from nogs.completion.protocol import Completion, Completions
from nogs.completion.retrieval import Retrieval
from nogs.completion.training import train_completion

__all__ = [
    "HMC",
    "Completion",
    "CompletionConfig",
    "Completions",
    "Conditional",
    "Corrected",
    "Retrieval",
    "make_completion",
    "train_completion",
    "weights_file",
]
