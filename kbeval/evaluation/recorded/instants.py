"""When a look-up began: any time a record may hold -> an instant in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kbeval.evaluation.reading.values import RowProblem, shown
from kbeval.store.times import utc

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3), (0.0, 1.0))  # numbers from here, a second's worth


def instant_of(value: object) -> tuple[datetime | None, timedelta | None]:
    """The instant in UTC, and the offset it was written with; None, None where there is none.

    Without a zone the time is taken as UTC, and the offset is None. A number counts from 1970 in
    seconds, milliseconds, micro- or nanoseconds, whichever its size says (true for any time
    between 1973 and 5138). Raises `RowProblem`.

    >>> instant_of("2024-01-01T13:30:00+08:00")[0] == instant_of("1704087000000000000")[0]
    True
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return None, None
    try:
        if isinstance(value, str) and not value.strip().isdigit():
            return _written(datetime.fromisoformat(value.strip()))
        if isinstance(value, datetime):
            return _written(value)
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return _counted(float(value) if isinstance(value, float) else int(value))
    except (ValueError, OverflowError):
        pass
    raise RowProblem(
        f"the time {shown(value)} cannot be read; ISO 8601 is expected, as 2024-01-01T05:30:00Z"
    )


def _written(time: datetime) -> tuple[datetime, timedelta | None]:
    return utc(time)[0], time.utcoffset()


def _counted(number: float) -> tuple[datetime, timedelta]:
    """A negative number, or a date such as 20240101, is no count since 1970."""
    if number < 1e8:
        raise ValueError(number)
    per_second = next(unit for least, unit in _UNITS if number >= least)
    whole, rest = divmod(number, int(per_second))
    return EPOCH + timedelta(seconds=whole, microseconds=rest / per_second * 1e6), timedelta(0)
