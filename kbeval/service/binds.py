"""The types of a database's doors, named once: SQLAlchemy itself stays in `store`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbeval.store.database import Connection, Engine  # type: ignore[attr-defined]

__all__ = ["Connection", "Engine"]
