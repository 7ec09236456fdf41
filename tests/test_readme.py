"""What the README and the manual show is run as it stands: every `nogs` command, in a folder of miniature data.

Commands run in the order of their page, in a folder that holds `DATA`, `PICTURES` and what else the pages name.
The built-in recipes are made small for it, and so are the numbers of iterations that a command gives.
"""

import contextlib
import functools
import importlib
import io
import os
import re
import shlex
import zipfile
from pathlib import Path

import huggingface_hub
import pytest
import torch

import measure
import miniature
from nogs.cli import COMMANDS, main
from nogs.data import load_task
from nogs.plus.network import TokenNetwork
from nogs.plus.store import save_network
from nogs.posterior import store
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.recipes import names, recipe

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(\w+)(?: title=\"(.*)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:\A|\n\n)((?: {4}.*\n)+)")
FACE = "147, 126\n92, 118\n76, 160\n147, 76\n181, 21\n"
BIRD = "40, 48\n80, 32\n40, 64\n80, 72\n0, 96\n"
QUICK = {
    "attention": {"iterations": 2, "validate_every": 1, "batch": 4, "trajectories": 2},
    "posterior": {
        "iterations": 2,
        "validate_every": 1,
        "batch": 16,
        "stem": "linear",
        "width": 16,
        "layers": 1,
        "heads": 2,
        "warmup": 0,
    },
    "bank": {"count": 120, "components": 8},
    "completion": {"drawn": 40, "kept": 10, "prior": 10},
    "design": {"images": 4, "stride": 8},
    "whole": {"iterations": 2, "width": 4, "batch": 4},
    "plus": {"iterations": 2, "validate_every": 1, "batch": 4, "candidates": 2},
}
"""Fields that make a built-in recipe small."""
BIRDS = {"attention": {"embedder": "paper", "hidden": 8, "embedding": 8, "pretrain_epochs": 1}}
"""More of them, for the recipe `cub`."""
SMALL = {"--attention.iterations": "2", "--data.count": "60", "--subset": "0:1", "--attribute": "Smiling"}
"""Values that a shown command's own flags are given; of several, the first."""


def blocks(page):
    """Language, title and text of each code block."""
    return FENCED.findall(page.read_text())


def commands(text):
    """Commands of a shell block, continued lines joined and comments gone."""
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def shrunk(words):
    """The command with the values of `SMALL`."""
    return [SMALL.get(before, word) for before, word in zip(["", *words], words)]


class Hub:
    """The Hugging Face hub, which tests can't reach: it takes what it is given."""

    def __init__(self, **_):
        pass

    def create_repo(self, name, **_):
        return f"https://huggingface.co/{name}"

    def upload_folder(self, *, folder_path, **_):
        assert (folder_path / "model.safetensors").exists()


def publish_network(path, posterior, task, trained):
    """A network on a posterior, for all attributes of a task, that looks from the first location on."""
    names = task.space.names if task.space.kind == "bernoulli" else ("",)
    table = torch.arange(len(task.grid)).float().expand(len(names), posterior.glimpses, -1)
    about = {
        name: {
            "task": task.name,
            "labels": [f"not {name}", name] if name else list(task.space.names),
            **{"method": "fixed", "attribute": name or None, "seed": 0, "best": "accuracy", "iteration": 0},
            **{"validation": 0.5, "test": {"accuracy": 0.5, "nll": 0.7}},
        }
        for name in names
    }
    network = TokenNetwork.on(posterior, table, variables=range(len(names)))
    save_network(path, network, posterior, task=task, about=about, trained=trained)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current folder, as a reader has it; recipes are small in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOGS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    # one worker works in this process; starting several takes seconds a time
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    for name in names():
        module = importlib.import_module(f"nogs.recipes.{name.replace('-', '_')}")
        whole = module.RECIPE
        few = QUICK | ({"data": {"count": 60, "annotated": 12}} if name == "digits" else {})
        if name == "cub":  # twelve layers of VGG are too many for a test
            few = few | {part: QUICK[part] | fields for part, fields in BIRDS.items()}
        parts = {part: getattr(whole, part).model_copy(update=fields) for part, fields in few.items()}
        monkeypatch.setattr(module, "RECIPE", whole.model_copy(update=parts))
    # what a run would choose from the pictures is meant for more of them
    monkeypatch.setattr("nogs.recipes.folder.choose", lambda base, *_, **__: (base, []))
    data = tmp_path / "DATA"
    miniature.celeba_hq(data)
    miniature.cub(data)
    monkeypatch.setattr(store, "__file__", str(tmp_path / "nogs" / "posterior" / "store.py"))
    for own in (recipe("celeba-hq"), recipe("cub")):  # published networks, as if they were of these few images
        task = load_task(own.data, data=data, workers=1)
        architecture = Architecture.of(own.posterior, task=task, glimpses=own.glimpses)
        posterior, published = NetworkPosterior(architecture.build(), architecture), f"{own.published}.safetensors"
        known = {"task_fingerprint": task.fingerprint}
        publish_network(tmp_path / "nogs" / "pretrained" / published, posterior, task, known)
    pictures = miniature.folder(tmp_path / "PICTURES")
    ids = [path.relative_to(pictures).as_posix() for path in sorted(pictures.rglob("*.png"))]
    miniature.labels_csv(pictures, [(id, id.partition("/")[0]) for id in ids])
    with zipfile.ZipFile("released-sequences.zip", "w") as archive:
        for index in range(3):
            archive.writestr(f"optimal-sequences/celebhq/{miniature.ATTRIBUTES.index('Smiling')}/{index}.txt", FACE)
        for number, id in enumerate(task.splits["annotate"]):  # the last one's: birds
            archive.writestr(f"optimal-sequences/birds/{number}.txt", f"{BIRD}images/{int(id) - 1}.png")
    (gaze,) = re.findall(r"^    image,step,y,x\n(?:    .*\n)+", (ROOT / "docs" / "sequences.md").read_text(), re.M)
    Path("gaze.csv").write_text(gaze.replace("    ", ""))
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_every_command_and_example_of_the_page_works(page, place, capsys):
    for language, title, text in blocks(page):
        if language == "bash":
            for words in commands(text):
                if words[0] == "nogs":
                    assert main(shrunk(words[1:])) == 0, f"{shlex.join(words)}: {capsys.readouterr().err}"
                else:  # tests can't install; which targets exist is checked below
                    assert words[0] in ("make", "pip"), words
        elif language == "yaml":
            assert title, text
            (place / title).write_text(text)
        elif language == "python":
            exec(compile(text, page.name, "exec"), {})
        else:
            pytest.fail(f"{page.name} has a block of {language}, which is not run; indent it if it is no example")


