"""The one exception for mistakes in what a user gave us: the command line turns it into a sentence and exit code 2."""


class InputError(ValueError):
    """A user's mistake: one sentence that names the file or field and says what to do."""
