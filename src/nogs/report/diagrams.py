"""Diagrams."""


def network_diagram() -> str:
    """Stub."""
    return ""


def posterior_diagram() -> str:
    """Stub."""
    return ""
