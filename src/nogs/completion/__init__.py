"""Stochastic image completion r_img (section 4, algorithm 2): what could the rest of the image be?

In: images, and the locations of the glimpses seen of each. Out: `Completions`, weighted whole images that agree with
those glimpses. `Retrieval` takes them from a bank, `Corrected` moves those to agree, `Conditional` is a trained
network, `HMC` samples the latent of the bank's generator; anything with their `complete` is a `Completion`, and
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
