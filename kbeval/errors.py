"""The errors a user can meet: one small tree, one line each (what, where, found, allowed)."""


class KbevalError(Exception):
    """Base of every error that kbeval raises on purpose; its text is one line for the user."""


class ConfigError(KbevalError):
    """A setting, study file or notebook parameter is wrong."""


class CorpusError(KbevalError):
    """A document cannot be read, or its path leaves the root."""


class DatasetError(KbevalError):
    """A labelled set or session file is wrong."""


class EncoderError(KbevalError):
    """An encoder cannot be opened, or is not the one the vectors came from."""


class VectorError(KbevalError):
    """A vector is not finite, has no direction, or has the wrong width."""


class DistanceError(KbevalError):
    """A distance is negative, not a number, or not of a numeric type."""


class IndexFileError(KbevalError):
    """A saved index is damaged, incomplete or was built by something else."""


class RunError(KbevalError):
    """A notebook or a study failed."""


class DatabaseError(KbevalError):
    """The database cannot be opened, read or changed, or a record does not fit it."""


class LlmError(KbevalError):
    """A language model could not be reached, or its reply is of no use; the text is the reason."""
