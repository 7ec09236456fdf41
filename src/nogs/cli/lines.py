"""Lines of JSON on standard output."""

from __future__ import annotations

import json
import sys
from typing import Any

from nogs.runtime.files import plain

__all__ = ["json_line"]


def json_line(value: Any) -> str:
    """A value as one line of JSON, with letters as they are; control characters, and letters that the output can't
    encode, stay escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    text = json.dumps(value, default=plain, ensure_ascii=False)
    return "".join(c if c.isprintable() and c.encode(encoding, "ignore") else json.dumps(c)[1:-1] for c in text)
