"""The errors a user of the commands can meet, each with its exit code.

The message of every one of them is a single line that says what is wrong and what to do next.
"""


class Eagle3Error(Exception):
    """Anything the user should read as one line, without a stack trace."""

    exit_code = 1


class InputError(Eagle3Error):
    """A flag, the model or the data is wrong; nothing was started and nothing was written."""

    exit_code = 2


class EngineError(Eagle3Error):
    """The target failed while it was running."""

    exit_code = 3


class StoreError(Eagle3Error):
    """The output folder cannot be written, belongs to another run, or is damaged."""

    exit_code = 4
