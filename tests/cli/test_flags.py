import re
from pathlib import Path

import pytest
import tyro

from nogs.cli import args as shared
from nogs.cli import main
from nogs.cli.flags import _flags, parse, parse_with_recipe
from nogs.recipes import Recipe, recipe
from nogs.recipes.folder import CHOSEN
from nogs.runtime.errors import InputError


class Args(shared.Args):
    """Arguments of a command."""

    out: Path
    """Folder for the result."""
    data: Path | None = None
    """Folder of the data."""
    rate: float = 0.5
    """Some rate."""
    loud: bool = False
    """Say more."""


class Placed(shared.Args):
    """Arguments with a position."""

    source: tyro.conf.Positional[Path]
    """Where from."""
    out: Path = Path("x")
    """Where to."""


def both(*argv):
    return parse_with_recipe(Args, list(argv), prog="nogs do", description="Do it.")


def plain(*argv):
    return parse(Args, list(argv), prog="nogs do", description="Do it.")


def test_flags_fill_the_arguments():
    assert plain("--out", "o", "--rate=2", "--loud") == Args(out=Path("o"), rate=2.0, loud=True)
    assert plain("--out", "o", "--no-loud") == Args(out=Path("o"))


def test_recipe_without_flags_is_itself():
    args, found = both("cub", "--out", "o")
    assert args == Args(out=Path("o"))
    assert found == recipe("cub")


def test_dotted_flags_change_the_recipe_and_data_is_still_the_folder():
    args, found = both(
        "digits", "--data", "d", "--data.image-size", "96", "--out", "o", "--attention.learning-rate=1e-3",
        "--attention.flip", "--seed", "7", "--data.grid_count", "None",
    )  # fmt: skip
    base = recipe("digits")
    assert args == Args(out=Path("o"), data=Path("d"))
    assert found.data == base.data.model_copy(update={"image_size": 96})
    assert found.attention == base.attention.model_copy(update={"learning_rate": 1e-3, "flip": True})
    assert found.seed == 7


def test_recipe_file_gives_the_defaults(tmp_path):
    (tmp_path / "mine.yaml").write_text("base: digits\ndata: {count: 33}\n")
    _, found = both(str(tmp_path / "mine.yaml"), "--out", "o", "--data.fragments", "2")
    assert (found.name, found.data.count, found.data.fragments) == ("mine", 33, 2)


def test_help_shows_the_defaults_of_the_recipe(capsys):
    with pytest.raises(SystemExit) as ending:
        both("cub", "--help-all")
    assert ending.value.code == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--data.image-size INT Side of the prepared square images, in pixels. (default: 128)" in text
    assert "--attention.learning-rate FLOAT" in text
    assert "--out PATH Folder for the result. (required)" in text


WITH_RECIPE = [
    *("run", "data prepare", "data inspect", "posterior train", "posterior evaluate", "bank build", "annotate"),
    *("sequences score", "sequences heuristic", "sequences fixed", "sequences handcrafted"),
    *("whole", "train", "compare"),
]


def helped(capsys, *words, columns=100):
    """The output of --help on a terminal with `columns` columns: its lines, and its text without boxes."""
    assert main([*words]) == 0
    said = capsys.readouterr().out.splitlines()
    screen = [line[n : n + columns] for line in said for n in range(0, len(line) or 1, columns)]
    return screen, " ".join(" ".join(line.strip("│ ") for line in said).split())


