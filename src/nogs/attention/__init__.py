"""Hard-attention networks (sections 2 and 5 of the paper) and their partially supervised training (Eq. 8).

In: a `Task`, and glimpse `Sequences` for some of its training images. Out: networks that classify an image from T
glimpses, with curves, evaluation and the locations they chose. Networks of one recipe are stacked along a leading axis
`M` and trained as one program; a single network is the case M = 1.
"""

from nogs.runtime.lazy import imported

_HOMES = {
    "AttentionConfig": "nogs.attention.config",
    "METHODS": "nogs.attention.methods",
    "Member": "nogs.attention.cohort",
    "train": "nogs.attention.training",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = imported(__name__, _HOMES)  # a recipe needs only the fields
