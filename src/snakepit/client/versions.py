"""The snapshots that a checkout keeps for the jobs that ran them, so that neither gc nor time takes them.

`refs/pit/<job>` is for people: the latest with that number. A checkout may be used with several clusters, and each
counts its jobs from 1; so every snapshot has a second name, `refs/pit/at/<cluster>/<job>`, with the address of its
service in it. What is known by a plain name alone was fetched by somebody, from wherever.
"""

from __future__ import annotations

import re

from snakepit.client.aside import Repository

PLAIN = "refs/pit/"
AT = "refs/pit/at/"
Kept = dict[str, dict[int, str]]  # commits by the address of a service ("": not known) and by job


def ref_of(job: int, service: str = "") -> str:
    return f"{AT}{_encoded(service)}/{job}" if service else f"{PLAIN}{job}"


def keep(repository: Repository, service: str, job: int, commit: str) -> None:
    lines = [f"update {ref} {commit}\n" for ref in (ref_of(job), ref_of(job, service))]
    _change(repository, lines)


def kept(repository: Repository) -> Kept:
    plain, found = _listed(repository)
    for job, commit in plain.items():
        if all(jobs.get(job) != commit for jobs in found.values()):
            found.setdefault("", {})[job] = commit
    return found


def find(repository: Repository, service: str, job: int) -> tuple[str, str] | None:
    """What a job of this service ran, and the ref that has it. Without a service: the latest with that number."""
    found = kept(repository) if service else {"": _listed(repository)[0]}
    for at in (service, ""):
        if job in found.get(at, {}):
            return found[at][job], ref_of(job, at)
    return None


def drop(repository: Repository, gone: Kept) -> None:
    plain, found = _listed(repository)
    refs = [ref_of(job, service) for service, jobs in gone.items() for job in jobs]
    stay = [jobs for service, jobs in found.items() if service not in gone]
    for service, jobs in gone.items():
        for job, commit in jobs.items():
            if service and plain.get(job) == commit and all(other.get(job) != commit for other in stay):
                refs.append(ref_of(job))
    _change(repository, [f"delete {ref}\n" for ref in dict.fromkeys(refs)])


def _change(repository: Repository, lines: list[str]) -> None:
    repository.git.ask("update-ref", "--no-deref", "--stdin", stdin="".join(lines).encode())


def _listed(repository: Repository) -> tuple[dict[int, str], Kept]:
    """By the plain names, and by those of services."""
    plain: dict[int, str] = {}
    found: Kept = {}
    for line in repository.git.text("for-each-ref", "--format=%(refname) %(objectname)", PLAIN).split("\n"):
        name, _, commit = line.partition(" ")
        place, _, number = name.rpartition("/")
        if number.isascii() and number.isdigit():
            if place == PLAIN[:-1]:
                plain[int(number)] = commit
            elif place.startswith(AT):
                found.setdefault(_decoded(place.removeprefix(AT)), {})[int(number)] = commit
    return plain, found


def _encoded(service: str) -> str:
    """As one part of a ref's name, in which much is forbidden."""
    return re.sub(r"[^A-Za-z0-9-]", lambda char: f"={ord(char[0]):02x}", service.removeprefix("http://"))


def _decoded(name: str) -> str:
    text = re.sub(r"=([0-9a-f]{2})", lambda code: chr(int(code[1], 16)), name)
    return text if "://" in text else f"http://{text}"