def test_every_command_is_shown_and_so_run():
    shown = [
        " ".join(words)
        for page in PAGES
        for kind, _, text in blocks(page)
        if kind == "bash"
        for words in commands(text)
    ]
    for command in COMMANDS:
        assert any(line.startswith(f"nogs {command}") for line in shown), command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_in_blocks_that_are_run(page):
    """A command in an indented block would not be run by the test above."""
    for text in INDENTED.findall(FENCED.sub("", page.read_text())):
        assert not re.search(r"^\s+(\.venv/bin/)?nogs ", text, re.MULTILINE), text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_is_named_exists(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"(?:`|^ *)make ([a-z-]+)", page.read_text(), re.MULTILINE):
        assert target in targets


def snippets(page):
    """All code that a page shows: commands of its shell blocks, lines of its indented blocks, and inline code."""
    text = page.read_text()
    for language, _, block in blocks(page):
        if language == "bash":
            yield from map(shlex.join, commands(block))
    text = FENCED.sub("", text)
    for block in INDENTED.findall(text):
        yield from (line.strip() for line in block.splitlines())
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", INDENTED.sub("\n\n", text)))


def command_of(words):
    """The command that begins a line of words after `nogs`, or None."""
    return next((" ".join(words[:number]) for number in (2, 1) if " ".join(words[:number]) in COMMANDS), None)


@functools.cache
def takes(command, flag):
    """Whether the command knows the flag: it refuses the first one that it does not know."""
    if flag.startswith("--help"):
        return command_says(*command.split(), flag)[0] == 0
    return any(UNKNOWN in command_says(*command.split(), *first, flag, UNKNOWN)[1] for first in (["digits"], []))


def command_says(*words):
    """A command's exit code, and what it says to standard error."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        return main(words), said.getvalue()


UNKNOWN = "--no-such-flag"


def test_a_flag_that_no_command_has_is_found_out():
    assert takes("train", "--attention.iterations")
    assert not any(takes(command, "--attention.no-such-field") for command in COMMANDS)
    assert not takes("report", "--attention.iterations")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_flag_that_is_named_exists(page):
    """A flag behind a command is that command's; one by itself is some command's."""
    for snippet in snippets(page):
        if re.match(r"(\.venv/bin/)?nogs [a-z]", snippet):
            words = snippet.split()[1:]
            command = command_of(words)
            assert command or (len(words) == 1 and any(name.split()[0] == words[0] for name in COMMANDS)), snippet
            able = [command] if command else []
        elif snippet.startswith("--"):
            able = sorted(COMMANDS, key=lambda name: name != "run")  # which has most flags
        else:
            continue  # another program's, or none
        for flag in re.findall(r"(?<!\S)--[a-z][a-z.-]*", snippet):
            assert any(takes(command, flag) for command in able), f"{flag} in {snippet!r}"


@pytest.mark.parametrize("name", measure.JOBS)
def test_every_command_of_a_measurement_exists(name):
    for line in measure.JOBS[name].lines(Path("DATA"), Path("WORK")):
        program, *words = line.split()
        flags = [word for word in words if word.startswith("--")]
        if program == "nogs":
            assert all(takes(command_of(words), flag) for flag in flags), line
        else:
            assert all(f'"{flag}"' in (ROOT / words[0]).read_text() for flag in flags), line


def test_the_table_of_commands_is_that_of_the_help():
    rows = re.findall(r"^\| `nogs (.*?)` \| (.*?) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert rows == [(command, purpose) for command, (_, purpose) in COMMANDS.items()]


def test_the_first_screen_of_the_readme_has_both_commands_and_own_pictures():
    """Above the picture, and in lines that a phone shows whole."""
    top = (ROOT / "README.md").read_text().partition("![")[0]
    for line in ("make demo ", "make test ", "nogs run PICTURES "):
        (found,) = re.findall(rf"^{line}.*$", top, re.MULTILINE)
        assert len(found) <= 64, found
    assert len(top.splitlines()) <= 12


def test_links_between_the_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"
