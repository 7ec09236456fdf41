"""The floor that everything stands on: it knows nothing of images or glimpses.

Errors, atomic files without pickle, fingerprints, random streams keyed by seed, purpose, id and step, devices and
precision, progress and metrics, the folder of a stage, and executors (many items over processes or machines).
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
__getattr__ = imported(__name__, _HOMES)  # a command's help stays quick
