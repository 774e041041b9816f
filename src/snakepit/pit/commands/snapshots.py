"""`pit diff`, `pit checkout`, `pit gc`: the versions that jobs ran, found again by the jobs' numbers.

A snapshot that is not in this checkout (it was sent from another one) is fetched from the head.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from snakepit.client import files, sending, versions
from snakepit.client.aside import ATTRIBUTES, NoRepository, Repository, find_repository
from snakepit.client.client import Client
from snakepit.client.entities import job_numbers
from snakepit.client.git import Git
from snakepit.client.reaching import Head, Here
from snakepit.client.snapshot import take
from snakepit.errors import NotFound, SnakepitError
from snakepit.pit import render, session
from snakepit.pit.arguments import Argument, Arguments, Command, Option, UsageError
from snakepit.pit.snapshots import limits, repository_here, reviewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from snakepit.client.reaching import Place

HISTORY = 2  # the snapshot and the commit it was made on, as in the job


def diff(arguments: Arguments) -> int:
    repository = repository_here()
    old = _commit(repository, _number(arguments.word("jobNumber")))
    if arguments.on("base"):
        if arguments.word("otherJob"):
            raise UsageError("either --base or a second job")
        old, new = _base(repository, old), old
    elif arguments.word("otherJob"):
        new = _commit(repository, _number(arguments.word("otherJob")))
    else:
        new = take(repository, reviewer(arguments), limits()).tree
    how = [option for option in ("stat", "name-only") if arguments.on(option)]
    words = ["diff", *(f"--{option}" for option in how), old, new, "--", *arguments.words("path")]
    git = repository.git
    render.flush()
    # git itself shows it: with the user's pager, colours and tools.
    return subprocess.run(git.argv(words), cwd=Path.cwd(), env=_plain(git)).returncode


def _plain(git: Git) -> dict[str, str]:
    environment = git.environment()
    environment.pop("LC_ALL", None)
    return environment


def _base(repository: Repository, commit: str) -> str:
    empty = repository.git.text("hash-object", "-t", "tree", "/dev/null")
    found = repository.git.find("rev-parse", "--verify", "--quiet", f"{commit}^")
    return found if found is not None else empty


def checkout(arguments: Arguments) -> int:
    number, target = _number(arguments.word("jobNumber")), Path(arguments.word("directory"))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise SnakepitError(f"{target} is there already: a checkout needs a new or an empty directory")
    place, ref = _where(number)
    existed = target.is_dir()
    target.mkdir(parents=True, exist_ok=True)
    git = Git(target.resolve(), {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"})
    try:
        git.ask("init", "--quiet", "--template=", "--initial-branch=none", ".")
        (target / ".git" / "info").mkdir()
        (target / ".git" / "info" / "attributes").write_text(ATTRIBUTES)
        sending.fetch(git, place, ref, versions.ref_of(number), HISTORY)
        git.ask("checkout", "--quiet", "--detach", versions.ref_of(number))
    except BaseException:
        _undo(target, existed)
        raise
    render.out(f"Job {number} is in {target}: {git.text('rev-parse', 'HEAD')}\n")
    return 0


def _undo(target: Path, existed: bool) -> None:
    import shutil

    for path in target.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if not existed:
        target.rmdir()


def _where(number: int) -> tuple[Place, str]:
    """The nearest place that has the snapshot, this checkout or the head, and its name there."""
    here = find_repository(Path.cwd())
    if not isinstance(here, NoRepository) and (found := versions.find(here, _service(), number)) is not None:
        return Here(str(here.common)), found[1]  # a path, no address: in those %20 would be a blank
    client = session.open_client()
    _check_snapshot(client.job(number), number)
    return Head(client), versions.ref_of(number)


def _commit(repository: Repository, number: int) -> str:
    found = versions.find(repository, _service(), number)
    if found is not None:
        return found[0]
    client = session.open_client()
    job = client.job(number)
    _check_snapshot(job, number)
    service, commit = client.address.url, str(job["snapshot"])
    sending.fetch(repository.git, Head(client), versions.ref_of(number), versions.ref_of(number, service))
    versions.keep(repository, service, number, commit)
    return commit


def _service() -> str:
    """The address of the one in use; "" where there is none."""
    try:
        return files.load_connection().url
    except SnakepitError:
        return ""


def _check_snapshot(job: dict[str, object], number: int) -> None:
    if job.get("snapshot"):
        return
    if "provisioning" in job:  # only those who may read a job are told
        raise NotFound(f"job {number} has no snapshot: jobs with --origin, -a or -s come without one")
    raise NotFound(f"job {number} is not yours to read")


def gc(arguments: Arguments) -> int:
    """Refs of jobs that the service no longer has; git's own gc frees the space in its time."""
    repository = repository_here()
    kept = versions.kept(repository)
    gone, others = (kept, []) if arguments.on("all") else _removed(kept)
    numbers = sorted(number for jobs in gone.values() for number in jobs)
    if numbers:
        versions.drop(repository, gone)
    total = sum(map(len, kept.values()))
    render.out(f"Dropped {len(numbers)} of {total} snapshots" + (f": {_ranges(numbers)}\n" if numbers else ".\n"))
    for place in others:
        count = len(kept[place])
        render.talk(f"Kept: {count} of {place or 'unknown origin'}, which this service cannot tell about (--all)")
    return 0


def _removed(kept: versions.Kept) -> tuple[versions.Kept, list[str]]:
    """What the service in use says is over, and whose snapshots it knows nothing of."""
    if not kept:
        return {}, []
    client = session.open_client()
    service = client.address.url
    mine = kept.get(service, {})
    gone = {number: commit for number, commit in mine.items() if _is_gone(client, number, commit)}
    return {service: gone} if gone else {}, sorted(place for place in kept if place != service)


def _is_gone(client: Client, number: int, commit: str) -> bool:
    """A service that was set up anew counts from 1 again: its job of that number is another one."""
    try:
        return client.job(number).get("snapshot") not in (None, "", commit)
    except NotFound:
        return True


def _ranges(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _number(word: str) -> int:
    numbers = job_numbers([word])
    if len(numbers) != 1:
        raise UsageError("expected one job number")
    return numbers[0]


ALLOW = (
    Option("--allow-secrets", "takes files that look like secrets too"),
    Option("--allow-large", "takes large files too"),
)
COMMANDS = (
    Command(
        "diff",
        "shows what changed since a job was submitted",
        diff,
        (Argument("jobNumber"), Argument("otherJob", required=False), Argument("path", required=False, many=True)),
        (
            Option("--base", "shows what the job's code had changed, compared with its commit"),
            Option("--stat", "shows only how much changed, by file"),
            Option("--name-only", "shows only the names of changed files"),
            *ALLOW,
        ),
        examples=("pit diff 190", "pit diff 190 195", "pit diff 190 --base --stat"),
        notes="""
Without a second job the files of this directory, as they are now, are compared with those that the job ran.""",
    ),
    Command(
        "checkout",
        "writes the code of a job into a new directory",
        checkout,
        (Argument("jobNumber"), Argument("directory")),
        examples=("pit checkout 190 ../as-it-was",),
    ),
    Command(
        "gc",
        "forgets the local versions of jobs that were removed",
        gc,
        (),
        (Option("--all", "forgets those of all jobs"),),
        examples=("pit gc",),
        notes="""
The versions are the refs refs/pit/<jobNumber> of this checkout. git frees their space in its own time (git gc).
Versions of jobs of other clusters stay, and are named: only their own service knows whether they are over.""",
    ),
)
