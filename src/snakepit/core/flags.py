"""The request by other ways: as flags, which no shell eats, and as words that a shell did eat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from snakepit.core.grammar import Group, Request, Shape, Term, parse, render
from snakepit.errors import BadRequest, RequestSyntax


def from_flags(
    gpus: str | int | None = None,
    vram: str | None = None,
    model: str | None = None,
    cpus: str | int | None = None,
    mem: str | None = None,
    procs: str | int | None = None,
    nodes: str | Iterable[str] | None = None,
    whole_node: bool = False,
) -> Request:
    """The request that flags mean. `--vram` or `--model` alone ask for one GPU; `--gpus 0` for none."""
    names = _names("--model", model)
    term = _term(gpus, vram, names)
    cores = _one("--cpus", cpus, f"[{cpus}:cpu]").cpus if cpus is not None else 0
    mem_bytes = _one("--mem", mem, f"[{mem}:mem]").mem_bytes if mem is not None else 0
    count = _count(procs) if procs is not None else 1
    where = nodes if isinstance(nodes, str) or nodes is None else ",".join(nodes)
    shape = Shape((term,) if term else (), cores, mem_bytes, whole_node)
    return Request((Group(count, shape, _names("--nodes", where)),))


def _term(gpus: str | int | None, vram: str | None, names: tuple[str, ...]) -> Term | None:
    if gpus is not None and re.fullmatch(r"0+", str(gpus).strip()):
        for flag, given in (("--vram", vram is not None), ("--model", bool(names))):
            if given:
                raise BadRequest(f"{flag} says which GPU, but --gpus 0 asks for none")
        return None
    amount: int | Fraction = 1
    if gpus is not None:
        amount = _one("--gpus", gpus, f"[{gpus}:gpu]").terms[0].amount
    elif vram is None and not names:
        return None
    size_bytes = _one("--vram", vram, f"[gpu/{vram}]").terms[0].size_bytes if vram is not None else None
    return Term(amount, names or ("gpu",), size_bytes)


def _names(flag: str, text: str | None) -> tuple[str, ...]:
    """`a100,h100`; the grammar's own separators are fine too."""
    if text is None:
        return ()
    alternatives = re.sub(r"[,|]", "+", text)
    if re.search(r"[][:/@]", alternatives):
        raise BadRequest(f"{flag}: expected names separated by ','")
    if flag == "--nodes":
        return _group(flag, f"[]@{alternatives}").nodes
    shape = _group(flag, f"[{alternatives}]").shape
    if not shape.terms:
        raise BadRequest(f"{flag} names GPUs; cores, memory and nodes have flags of their own")
    return shape.terms[0].names


def _count(procs: str | int) -> int:
    if not str(procs).strip().isdecimal():
        raise BadRequest("--procs: expected a whole number")
    return _group("--procs", f"{procs}:[]").count


def _one(flag: str, value: str | int, text: str) -> Shape:
    if re.search(r"[][,:/@|+]", str(value)):
        raise BadRequest(f"{flag}: expected a single value")
    return _group(flag, text).shape


def _group(flag: str, text: str) -> Group:
    """Flags are read by the grammar itself, so that both spellings always mean the same."""
    try:
        return parse(text).groups[0]
    except RequestSyntax as problem:
        raise BadRequest(f"{flag}: {problem.problem}") from None


def mangled(argv_words: Sequence[str]) -> str | None:
    """What to type instead, when `argv_words` (what stood where the request belongs) are what a shell left of one.

    None where they are a request as they are, or look like nothing of the kind. What cannot be known any more (the
    rest after a pipe, a request that became the name of a file) is shown as `…`.
    """
    words = [word for word in argv_words if word]
    if not words or (len(words) == 1 and _parses(words[0])):
        return None
    joined = " ".join(words)
    for candidate in _mended(joined, words):
        if _parses(candidate):
            return _quoted(render(parse(candidate)))
    if re.fullmatch(r"([0-9]+:)?\[[^\]]*", joined):  # the shell took '|' for a pipe, or '>' '&' ';' for its own
        return _quoted(f"{joined.rstrip()}|…]")
    if all(re.fullmatch(r"([0-9]+:)?[A-Za-z0-9:,._-](@.*)?", word) for word in words):
        return _quoted("[…]")  # brackets are a pattern for one character: a file of that name stood in the way
    return None


def _mended(joined: str, words: Sequence[str]) -> Iterable[str]:
    """Guesses from the likeliest on: blanks that split it, braces or parentheses, brackets that are missing."""
    yield joined
    yield joined.translate(str.maketrans("{}()", "[][]"))
    if len(words) == 1 and len(joined.rpartition(":")[2]) > 1:
        if match := re.fullmatch(r"([0-9]+):([0-9.]+:.+)", joined):
            yield f"{match[1]}:[{match[2]}]"
        body, at, where = joined.partition("@")
        yield f"[{body}]{at}{where}"


def _parses(text: str) -> bool:
    try:
        parse(text)
    except RequestSyntax:
        return False
    return True


def _quoted(text: str) -> str:
    return f"'{text}'"
