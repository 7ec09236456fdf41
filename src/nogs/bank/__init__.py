"""The image bank of section 4: many plausible images, used to complete glimpses.

In: a task, and a generator of images (StyleGAN, FineGAN, one trained here, the training images themselves, ...). Out: a
`Bank` of uint8 images without any held-out image, their PCA and their codes (Eqs. 14-16).
"""

from nogs.bank.bank import Bank, make_bank
from nogs.bank.build import build_bank, load_bank
from nogs.bank.config import BankConfig, TrainedConfig
from nogs.bank.generators import Generator, make_generator
from nogs.bank.verification import verify_bank

__all__ = [
    "Bank",
    "BankConfig",
    "Generator",
    "TrainedConfig",
    "build_bank",
    "load_bank",
    "make_bank",
    "make_generator",
    "verify_bank",
]
