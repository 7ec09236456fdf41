"""Trained networks at work: load one, ask it about images or through a sensor, stop early, export it, share it.

In: a run, a packed folder or a Hugging Face repository. Out: answers with the glimpses that they rest on, ONNX files
that need no torch, and folders that others can load. `nogs.load` is the door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nogs.model.classifier import Answer, Location, Look, Model
    from nogs.model.loading import load
    from nogs.model.stopping import accuracy_by_glimpses

__all__ = ["Answer", "Location", "Look", "Model", "accuracy_by_glimpses", "load"]

_HOMES = {"accuracy_by_glimpses": "stopping", "load": "loading"}


def __getattr__(name: str) -> Any:
    """Import on first use: `nogs export --help` must not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"nogs.model.{_HOMES.get(name, 'classifier')}"), name)
