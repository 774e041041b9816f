"""Snakepit runs machine-learning jobs on the machines people already have."""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from snakepit.client.client import Client

__all__ = ["Client", "__version__"]


def __getattr__(name: str) -> object:
    """`from snakepit import Client` works, and costs nothing where nobody asks for it."""
    if name == "Client":
        from snakepit.client.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
