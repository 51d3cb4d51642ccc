"""The one exception that the set-up raises on purpose."""


class BootstrapError(Exception):
    """Something the user can mend: one line that says what is wrong and what to do next."""
