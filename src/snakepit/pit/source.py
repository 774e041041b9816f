"""The code that goes along with a job, as `pit run` sends and shows it. A value; `code` decides which it is."""

from __future__ import annotations

from collections.abc import Callable


class Source:
    """`fields` go on the wire, `lines` and `shown` to the user; `arrived` is called once the service has it. `script`
    takes the place of the user's where it has to change directory first."""

    __slots__ = ("arrived", "fields", "lines", "script", "shown")

    def __init__(
        self,
        fields: dict[str, object],
        lines: list[tuple[str, str]],
        shown: dict[str, object],
        arrived: Callable[[], None] = lambda: None,
        script: str | None = None,
    ) -> None:
        self.fields, self.lines, self.shown, self.arrived, self.script = fields, lines, shown, arrived, script
