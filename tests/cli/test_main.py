import io
import os
import subprocess
import sys

import pytest

import nogs
from nogs import cli
from nogs.cli import COMMANDS, GROUPS, main
from nogs.runtime import progress
from nogs.runtime.errors import InputError


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_lists_every_command(argv, capsys):
    assert main(argv) == 0
    out = capsys.readouterr().out
    for words, (_, purpose) in COMMANDS.items():
        assert f"  {words} " in out
        assert purpose in out


def test_help_shows_the_commands_in_four_groups(capsys):
    assert main(["--help"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if line in GROUPS]
    assert heads == list(GROUPS) == ["start", "use", "stages", "share"]


def test_quiet_command_shows_its_result_alone(command, capsys):
    def talk(argv):
        progress.say("so far")
        progress.tell("a story")
        with progress.track("work", total=1) as bar:
            bar.advance()
        print(argv)

    command(talk)
    assert main(["demo", "--quiet", "--b"]) == 0
    assert capsys.readouterr() == ("['--b']\n", "")
    assert main(["demo", "--b"]) == 0
    assert "so far" in capsys.readouterr().err


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"nogs {nogs.__version__}\n"


@pytest.mark.parametrize("argv", [["data"], ["data", "--help"], ["data", "-h"]])
def test_help_of_a_group_lists_its_commands(argv, capsys):
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "data prepare" in out
    assert "data inspect" in out
    assert "train" not in out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["dta"], "There is no command 'dta'; did you mean 'nogs data'?"),
        (["trian", "digits"], "There is no command 'trian'; did you mean 'nogs train'?"),
        (["xyzzy"], "There is no command 'xyzzy'; run 'nogs --help' for the list."),
        (["data", "inspct"], "There is no command 'data inspct'; did you mean 'nogs data inspect'?"),
        (["data", "xyzzy"], "There is no command 'data xyzzy'; run 'nogs data --help' for the list."),
        (["--verson"], "There is no flag '--verson' before a command; run 'nogs --help' for the commands."),
    ],
)
def test_unknown_command_names_the_closest(argv, sentence, capsys):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.err == f"nogs: error: {sentence}\n"
    assert captured.out == ""


@pytest.fixture
def command(monkeypatch):
    """Make `nogs demo` do something else."""

    def replace(function):
        module = type(sys)("stand_in")
        module.run = function
        monkeypatch.setitem(sys.modules, "stand_in", module)
        monkeypatch.setitem(cli.COMMANDS, "demo", ("stand_in:run", "a stand-in"))

    return replace


def test_command_gets_the_rest_of_the_arguments(command):
    seen = []
    command(seen.extend)
    assert main(["demo", "a", "--b"]) == 0
    assert seen == ["a", "--b"]


def test_mistake_of_the_user_is_one_sentence_without_traceback(command, capsys):
    def wrong(argv):
        raise InputError("labels.csv has no column 'label'; add it.")

    command(wrong)
    assert main(["demo"]) == 2
    assert capsys.readouterr().err == "nogs: error: labels.csv has no column 'label'; add it.\n"


def test_traceback_on_request(command, monkeypatch):
    def wrong(argv):
        raise InputError("no")

    command(wrong)
    monkeypatch.setenv("NOGS_TRACEBACK", "1")
    with pytest.raises(InputError):
        main(["demo"])


def test_mistake_of_ours_is_not_hidden(command):
    def wrong(argv):
        raise ZeroDivisionError

    command(wrong)
    with pytest.raises(ZeroDivisionError):
        main(["demo"])


def test_interruption_is_one_line_and_130(command, capsys):
    def stop(argv):
        raise KeyboardInterrupt

    command(stop)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "nogs: interrupted; finished work is kept.\n"


def test_terminated_command_says_so():
    script = (
        "import sys, time, types; from nogs import cli; slow = types.ModuleType('slow'); sys.modules['slow'] = slow;"
        "slow.slow = lambda argv: (print('ready', flush=True), time.sleep(60));"
        "cli.COMMANDS['demo'] = ('slow:slow', ''); sys.argv = ['nogs', 'demo']; sys.exit(cli.main())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.communicate(timeout=30)[1] == "nogs: terminated; finished work is kept.\n"
    assert process.returncode == 143


def nogs_process(*argv, **options):
    return subprocess.run([sys.executable, "-m", "nogs", *argv], text=True, timeout=60, **options)


def test_module_runs_as_a_program_without_importing_torch():
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = nogs_process("--help", capture_output=True, env=environment)
    assert done.returncode == 0
    assert "usage: nogs COMMAND" in done.stdout
    assert "nogs.cli" in done.stderr
    assert not any(f" {heavy}\n" in done.stderr for heavy in ("torch", "numpy", "pydantic", "tyro", "sklearn"))


def test_reader_that_leaves_early_is_no_error():
    script = (
        "import os, sys; from nogs.cli import main; reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1);"
        "sys.exit(main(['--help']))"
    )
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["bank", "verify", "--out", ""], "--out is empty; give it a value."),
        (["data", "inspect", "folder", "--data=", "--out", "x"], "--data is empty; give it a value."),
        (["predict", "run", ""], "An argument is empty; give it a value."),
        (["predict", "run", "p\udcff.png"], r"The argument p\udcff.png is not UTF-8; rename the file or folder."),
    ],
)
def test_an_argument_that_no_command_can_take_is_refused(argv, sentence, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    assert capsys.readouterr().err == f"nogs: error: {sentence}\n"


HOSTILE = "cat\x1b]0;owned\x07\x1b[2J\x9b31m\u202ekcats\udcff\r"


def test_nothing_that_is_printed_can_command_the_terminal(command, capsys):
    def show(_):
        print(HOSTILE)
        progress.say(HOSTILE)
        with progress.track(HOSTILE, total=1) as job:
            job.advance(1, label=HOSTILE)
        raise InputError(HOSTILE)

    command(show)
    assert main(["demo"]) == 2
    out, err = capsys.readouterr()
    assert out == r"cat\x1b]0;owned\x07\x1b[2J\x9b31m\u202ekcats\udcff\r" + "\n"
    assert err.count(out.strip()) == 5  # say, two titles, one label, the error
    assert all(letter.isprintable() or letter == "\n" for letter in err)


def test_a_bar_shows_hostile_text_without_obeying_it(command, monkeypatch):
    screen = type("Screen", (io.StringIO,), {"isatty": lambda self: True})()
    monkeypatch.setattr(sys, "stderr", screen)

    def show(_):
        with progress.track(HOSTILE, total=1) as job:
            job.advance(1, label=HOSTILE)
            progress.say(HOSTILE)
            print(HOSTILE, file=sys.stderr)

    command(show)
    assert main(["demo"]) == 0
    written = screen.getvalue()
    assert "\x1b[" in written  # of the bar itself
    for part in ("\x1b]0", "\x07", "\x1b[2J", "\x9b", "\u202e", "\udcff"):
        assert part not in written
    assert r"owned\x07" in written
