"""Shared infrastructure, independent of images and glimpses.

It has errors, atomic files without pickle, fingerprints, devices and precision, progress, metrics and stage folders.
Random streams are keyed by seed, purpose, id and step. Executors run many items in processes or on machines.
"""

from nogs.runtime.lazy import imported

_HOMES = {
    "Executor": "nogs.runtime.executors",
    "InputError": "nogs.runtime.errors",
    "LocalExecutor": "nogs.runtime.executors",
    "RayExecutor": "nogs.runtime.ray",
    "pick_device": "nogs.runtime.device",
    "versions": "nogs.runtime.device",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = imported(__name__, _HOMES)  # lazy, so that --help stays fast
