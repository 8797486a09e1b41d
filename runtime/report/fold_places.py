"""Converts locations of events to places of a report, for the folds."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...ir.location import Location
from .records import Place

_PLACE = tuple(field.name for field in dataclasses.fields(Place))


def at(where: Location | None) -> dict[str, Any]:
    """The fields of a Place for this location."""
    if where is None:
        return {}
    return {name: getattr(where, name) for name in _PLACE} | {"file": where.shown}
