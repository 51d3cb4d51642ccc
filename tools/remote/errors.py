"""The error that a user of the remote service can cause."""


class ServiceError(Exception):
    """One line: what is wrong, what to do next."""
