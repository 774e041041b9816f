"""The ways in which the agent says no, by the names of the head's three failures."""


class Refusal(Exception):
    """`kind` is NotNow (try elsewhere or later) or Rejected (never)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


def not_now(message: str) -> Refusal:
    return Refusal("NotNow", message)


def rejected(message: str) -> Refusal:
    return Refusal("Rejected", message)
