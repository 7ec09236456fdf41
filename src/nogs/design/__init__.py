"""Near-optimal glimpse sequences (section 4, Eqs. 3-6, algorithm 1): each location minimises the expected entropy.

In: a `Posterior` and a `Completion`. Out: `EPEMap`, the expected posterior entropy of every location; a `Choice` by one
of several searches; `Sequences`, T choices for each image of a task, computed by many workers and kept in a folder.
"""

from nogs.runtime.lazy import imported

_HOMES = {
    "DesignConfig": "nogs.design.config",
    "EPEMap": "nogs.design.epe",
    "LocationSearch": "nogs.design.search",
    "Tools": "nogs.design.steps",
    "annotate": "nogs.design.annotation",
    "read_maps": "nogs.design.blocks",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = imported(__name__, _HOMES)  # a recipe needs only the fields
