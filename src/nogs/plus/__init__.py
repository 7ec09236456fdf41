"""PS-NOGS+: a trained posterior that also chooses where to look, by the predicted cross-entropy of the label.

In: a trained posterior and the task. Out: networks that classify after every glimpse and choose the next, as files that
`nogs.load` opens; and the plain ways to look as their baselines.
"""

from nogs.runtime.lazy import imported

_HOMES = {"PlusConfig": "nogs.plus.config"}
__all__ = [*_HOMES]
__getattr__, __dir__ = imported(__name__, _HOMES)  # a recipe needs only the fields
