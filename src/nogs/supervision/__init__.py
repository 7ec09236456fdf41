"""Sources of supervision other than design: the paper's heuristic (Eq. 17), and hand-crafted sequences from parts.

In: expected posterior entropies before any glimpse, or named points on the images of a `Task`. Out: distributions over
locations for pretraining, and `Sequences` for the methods PS-H1, PS-H5 and PS-HGS.
"""

from nogs.supervision.distribution import LocationDistribution
from nogs.supervision.handcrafted import handcrafted
from nogs.supervision.heuristic import Heuristic, load_heuristic, save_heuristic

__all__ = [
    "Heuristic",
    "LocationDistribution",
    "handcrafted",
    "load_heuristic",
    "save_heuristic",
]
