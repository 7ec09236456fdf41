"""The page of all commands, made from each command's `--help-all`."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from unittest.mock import patch

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from nogs.cli import GROUPS, main

WITH_RECIPE = "nogs run folder"
"""The command whose --help-all has every field of a recipe."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, "commands.md", content=page()))
    return files


def page() -> str:
    """Markdown: every command with its flags, and every field of a recipe."""
    parts = [
        "# All commands",
        "This page is made from `--help-all`. Most commands take a recipe as their first word: `digits`, `celeba-hq`, "
        "`cub`, `folder`, a `.yaml` file, a run's folder or a folder of pictures. Then every "
        "[field of the recipe](#fields-of-a-recipe) is a flag too.",
    ]
    for group, commands in GROUPS.items():
        parts.append(f"## {group.capitalize()}")
        for words in commands:
            usage, about, boxes = parsed(help_of(*words.split(), "--help-all"))
            parts += [f"### nogs {words}", about, f"    {usage}"]
            parts += [table(found) for found in boxes.values() if found]
    parts.append("## Fields of a recipe")
    parts.append(f"As `{WITH_RECIPE} --help-all` has them; another recipe has the same fields with other defaults.")
    words = WITH_RECIPE.split()[1:]
    own = parsed(help_of(*words[:1], "--help-all"))[2]["options"]
    for title, found in parsed(help_of(*words, "--help-all"))[2].items():
        fields = [row for row in found if row not in own]
        if fields:
            parts += [f"### {title.removesuffix('options').strip() or 'general'}", table(fields)]
    return "\n\n".join(part for part in parts if part) + "\n"


def help_of(*words: str) -> str:
    """The help text of a command, in one column of boxes."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # without an encoding the boxes are drawn otherwise
    with contextlib.redirect_stdout(said), patch.dict(os.environ, {"COLUMNS": "100"}):
        code = main(words)
    assert code == 0, words
    said.seek(0)
    return said.read()


def parsed(text: str) -> tuple[str, str, dict[str, list[tuple[str, str]]]]:
    """The usage line, the description, and the flags of each box with their help."""
    head, *boxes = re.split(r"^╭─ (.*?) ─*╮$", text, flags=re.MULTILINE)
    usage, _, about = head.strip().partition("\n\n")
    return (
        " ".join(usage.removeprefix("usage: ").split()),
        "\n\n".join(" ".join(part.split()) for part in about.split("\n\n")),
        {title: list(rows(box)) for title, box in zip(boxes[::2], boxes[1::2])},
    )


def rows(box: str) -> Iterator[tuple[str, str]]:
    """A box's flags with their help, which continues in indented lines. Text above a rule is about the box."""
    found: list[list[str]] = []
    for line in re.findall(r"^│ (.*?) *│$", box, re.MULTILINE):
        if not line.strip("─"):
            found = []
        elif line.startswith(" "):
            found[-1].append(line.strip())
        else:
            found.append(re.split(r"\s{2,}", line, maxsplit=1))
    for flag, *said in found:
        if not flag.startswith("-h,"):
            yield flag, " ".join(said)


def table(rows: list[tuple[str, str]]) -> str:
    """Flags as a table; `{None}|INT` is shortened to INT."""
    lines = ["| flag | is |", "|---|---|"]
    for flag, said in rows:
        names = ", ".join(f"`{word}`" for word in flag.replace("{None}|", "").split(", "))
        lines.append("| {} | {} |".format(names, said.replace("|", "\\|")))
    return "\n".join(lines)
