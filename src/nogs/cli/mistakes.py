"""tyro's message about a mistake on the command line, as one sentence."""

import re

__all__ = ["sentence"]

_REWORDED = (
    (r"Error parsing (--\S+): .*int\(\) with base 10: (.*)", r"\1 must be a whole number, not \2"),
    (r"Error parsing (--\S+): .*could not convert string to float: (.*)", r"\1 must be a number, not \2"),
    (r"Error parsing (--seeds): Could not find valid parse .*?\[(.*)\]", r"\1 must be whole numbers, not \2"),
    (r"Error parsing (--\S+): Could not find valid parse .*?\[(.*)\]", r"\1 must be numbers, not \2"),
    (r"invalid choice (.*) for argument '(.*)'\. Expected one of \((.*?),?\)\.", r"\2 must be one of \3, not \1"),
    (r"Missing from (.*?): (\S+).*", r"\1 needs \2"),
    (r"Missing value for argument '(.*?)'\..*", r"\1 needs a value"),
    (r"Error parsing (--\S+): (.*)", r"\1 can't be read: \2"),
)
"""Patterns of tyro's messages, and our wording; other messages keep tyro's."""


def sentence(box: str) -> str:
    """The text of a boxed message, in one line; the box is drawn with lines, or with hyphens in ASCII."""
    sections: list[list[str]] = [[]]
    for line in box.splitlines():
        text = line.strip(" │")
        if text.startswith("╭") or (text and not text.strip("─-╰╯")):
            sections.append([])
        else:
            sections[-1].append(text)
    told = [" ".join(" ".join(section).split()) for section in sections if section]
    for pattern, replacement in _REWORDED:
        for text in told:
            if re.search(pattern, text):
                return re.sub(pattern, replacement, text).rstrip(".")
    return ": ".join(told[:-1]).rstrip(".") or "the arguments can't be read"  # the last section is about --help
