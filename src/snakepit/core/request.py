"""What a user asks for: groups of processes, each with GPUs, cores, memory of its own.

The one door to it: `grammar` holds the values and the text form, `flags` the other spellings, `sizes` the sizes.
"""

from snakepit.core.flags import from_flags, mangled
from snakepit.core.grammar import Group, Request, Shape, Term, parse, render
from snakepit.core.sizes import parse_size

__all__ = ["Group", "Request", "Shape", "Term", "from_flags", "mangled", "parse", "parse_size", "render"]
