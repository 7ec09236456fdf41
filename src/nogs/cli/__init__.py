"""The command `nogs`: a table of commands, each imported only when it is called, and how mistakes reach the user.

Every command is a function of its arguments that returns nothing. A user's mistake ends it with one sentence and exit
code 2, an interruption with 130, the SIGTERM of a scheduler with 143.
"""

from __future__ import annotations

import difflib
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

from nogs.runtime.errors import InputError
from nogs.runtime.progress import silence
from nogs.runtime.terminal import guarded

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "start": {
        "demo": ("nogs.cli.demo:demo", "the whole method on the embedded task, in minutes"),
        "run": ("nogs.cli.run:run", "all stages of a recipe, from images to a report; resumes"),
    },
    "use": {
        "predict": ("nogs.cli.predict:predict", "ask a trained network about pictures, or folders of them"),
        "evaluate": ("nogs.cli.evaluate:evaluate", "accuracy of trained networks, also after fewer glimpses"),
        "compare": ("nogs.cli.compare:compare", "methods side by side: tables, curves, figures"),
        "open": ("nogs.cli.open:open_", "the report of a run, in the browser"),
        "report": ("nogs.cli.report:report", "one page about runs: results, a gallery, figures, tables"),
    },
    "stages": {
        "data prepare": ("nogs.cli.data:prepare", "decode a dataset once and write its splits"),
        "data inspect": ("nogs.cli.data:inspect", "the same, and print counts, label balance and splits"),
        "posterior train": ("nogs.cli.posterior:train", "train the posterior: what glimpses say about the label"),
        "posterior evaluate": ("nogs.cli.posterior:evaluate", "its accuracy and calibration by number of glimpses"),
        "bank build": ("nogs.cli.bank:build", "make the image bank that glimpses are completed with"),
        "bank verify": ("nogs.cli.bank:verify", "check every file of a bank"),
        "bank evaluate": ("nogs.cli.bank:evaluate", "how good its completions are, and a picture of some"),
        "bank compare": ("nogs.cli.bank:compare", "kinds of completion side by side, on the same glimpses"),
        "annotate": ("nogs.cli.annotate:annotate", "near-optimal glimpse sequences, by one or many workers"),
        "sequences score": ("nogs.cli.score:score", "what is known after each glimpse along sequences"),
        "sequences heuristic": ("nogs.cli.heuristic:heuristic", "how salient each location is, and sequences from it"),
        "sequences fixed": ("nogs.cli.heuristic:fixed", "one order of locations for all images, as sequences"),
        "sequences handcrafted": ("nogs.cli.heuristic:handcrafted", "sequences by the labelled parts of birds"),
        "whole": ("nogs.cli.whole:whole", "train a classifier of whole images, to compare with"),
        "train": ("nogs.cli.train:train", "train hard-attention networks"),
    },
    "share": {
        "sequences import": ("nogs.cli.sequences:import_", "bring in the authors' glimpse sequences, or a CSV"),
        "sequences export": ("nogs.cli.sequences:export", "write glimpse sequences as CSV"),
        "sequences validate": ("nogs.cli.sequences:validate", "check glimpse sequences against their task"),
        "posterior publish": ("nogs.cli.posterior:publish", "a posterior or its network, made small, with a card"),
        "export": ("nogs.cli.export:export", "a network as an ONNX file that runs without torch"),
        "hub push": ("nogs.cli.hub:push", "a network for the Hugging Face hub, uploaded or as a folder"),
    },
}
COMMANDS = {words: entry for group in GROUPS.values() for words, entry in group.items()}
"""Each command's words, the function that does it, and what it is for; `GROUPS` has them as --help shows them."""

_INTRODUCTION = """\
nogs trains image classifiers that look at a few small glimpses instead of the whole picture.
"""

_ENDING = """\
RECIPE is digits, celeba-hq, cub, folder, a .yaml file, a run's folder or a folder of pictures. Every command explains
itself with --help, and in full with --help-all; with --quiet it shows nothing but results and errors.
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
        sys.stdout.flush()  # a pipe that closed early shows here, and not in the interpreter's last breath
        return code
    except InputError as error:
        if os.environ.get("NOGS_TRACEBACK"):
            raise
        print(f"nogs: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        terminated = isinstance(stop, _Terminated)
        print(f"nogs: {'terminated' if terminated else 'interrupted'}; what was finished is kept.", file=sys.stderr)
        return 143 if terminated else 130
    except BrokenPipeError:
        # the reader has gone, as in `nogs --help | head -1`; nothing more may be written, not even at exit
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
            except SystemExit as ending:  # how argument parsers end after --help
                return int(ending.code or 0)
            return 0
    return _group(arguments)


def _check_values(arguments: list[str]) -> None:
    """Refuse what no command can take: an empty value, which as a path would be the current folder, and no text."""
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
    """The first word is no command by itself: a group such as `data`, or a mistake."""
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


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like `word`, if one is."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return found[0] if found else None


def _overview() -> str:
    groups = "\n\n".join(f"{name}\n{_table(members)}" for name, members in GROUPS.items())
    return f"{_INTRODUCTION}\nusage: nogs COMMAND [RECIPE] [FLAGS]\n\n{groups}\n\n{_ENDING}".rstrip()


def _table(commands: dict[str, tuple[str, str]]) -> str:
    width = max(map(len, COMMANDS)) + 3
    return "\n".join(f"  {words:<{width}}{purpose}" for words, (_, purpose) in commands.items())
