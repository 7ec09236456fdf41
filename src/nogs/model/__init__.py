"""Using trained networks: load one, classify images or through a sensor, stop early, export it, share it.

In: a published name, a run, a packed folder or a Hugging Face repository. Out: answers with their glimpses, ONNX files
that need no torch, and folders that others can load. `nogs.load` is the entry point.
"""

from nogs.runtime.lazy import imported

_HOMES = {
    "Answer": "nogs.model.answers",
    "Answers": "nogs.model.attributes",
    "Attributes": "nogs.model.attributes",
    "Location": "nogs.model.answers",
    "Look": "nogs.model.classifier",
    "Model": "nogs.model.classifier",
    "accuracy_by_glimpses": "nogs.model.stopping",
    "glimpses_sheet": "nogs.model.drawing",
    "load": "nogs.model.loading",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = imported(__name__, _HOMES)  # `nogs export --help` must not wait for torch
