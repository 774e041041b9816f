"""What a node offers: GPUs (or anything declared), cores, memory, slots; and how a name means a model.

A resource is known by its UUID where it has one. Nothing here says who uses it: that is `placement.Use`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

RESERVED = frozenset({"gpu", "cpu", "mem", "node"})
VENDOR_WORDS = frozenset({"nvidia", "amd", "intel", "geforce", "tesla", "quadro", "radeon", "instinct"})


@dataclass(frozen=True, slots=True)
class Resource:
    """One card (or declared thing) of a node, at its index there."""

    index: int
    name: str  # the full model name, "NVIDIA GeForce GTX 1070"
    kind: str = "cuda"  # cuda, rocm, or the word an admin declared
    uuid: str = ""  # empty where declared
    memory_bytes: int = 0  # 0: not known
    declared: bool = False
    groups: frozenset[str] = field(default_factory=frozenset)  # empty: for everyone


@dataclass(frozen=True, slots=True)
class Node:
    """A place where processes run, as the scheduler sees it."""

    name: str
    cpus: int = 1
    mem_bytes: int = 0
    slots: int = 8
    resources: tuple[Resource, ...] = ()
    online: bool = True
    drained: bool = False
    drain_reason: str = ""


def words(name: str) -> tuple[str, ...]:
    """`NVIDIA GeForce RTX 3090` gives ("nvidia", "geforce", "rtx", "3090")."""
    return tuple(word for word in re.split(r"[^a-z0-9]+", name.lower()) if word)


def named(resource: Resource, name: str, aliases: Mapping[str, str]) -> bool:
    """Whether `name` (an alias, or consecutive words of the model's own name) means this resource.

    `aliases` maps alias id to the exact resource name.
    """
    if name.lower() == "gpu":
        return resource.kind in ("cuda", "rocm", "gpu")
    if name in aliases:
        return aliases[name] == resource.name
    if name == resource.name:
        return True
    wanted = "".join(word for word in words(name) if word not in VENDOR_WORDS)
    own = [word for word in words(resource.name) if word not in VENDOR_WORDS]
    if not wanted:
        return False
    return any("".join(own[start:end]) == wanted for start in range(len(own)) for end in range(start + 1, len(own) + 1))
