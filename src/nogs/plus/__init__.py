"""PS-NOGS+: a network that keeps what the posterior knows, and looks where it expects to learn most about the label.

In: a trained posterior and the task. Out: networks that classify after every glimpse and choose the next, as files that
`nogs.load` opens; and the plain ways to look that they are held against.
"""

from nogs.runtime.lazy import imported

_HOMES = {"PlusConfig": "nogs.plus.config"}
__all__ = [*_HOMES]
__getattr__ = imported(__name__, _HOMES)  # a recipe needs the fields alone
