"""The command `nogs`: the table of commands, each imported only when it is called, and its error messages.

Every command is a function of its arguments that returns nothing. A user's mistake prints one sentence and exits with
code 2. An interruption exits with 130, a scheduler's SIGTERM with 143.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from nogs.runtime.errors import InputError
from nogs.runtime.progress import silence
from nogs.runtime.spelling import closest
from nogs.runtime.terminal import guarded

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "start": {
        "demo": ("nogs.cli.demo:demo", "run the whole method on the embedded task, in minutes"),
        "run": ("nogs.cli.run:run", "run all stages of a recipe, from images to a report; resumes"),
    },
    "use": {
        "predict": ("nogs.cli.predict:predict", "classify pictures, or folders of them, with a trained network"),
        "evaluate": ("nogs.cli.evaluate:evaluate", "evaluate trained networks, also after fewer glimpses"),
        "compare": ("nogs.cli.compare:compare", "compare methods: tables, curves, figures"),
        "open": ("nogs.cli.open:open_", "open the report of a run in the browser"),
        "report": ("nogs.cli.report:report", "write one page about runs: results, a gallery, figures, tables"),
    },
    "stages": {
        "data prepare": ("nogs.cli.data:prepare", "decode a dataset once and write its splits"),
        "data inspect": ("nogs.cli.data:inspect", "prepare a dataset and print counts, label balance and splits"),
        "posterior train": ("nogs.cli.posterior:train", "train the posterior, which predicts the label from glimpses"),
        "posterior evaluate": ("nogs.cli.posterior:evaluate", "measure accuracy and calibration by number of glimpses"),
        "bank build": ("nogs.cli.bank:build", "build the bank of images that completes glimpses"),
        "bank verify": ("nogs.cli.bank:verify", "check every file of a bank"),
        "bank evaluate": ("nogs.cli.bank:evaluate", "measure a bank's completions, and draw some"),
        "bank compare": ("nogs.cli.bank:compare", "compare kinds of completion on the same glimpses"),
        "annotate": ("nogs.cli.annotate:annotate", "find near-optimal glimpse sequences, by one or many workers"),
        "sequences score": ("nogs.cli.score:score", "score sequences with a posterior, glimpse by glimpse"),
        "sequences heuristic": ("nogs.cli.heuristic:heuristic", "make the paper's saliency map, and sequences from it"),
        "sequences fixed": ("nogs.cli.heuristic:fixed", "make sequences of one order of locations for all images"),
        "sequences handcrafted": ("nogs.cli.heuristic:handcrafted", "make sequences from the labelled parts of birds"),
        "whole": ("nogs.cli.whole:whole", "train a classifier of whole images, the reference"),
        "train": ("nogs.cli.train:train", "train hard-attention networks"),
    },
    "share": {
        "sequences import": ("nogs.cli.sequences:import_", "import the authors' glimpse sequences, or a CSV"),
        "sequences export": ("nogs.cli.sequences:export", "write glimpse sequences as CSV"),
        "sequences validate": ("nogs.cli.sequences:validate", "check glimpse sequences against their task"),
        "posterior publish": (
            "nogs.cli.posterior:publish",
            "write a small copy of a posterior or network, with a card",
        ),
        "export": ("nogs.cli.export:export", "write a network as an ONNX file that runs without torch"),
        "hub push": ("nogs.cli.hub:push", "upload a network to the Hugging Face hub, or write its folder"),
    },
}
COMMANDS = {words: entry for group in GROUPS.values() for words, entry in group.items()}
"""Function and purpose of each command, by its words. `GROUPS` has them as --help shows them."""

_INTRODUCTION = """\
nogs trains image classifiers that look at a few small glimpses instead of the whole picture.
"""

_ENDING = """\
RECIPE is digits, celeba-hq, cub, folder, a .yaml file, a run's folder or a folder of pictures. Every command has
--help for the common flags, --help-all for every flag, and --quiet to print only results and errors.
To see it work: nogs demo
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (by default the command line) names, and return its exit code."""
    with guarded():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    arguments = [word for word in (sys.argv[1:] if argv is None else argv) if word != "--quiet"]
    silence("--quiet" in (sys.argv if argv is None else argv))
    if argv is None:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()  # a closed pipe raises here, not at interpreter exit
        return code
    except InputError as error:
        if os.environ.get("NOGS_TRACEBACK"):
            raise
        print(f"nogs: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        terminated = isinstance(stop, _Terminated)
        print(f"nogs: {'terminated' if terminated else 'interrupted'}; finished work is kept.", file=sys.stderr)
        return 143 if terminated else 130
    except BrokenPipeError:
        # the reader has closed the pipe, as in `nogs --help | head -1`: nothing may be written, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


class _Terminated(KeyboardInterrupt):
    """A SIGTERM, which ends a command as an interruption does."""


def _terminate(*_: object) -> None:
    raise _Terminated


def _dispatch(arguments: list[str]) -> int:
    _check_values(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] == "--version":
        from nogs import __version__

        print(f"nogs {__version__}")
        return 0
    for words in (2, 1):
        entry = COMMANDS.get(" ".join(arguments[:words]))
        if entry:
            module, _, name = entry[0].partition(":")
            try:
                getattr(import_module(module), name)(arguments[words:])
            except SystemExit as ending:  # argument parsers exit after --help
                return int(ending.code or 0)
            return 0
    return _group(arguments)


def _check_values(arguments: list[str]) -> None:
    """Refuse empty values, which as a path would be the current folder, and words that are not UTF-8."""
    for before, word in zip(["", *arguments], arguments):
        flag, sign, value = word.partition("=")
        if not word or (flag.startswith("--") and sign and not value):
            name = flag if sign else before if before.startswith("-") else "An argument"
            raise InputError(f"{name} is empty; give it a value.")
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(f"The argument {word} is not UTF-8; rename the file or folder.") from None


def _group(arguments: list[str]) -> int:
    """Handle a first word that is not a command: a group such as `data`, or a mistake."""
    first = arguments[0]
    members = {words: entry for words, entry in COMMANDS.items() if words.startswith(f"{first} ")}
    if members and (len(arguments) == 1 or arguments[1] in ("-h", "--help")):
        print(f"usage: nogs {first} COMMAND ...\n\n{_table(members)}")
        return 0
    if members:
        close = closest(arguments[1], [words.split()[1] for words in members])
        hint = f"did you mean 'nogs {first} {close}'?" if close else f"run 'nogs {first} --help' for the list."
        raise InputError(f"There is no command {first + ' ' + arguments[1]!r}; {hint}")
    if first.startswith("-"):
        raise InputError(f"There is no flag {first!r} before a command; run 'nogs --help' for the commands.")
    close = closest(first, [*COMMANDS, *(words.split()[0] for words in COMMANDS)])
    hint = f"did you mean 'nogs {close}'?" if close else "run 'nogs --help' for the list."
    raise InputError(f"There is no command {first!r}; {hint}")


def _overview() -> str:
    groups = "\n\n".join(f"{name}\n{_table(members)}" for name, members in GROUPS.items())
    return f"{_INTRODUCTION}\nusage: nogs COMMAND [RECIPE] [FLAGS]\n\n{groups}\n\n{_ENDING}".rstrip()


def _table(commands: dict[str, tuple[str, str]]) -> str:
    width = max(map(len, COMMANDS)) + 3
    return "\n".join(f"  {words:<{width}}{purpose}" for words, (_, purpose) in commands.items())