@pytest.mark.parametrize("command", WITH_RECIPE)
def test_help_of_a_recipe_fits_on_one_screen_and_the_whole_is_one_flag_away(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines, text = helped(capsys, *command.split(), "folder", "--help", columns=80)
    assert len(lines) <= 45, len(lines)
    assert "--help-all shows every flag." in text
    assert "--attention.pretrain-epochs" not in text
    _, text = helped(capsys, *command.split(), "folder", "--help-all")
    known = _flags(Recipe)
    assert set(known) - {f"--no-{flag[2:]}" for flag in known} <= set(re.findall(r"--[a-z][\w.-]*", text))


def test_help_of_a_run_on_pictures_tells_what_it_chooses(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    _, text = helped(capsys, "run", "folder", "--help")
    assert (
        "--data.image-size INT Side of the prepared square images, in pixels. (default: chosen from your pict" in text
    )
    assert "(default: runs/NAME)" in text
    _, text = helped(capsys, "run", "folder", "--help-all")
    assert text.count("(default: chosen from your pictures)") == len(CHOSEN)
    for words in (["run", "cub", "--help"], ["posterior", "train", "folder", "--help"]):
        _, text = helped(capsys, *words)
        assert "Side of the prepared square images, in pixels. (default: 128)" in text
        assert "chosen from your pictures" not in text


def test_run_is_named_by_its_recipe_its_pictures_or_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def stage(*argv):
        return parse_with_recipe(shared.StageArgs, list(argv), prog="nogs do", description="Do it.")

    assert stage("digits")[0].out == Path("runs/digits")
    assert stage("digits", "--out", "o")[0].out == Path("o")
    (tmp_path / "birds of mine").mkdir()
    args, found = stage("birds of mine")
    assert (args.out, args.data, found.name) == (Path("runs/birds of mine"), Path("birds of mine"), "folder")
    (tmp_path / "runs" / "old").mkdir(parents=True)
    recipe("digits").model_copy(update={"seed": 5}).to_yaml(tmp_path / "runs" / "old" / "recipe.yaml")
    args, found = stage("runs/old", "--glimpses", "3")
    assert (args.out, args.data, found.seed, found.glimpses) == (Path("runs/old"), None, 5, 3)


def test_help_without_recipe_says_how_to_see_its_flags(capsys):
    with pytest.raises(SystemExit) as ending:
        both("--help")
    assert ending.value.code == 0
    out = capsys.readouterr().out
    assert "put one before --help to see its flags" in out
    assert "--out PATH" in out
    assert "--data.image-size" not in out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            (),
            "nogs do needs a recipe as its first argument: digits, celeba-hq, cub, folder, a .yaml file or a folder",
        ),
        (("--out", "o"), "nogs do needs a recipe as its first argument: digits, celeba-hq, cub, folder, a .yaml file"),
        (
            ("picturs",),
            "or folder, or a .yaml file, or a folder of pictures.",
        ),
        (("digts",), "There is no recipe or folder 'digts' (did you mean 'digits'?); choose"),
        (("digits",), "nogs do digits needs --out; see nogs do digits --help."),
        (("digits", "--out"), "--out needs a value; see nogs do digits --help."),
        (("digits", "--oot", "o"), "nogs do digits has no flag --oot; did you mean --out?"),
        (
            ("digits", "--out", "o", "--data.imge-size", "3"),
            "nogs do digits has no flag --data.imge-size; did you mean --data.image-size?",
        ),
        (
            ("digits", "--out", "o", "--no-data.skip-corrupt"),
            "nogs do digits has no flag --no-data.skip-corrupt; did you mean --data.no-skip-corrupt?",
        ),
        (("digits", "--out", "o", "--xyzzy"), "nogs do digits has no flag --xyzzy; see nogs do digits --help."),
        (("digits", "--out", "o", "-x"), "nogs do digits has no flag -x; see nogs do digits --help."),
        (("digits", "--out", "o", "stray"), "nogs do digits does not take the argument 'stray';"),
        (("digits", "--out", "o", "--seed", "x"), "--seed must be a whole number, not 'x'; see nogs do digits --help."),
        (("digits", "--out", "o", "--data.grid-last", "x"), "--data.grid-last must be a whole number, not 'x';"),
        (("digits", "--out", "o", "--rate", "fast"), "--rate must be a number, not 'fast';"),
        (
            ("digits", "--out", "o", "--data.fit", "squeeze"),
            "--data.fit must be one of 'crop', 'pad', 'stretch', not 'squeeze';",
        ),
        (
            ("digits", "--out", "o", "--seed", "-1", "--data.image-size", "-4", "--attention.batch", "0"),
            "Recipe 'digits' with these flags has 3 mistakes: --seed must be at least 0, not -1; "
            "--data.image-size must be at least 1, not -4; --attention.batch must be at least 1, not 0.",
        ),
        (
            ("digits", "--out", "o", "--data.glimpse", "65"),
            "Recipe 'digits' with these flags has a mistake: A glimpse of 65 px does not fit into an image",
        ),
    ],
)
def test_mistake_is_one_sentence(argv, sentence, capsys):
    with pytest.raises(InputError) as error:
        both(*argv)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ((), "nogs do needs --out; see nogs do --help."),
        (("--out", "o", "--lud"), "nogs do has no flag --lud; did you mean --loud?"),
        (("--out", "o", "stray"), "nogs do does not take the argument 'stray'; see nogs do --help."),
    ],
)
def test_mistake_without_recipe_is_one_sentence(argv, sentence):
    with pytest.raises(InputError) as error:
        plain(*argv)
    assert str(error.value) == sentence


def test_positional_argument_is_no_flag():
    def placed(*argv):
        return parse(Placed, list(argv), prog="nogs do", description="Do it.")

    assert placed("s", "--out", "o") == Placed(source=Path("s"), out=Path("o"))
    with pytest.raises(InputError, match=r"^nogs do needs PATH; see nogs do --help\.$"):
        placed()
    with pytest.raises(InputError, match="nogs do has no flag --source"):
        placed("--source", "s")
