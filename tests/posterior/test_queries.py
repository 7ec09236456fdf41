import gc

import numpy as np
import torch

from nogs.posterior import queries
from nogs.posterior.queries import resident


def test_images_lie_on_a_device_once_and_as_long_as_they_are_used():
    device, before = torch.device("meta"), dict(queries._HELD)  # a device without memory stands for a GPU
    images = np.zeros((3, 4, 4, 3), np.uint8)
    assert resident(images, device) is resident(images, device)
    assert resident(images.copy(), device) is not resident(images, device)
    assert resident(images, torch.device("cpu")).data_ptr() == images.ctypes.data
    del images
    gc.collect()
    assert before == queries._HELD
