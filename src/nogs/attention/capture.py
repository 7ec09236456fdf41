"""Captured graphs, from the runtime."""

from nogs.runtime.capture import captured

__all__ = ["captured"]
