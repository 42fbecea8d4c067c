"""Every error vlaprep raises on purpose, on one page.

Each class is also the built-in that callers of the reference implementations already catch, so
``except ValueError`` or ``except RuntimeError`` written for those keeps working.

The message says what is wrong first, then the file, column, row or id, then the way out.
"""

from __future__ import annotations

__all__ = [
    "DatasetFormatError",
    "DatasetNotFoundError",
    "EpisodeSelectionError",
    "FitFailedElsewhereError",
    "FitGateError",
    "NoChunksError",
    "PercentileFileError",
    "PublishError",
    "RanksDisagreeError",
    "TokenizerFormatError",
    "TokenizerNotFoundError",
    "VlaprepError",
    "VocabularyError",
    "WaitTimeoutError",
]


class VlaprepError(Exception):
    """Base of all errors raised by vlaprep."""


class DatasetNotFoundError(VlaprepError, FileNotFoundError, RuntimeError):
    """There is no dataset at this place: no folder, no ``meta/info.json``, no data files."""


class DatasetFormatError(VlaprepError, ValueError, RuntimeError):
    """A file of the dataset cannot be read, or holds what a LeRobot dataset cannot hold."""


class EpisodeSelectionError(VlaprepError, ValueError):
    """A selection names episodes that do not exist, or leaves none."""


class NoChunksError(VlaprepError, ValueError, RuntimeError):
    """No action chunk can be drawn, or fewer than wanted: short episodes, or windows with NaN."""


class VocabularyError(VlaprepError, ValueError, AssertionError):
    """The range of quantised coefficients does not fit into the vocabulary."""


class PercentileFileError(VlaprepError, ValueError):
    """``meta/speed_percentiles.jsonl`` is torn or malformed."""


class TokenizerFormatError(VlaprepError, ValueError):
    """A saved tokenizer cannot be read, or is no FAST tokenizer."""


class TokenizerNotFoundError(TokenizerFormatError, FileNotFoundError):
    """The Hub has no such tokenizer, does not open it, or cannot be reached."""


class PublishError(VlaprepError, OSError):
    """The Hub did not take a tokenizer: no permission, another repository there, no answer."""


class FitGateError(VlaprepError, ValueError, RuntimeError):
    """A fitted tokenizer is worse than the bounds allow: reconstruction, or tokens of a chunk."""


class FitFailedElsewhereError(VlaprepError, RuntimeError):
    """The process that was computing the fit for everybody failed; its message is repeated."""


class WaitTimeoutError(VlaprepError, TimeoutError, RuntimeError):
    """The process that computes the fit did not finish within the time allowed."""


class RanksDisagreeError(VlaprepError, RuntimeError):
    """The processes of a job do not all hold the same tokenizer."""
