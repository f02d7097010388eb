"""Neighbours as integers that sort by distance at 6 decimals, then by document.

The distance in millionths stands above the document's position in one 64-bit number. Unit vectors
are at most 4 apart, so there is room for far more documents than memory holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.retrieval.grading import DECIMALS

NO_NEIGHBOUR = np.iinfo(np.int64).max  # a key that sorts last


def packed(
    distance: NDArray[np.float64], document: NDArray[np.integer[Any]], document_count: int
) -> NDArray[np.int64]:
    """Integers in the order (distance at 6 decimals, document); far faster to sort."""
    bits = document_count.bit_length()
    return (np.rint(distance * 10.0**DECIMALS).astype(np.int64) << bits) | document


def unpacked(
    keys: NDArray[np.int64], document_count: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Documents and distances of sorted keys; -1 and inf for no neighbour."""
    bits = document_count.bit_length()
    document = (keys & ((1 << bits) - 1)).astype(np.int32)
    distance = (keys >> bits) / 10.0**DECIMALS
    if keys.size and keys[:, -1].max() == NO_NEIGHBOUR:
        missing = keys == NO_NEIGHBOUR
        document[missing], distance[missing] = -1, np.inf
    return document, distance


def each_once(keys: NDArray[np.int64], document_count: int) -> NDArray[np.int64]:
    """Sorted keys (n, k) with each document at its first place, the rest no neighbours."""
    document = keys & ((1 << document_count.bit_length()) - 1)
    by_document = np.argsort(document, axis=1, kind="stable")
    grouped = np.take_along_axis(document, by_document, axis=1)
    repeated = np.zeros(keys.shape, np.bool_)
    repeated[:, 1:] = grouped[:, 1:] == grouped[:, :-1]
    again = np.zeros(keys.shape, np.bool_)
    np.put_along_axis(again, by_document, repeated, axis=1)
    if again.any():
        keys[again] = NO_NEIGHBOUR
        keys.sort(axis=1)
    return keys
