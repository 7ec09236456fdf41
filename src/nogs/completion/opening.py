"""The completion that a recipe names, over a bank, and the file of weights that it needs."""

from __future__ import annotations

from pathlib import Path

from nogs.bank.bank import Bank
from nogs.bank.build import GENERATOR, read_about
from nogs.bank.generators import DIFFERENTIABLE, Differentiable, make_differentiable
from nogs.bank.generators.trained import Trained
from nogs.completion.conditional import Conditional, Learned
from nogs.completion.config import LEARNED, CompletionConfig
from nogs.completion.corrected import Corrected
from nogs.completion.hmc import HMC
from nogs.completion.protocol import Completion
from nogs.completion.retrieval import Retrieval
from nogs.completion.training import NETWORK
from nogs.runtime.device import pick_precision
from nogs.runtime.errors import InputError

__all__ = ["make_completion", "weights_file"]

_STEPS = 8  # of a trained generator's flow; every leapfrog step backpropagates through all of them


def weights_file(bank: Path, config: CompletionConfig, *, generator_path: Path | None = None) -> Path | None:
    """The file that a completion needs besides the bank in this folder; None if it needs none.

    HMC needs the generator of the bank, which is `generator_path` unless it was trained with the bank.
    """
    if config.kind in LEARNED:
        path = bank / config.kind / NETWORK
        if not (path.parent / "done.json").is_file():
            raise InputError(
                f"{path.parent} holds no trained network; run nogs bank build with --completion.kind {config.kind}, "
                "which keeps the bank and trains it."
            )
        return path
    if config.kind != "hmc":
        return None
    name = read_about(bank)["generator"]
    if name not in DIFFERENTIABLE:
        raise InputError(
            f"The completion hmc needs a generator with a gradient ({', '.join(DIFFERENTIABLE)}), but the images of "
            f"{bank} are of {name!r}; build another bank with --bank.generator trained, or choose another "
            "--completion.kind."
        )
    path = generator_path or bank / GENERATOR
    if not path.is_file():
        raise InputError(f"The completion hmc needs the generator of {bank}; give --generator-path.")
    return path


def make_completion(
    bank: Bank, *, config: CompletionConfig, glimpse: int, seed: int = 0, weights: Path | None = None
) -> Completion:
    """The completion of `config.kind`, for glimpses of so many px; `weights` is its `weights_file`."""
    if config.kind == "retrieval":
        return Retrieval(bank, config=config, glimpse=glimpse, seed=seed)
    if config.kind == "corrected":
        return Corrected(bank, config=config, glimpse=glimpse, seed=seed)
    assert weights is not None
    if config.kind == "hmc":
        return HMC(_generator(bank, weights), bank, config=config, glimpse=glimpse, seed=seed)
    learned = Learned.load(weights, device=bank.device)
    return Conditional(learned, bank, config=config, glimpse=glimpse, seed=seed)


def _generator(bank: Bank, path: Path) -> Differentiable:
    """The generator of a bank, in a precision that suffices for the energy of a trajectory."""
    name, size = bank.about["config"]["generator"], bank.pca.size[0]
    found = make_differentiable(name, path, image_size=size, device=bank.device)
    if found.fingerprint != bank.about["generator_fingerprint"]:
        raise InputError(f"{path} is not the generator that made the bank; give its own --generator-path.")
    if isinstance(found, Trained):
        found.precision = pick_precision("float32", bank.device)
        found.steps = min(found.steps, _STEPS)
    return found
