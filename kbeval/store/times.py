"""Instants: aware UTC in Python, ISO 8601 with a zone wherever they are text."""

from __future__ import annotations

from datetime import UTC, datetime


def utc(value: str | datetime) -> tuple[datetime, bool]:
    """The instant in UTC, and whether its zone was missing (then it is taken as UTC).

    Raises `ValueError` for a text that is no ISO 8601 time.

    >>> utc("2024-01-01T13:30:00+08:00")
    (datetime.datetime(2024, 1, 1, 5, 30, tzinfo=datetime.timezone.utc), False)
    """
    time = value if isinstance(value, datetime) else datetime.fromisoformat(value.strip())
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC), True
    return time.astimezone(UTC), False


def utc_text(time: datetime) -> str:
    """Fixed width, so that text order is time order.

    >>> utc_text(utc("2024-01-01T13:30:00+08:00")[0])
    '2024-01-01T05:30:00.000000Z'
    """
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
