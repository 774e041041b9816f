"""The language of requests: `2:[8:gtx1070]`, read by `parse`, written by `render`.

    request := group ("," group)*
    group   := [count ":"] "[" [term ("," term)*] "]" ["@" names]
    term    := [amount ":"] names ["/" size]
    names   := name (("|" or "+") name)*

A word is read first; what follows it (':' or not) tells an amount from a name, since both may start with a digit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

from snakepit.core.sizes import MAX_SIZE_BYTES, parse_size, render_size
from snakepit.errors import BadRequest, RequestSyntax

MAX_TEXT = 4096
MAX_PROCESSES = 4096
MAX_CARDS = 1024  # of one process
MAX_CPUS = 65536
SHARE_DIGITS = 4

_TOKEN = re.compile(r"[ \t\r\n]*([A-Za-z0-9._-]+|[][,:/@|+])")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RESERVED_ALONE = ("cpu", "mem", "node")


@dataclass(frozen=True, slots=True)
class Term:
    """So many cards of one of these names; a Fraction is a share of one card.

    `size_bytes` is what each card must have at least, or, of a share, the memory reserved on it.
    """

    amount: int | Fraction
    names: tuple[str, ...]
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """What one process gets. Cores and memory of 0 are not reserved."""

    terms: tuple[Term, ...] = ()
    cpus: int = 0
    mem_bytes: int = 0
    whole_node: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """`count` processes of one shape, on any of `nodes` where some are named."""

    count: int
    shape: Shape
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    groups: tuple[Group, ...]

    @property
    def process_count(self) -> int:
        return sum(group.count for group in self.groups)


def parse(text: str) -> Request:
    """Reads a request; raises RequestSyntax, which points at the character."""
    if len(text) > MAX_TEXT:
        shown = text[:60]
        raise RequestSyntax(f"a request has at most {MAX_TEXT} characters", _printable(shown) + "…", len(shown))
    return _Parser(text).request()


def render(request: Request) -> str:
    """The canonical spelling: `parse(render(request)) == request`."""
    return ",".join(_render_group(group) for group in request.groups)


def _render_group(group: Group) -> str:
    shape = group.shape
    parts = [_render_term(term) for term in shape.terms]
    if shape.cpus:
        parts.append(f"{shape.cpus}:cpu")
    if shape.mem_bytes:
        parts.append(f"{render_size(shape.mem_bytes)}:mem")
    if shape.whole_node:
        parts.append("node")
    count = f"{group.count}:" if group.count != 1 else ""
    where = f"@{'+'.join(group.nodes)}" if group.nodes else ""
    return f"{count}[{','.join(parts)}]{where}"


def _render_term(term: Term) -> str:
    amount = "" if term.amount == 1 else f"{render_amount(term.amount)}:"
    size = "" if term.size_bytes is None else f"/{render_size(term.size_bytes)}"
    return f"{amount}{'|'.join(term.names)}{size}"


def render_amount(amount: int | Fraction) -> str:
    if isinstance(amount, int):
        return str(amount)
    scaled = amount * 10**SHARE_DIGITS
    if scaled.denominator != 1:
        return str(amount)
    return f"0.{int(scaled):0{SHARE_DIGITS}}".rstrip("0")


def _printable(text: str) -> str:
    """Same length, one line: so that the caret below it stands under the right character."""
    return "".join(character if character.isprintable() else " " for character in text)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str  # empty at the end
    position: int


class _Parser:
    """One token of lookahead (a second one to tell an amount from a name), no backtracking."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._at = 0

    def request(self) -> Request:
        if not self._peek().text:
            self._fail("the request is empty; [] asks for one process without GPUs", self._peek())
        groups, processes = [], 0
        while True:
            start = self._peek()
            groups.append(self._group())
            processes += groups[-1].count
            if processes > MAX_PROCESSES:
                self._fail(f"a request has at most {MAX_PROCESSES} processes in all", start)
            if not self._accept(","):
                break
        if (rest := self._peek()).text:
            self._fail("expected ',' and another process, or the end of the request", rest)
        return Request(tuple(groups))

    def _group(self) -> Group:
        first, count = self._peek(), 1
        if _is_word(first.text):
            if not first.text.isdigit():
                self._fail(f"a process stands in brackets: [{first.text}]", first)
            self._next()
            count = self._whole(first, "count", MAX_PROCESSES)
            self._expect(":", "expected ':' after the count")
        self._expect("[", "expected '[' where a process begins")
        shape = self._shape()
        nodes = self._names("node")[0] if self._accept("@") else ()
        return Group(count, shape, nodes)

    def _shape(self) -> Shape:
        terms: list[Term] = []
        cpus, mem_bytes, whole_node, cards = 0, 0, False, 0
        if self._accept("]"):
            return Shape()
        while True:
            start = self._peek()
            match self._term():
                case ("cpu", int(amount)):
                    cpus += amount
                case ("mem", int(amount)):
                    mem_bytes += amount
                case ("node", _):
                    whole_node = True
                case Term() as term:
                    terms.append(term)
                    cards += term.amount if isinstance(term.amount, int) else 1
            if cpus > MAX_CPUS or mem_bytes > MAX_SIZE_BYTES or cards > MAX_CARDS:
                self._fail("this is more than any machine has", start)
            if not self._accept(","):
                break
        self._expect("]", "expected ',' or ']'")
        return Shape(tuple(terms), cpus, mem_bytes, whole_node)

    def _term(self) -> Term | tuple[str, int]:
        amount = None
        if _is_word(self._peek().text) and self._peek(1).text == ":":
            amount = self._next()
            self._next()
        names, start = self._names("resource")
        reserved = next((name for name in names if name in _RESERVED_ALONE), None)
        if reserved is not None:
            if len(names) > 1:
                self._fail(f"'{reserved}' has no alternatives", start)
            if self._peek().text == "/":
                self._fail(f"'{reserved}' takes no size here", self._peek())
            return reserved, self._reserved_amount(reserved, amount, start)
        size_bytes = self._size(self._next()) if self._accept("/") else None
        return Term(self._cards(amount), names, size_bytes)

    def _reserved_amount(self, name: str, amount: _Token | None, start: _Token) -> int:
        if name == "mem":
            if amount is None:
                self._fail("say how much memory: 64G:mem", start)
            return self._size(amount)
        if amount is None:
            return 1
        if name == "cpu" and "." in amount.text:
            self._fail("cores come whole", amount)
        whole = self._whole(amount, "number of cores" if name == "cpu" else "amount", MAX_CPUS)
        if name == "node" and whole != 1:
            self._fail(f"a process is on one node; {whole} of them are {whole}:[node]", amount)
        return whole

    def _cards(self, amount: _Token | None) -> int | Fraction:
        if amount is None:
            return 1
        if "." not in amount.text:
            return self._whole(amount, "amount", MAX_CARDS)
        if not re.fullmatch(rf"[0-9]{{1,9}}\.[0-9]{{1,{SHARE_DIGITS}}}", amount.text):
            self._fail(f"expected a whole number or a share like 0.5 (at most {SHARE_DIGITS} decimals)", amount)
        share = Fraction(amount.text)
        if share == 0:
            self._fail("a share is more than zero", amount)
        if share > 1 and share.denominator != 1:
            self._fail("a share is below one: whole cards, or a part of a single one", amount)
        return (
            share if share.denominator != 1 else self._whole(_Token(str(share), amount.position), "amount", MAX_CARDS)
        )

    def _whole(self, token: _Token, what: str, limit: int) -> int:
        if not token.text.isdigit():
            self._fail(f"expected a whole number as {what}", token)
        digits = token.text.lstrip("0")
        if not digits:
            self._fail(f"the {what} starts at 1", token)
        if len(digits) > len(str(limit)) or int(digits) > limit:
            self._fail(f"the {what} is at most {limit}", token)
        return int(digits)

    def _size(self, token: _Token) -> int:
        if not _is_word(token.text):
            self._fail("expected a size like 24G", token)
        try:
            size_bytes = parse_size(token.text)
        except BadRequest as problem:
            self._fail(problem.message, token)
        if not size_bytes:
            self._fail("a size is more than zero", token)
        return size_bytes

    def _names(self, what: str) -> tuple[tuple[str, ...], _Token]:
        start = self._peek()
        names: dict[str, None] = {}
        while True:
            word = self._next()
            if not _is_word(word.text):
                self._fail(f"expected the name of a {what}", word)
            if not _NAME.fullmatch(word.text):
                self._fail("a name starts with a letter or digit", word)
            # Reserved words mean the same in any case, so that [GPU] and [gpu] wait in one line.
            reserved = what == "resource" and word.text.lower() in ("gpu", *_RESERVED_ALONE)
            names[word.text.lower() if reserved else word.text] = None
            if not (self._accept("|") or self._accept("+")):
                return tuple(names), start

    def _split(self) -> list[_Token]:
        tokens, end, size = [], 0, len(self._text.rstrip(" \t\r\n"))
        while end < size:
            match = _TOKEN.match(self._text, end)
            if match is None:
                stray = end + len(self._text[end:]) - len(self._text[end:].lstrip(" \t\r\n"))
                shown = f"'{self._text[stray]}'" if self._text[stray].isprintable() else "this character"
                self._fail(f"{shown} has no place in a request", _Token("", stray))
            tokens.append(_Token(match[1], match.start(1)))
            end = match.end()
        tokens.append(_Token("", len(self._text)))
        return tokens

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _next(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._peek().text != text:
            return False
        self._at += 1
        return True

    def _expect(self, text: str, problem: str) -> None:
        if not self._accept(text):
            self._fail(problem, self._peek())

    def _fail(self, problem: str, token: _Token) -> NoReturn:
        raise RequestSyntax(problem, _printable(self._text), token.position)


def _is_word(text: str) -> bool:
    return bool(text) and text not in "[],:/@|+"
