"""Hard-attention image classifiers trained with near-optimal glimpse sequences."""

__version__ = "0.1.0"
