"""The completion that a recipe names, over a bank."""

from __future__ import annotations

from nogs.bank.bank import Bank
from nogs.completion.config import CompletionConfig
from nogs.completion.corrected import Corrected
from nogs.completion.protocol import Completion
from nogs.completion.retrieval import Retrieval

__all__ = ["make_completion"]


def make_completion(bank: Bank, *, config: CompletionConfig, glimpse: int, seed: int = 0) -> Completion:
    """What `config.kind` names, for glimpses of so many px."""
    if config.kind == "corrected":
        return Corrected(bank, config=config, glimpse=glimpse, seed=seed)
    return Retrieval(bank, config=config, glimpse=glimpse, seed=seed)
