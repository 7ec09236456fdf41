"""The completion that a recipe names, over a bank, and the file of weights that it needs."""

from __future__ import annotations

from pathlib import Path

from nogs.bank.bank import Bank
from nogs.completion.conditional import Conditional, Learned
from nogs.completion.config import LEARNED, CompletionConfig
from nogs.completion.corrected import Corrected
from nogs.completion.protocol import Completion
from nogs.completion.retrieval import Retrieval
from nogs.completion.training import NETWORK
from nogs.runtime.errors import InputError

__all__ = ["make_completion", "weights_file"]


def weights_file(bank: Path, config: CompletionConfig) -> Path | None:
    """The file that a completion needs beside the bank in this folder; None if it needs none."""
    if config.kind not in LEARNED:
        return None
    path = bank / config.kind / NETWORK
    if not (path.parent / "done.json").is_file():
        raise InputError(
            f"{path.parent} holds no trained network; run nogs bank build with --completion.kind {config.kind}, which "
            "keeps the bank and trains it."
        )
    return path


def make_completion(
    bank: Bank, *, config: CompletionConfig, glimpse: int, seed: int = 0, weights: Path | None = None
) -> Completion:
    """What `config.kind` names, for glimpses of so many px; `weights` is its `weights_file`."""
    if config.kind == "retrieval":
        return Retrieval(bank, config=config, glimpse=glimpse, seed=seed)
    if config.kind == "corrected":
        return Corrected(bank, config=config, glimpse=glimpse, seed=seed)
    assert weights is not None
    learned = Learned.load(weights, device=bank.device)
    return Conditional(learned, bank, config=config, glimpse=glimpse, seed=seed)
