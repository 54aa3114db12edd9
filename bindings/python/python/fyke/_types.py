"""Types of values that fyke takes and gives, for annotations."""

from __future__ import annotations

from typing import Literal, TypedDict, Union

Change = Union[tuple[Literal["add", "set"], str], tuple[Literal["remove"], int]]
"""A change of filters: ("add", text), ("set", text) or ("remove", number)."""

NodeStats = TypedDict(
    "NodeStats",
    {
        "name": str,
        "class": str,
        "text": str,
        "arrived": int,
        "passed": int,
        "rejected": int,
        "taken": int,
        "lost": int,
        "counters": dict[str, float],
    },
)
"""Counts of a node of a graph: arrived = passed + rejected + taken + lost."""


class Stats(TypedDict):
    """Counts of a graph: seen = accepted + rejected + taken + the sum of lost."""

    seen: int
    accepted: int
    rejected: int
    taken: int
    lost: dict[str, int]
    nodes: list[NodeStats]


class Running(TypedDict):
    """A running fyke."""

    pid: int
    source: str
    live: bool
    link: str
    command_line: list[str]
