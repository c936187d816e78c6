"""How far the long steps of an export are, where no terminal shows it."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

Item = TypeVar("Item")

SILENT_S = 15.0
"""How long a step may say nothing."""


class Track(Protocol):
    """Passes items on and shows how many of `total` have come."""

    def __call__(self, items: Iterable[Item], total: int) -> Iterator[Item]: ...


def in_lines(say: Callable[[str], None]) -> Track:
    """Says the share and the time left every SILENT_S; nothing of a step that is shorter."""

    def track(items: Iterable[Item], total: int) -> Iterator[Item]:
        start = said = time.monotonic()
        for done, item in enumerate(items, start=1):
            yield item
            now = time.monotonic()
            if done < total and now - said >= SILENT_S:
                left = (now - start) / done * (total - done)
                say(f"  {done / total:.0%}, about {left:.0f} s left")
                said = now

    return track
