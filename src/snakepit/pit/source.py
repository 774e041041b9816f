"""The code that goes along with a job, as `pit run` sends and shows it. A value; `code` decides which it is."""

from __future__ import annotations

from collections.abc import Callable


class Source:
    """`fields` go on the wire, `lines` and `shown` to the user; `tidy` removes what was only there to get
    it to the service. `script` takes the place of the user's where it has to change directory first. `submitted` hears
    the number of the job."""

    __slots__ = ("fields", "lines", "script", "shown", "submitted", "tidy")

    def __init__(
        self,
        fields: dict[str, object],
        lines: list[tuple[str, str]],
        shown: dict[str, object],
        tidy: Callable[[], None] = lambda: None,
        script: str | None = None,
        submitted: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.fields, self.lines, self.shown, self.tidy, self.script = fields, lines, shown, tidy, script
        self.submitted = submitted
