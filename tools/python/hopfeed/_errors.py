"""What goes wrong, with the message of the engine."""


from typing import Any


class Error(RuntimeError):
    """What the engine says of a failure that is none of the others."""

    #: what a call has found nevertheless, such as the damage that ``verify`` reports
    result: Any = None


class OptionError(Error, ValueError):
    """Options are unknown, or contradict each other or the data."""


class CorruptError(Error):
    """Data are corrupt or invalid. `hopfeed repair` computes damaged chunks of a store again."""


class DoesNotFit(Error, MemoryError):
    """It does not fit into memory or on disk."""


class ForkError(Error):
    """The process was forked from one that uses hopfeed, or a loader or a temporary data set was sent to another process."""
