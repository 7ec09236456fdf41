"""What a GPU would be waited for, counted on any device."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Waits(TorchDispatchMode):
    """Counts answers, and sizes of answers, that are needed on the host."""

    def __init__(self):
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.__name__.partition(".")[0]
        masks = name in ("index", "index_put_") and any(m is not None and m.dtype == torch.bool for m in args[1])
        self.number += masks or name in ("_local_scalar_dense", "nonzero", "_unique2", "masked_select")
        return function(*args, **(kwargs or {}))
