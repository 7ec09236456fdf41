"""The exception for invalid user input; the command line prints its sentence and exits with code 2."""


class InputError(ValueError):
    """A user's mistake: one sentence that names the file or field and says what to do."""
