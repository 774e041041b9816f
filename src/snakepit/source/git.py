"""Code from a git repository: fetched into the user's own cache of that origin, copied into a real checkout, patched.

git runs confined, with a configuration of our own, and gets the address without credentials: those lie in a private
file that git's own credential store reads. So neither argv nor any configuration that stays behind ever holds them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from snakepit.core.origin import Origin
from snakepit.errors import BadRequest, SnakepitError
from snakepit.source.layout import held
from snakepit.source.patch import hollow_file, mended, strip_level
from snakepit.source.sandbox import Finished, Sandbox
from snakepit.source.sweep import remove_tree

REMOTE_PROTOCOLS = ("https", "http", "ssh", "git")
SSH = "ssh -F /dev/null -o BatchMode=yes -o IdentityAgent=none -o ConnectTimeout=30 -o StrictHostKeyChecking=accept-new"
LOCK_PAUSE_S = 0.05

# Everything that a repository could make git run is off; nothing is packed in the background behind our back.
CONFIG = """\
[safe]
	directory = *
[core]
	hooksPath = /dev/null
	fsmonitor = false
[init]
	defaultBranch = main
	templateDir =
[gc]
	auto = 0
	autoDetach = false
[maintenance]
	auto = false
[advice]
	detachedHead = false
[protocol]
	allow = never
"""

_FULL_HASH = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]*")
_DAMAGE = re.compile(
    r"not a git repository|loose object|is corrupt|corrupted|unable to read|bad object|object file .* is empty|"
    r"invalid sha1 pointer|could not parse (?:object|commit)|packfile .* cannot be|is (?:far )?too (?:short|small)|"
    r"does not match index|missing (?:blob|tree|commit)|could not read [0-9a-f]{40}|bad (?:tree|config)|inflate:|"
    r"\.lock': File exists|not a valid object|unresolved delta|did not send all necessary objects",
    re.IGNORECASE,
)
_NO_ACCESS = re.compile(
    r"could not read (?:Username|Password)|Authentication failed|Permission denied|prompts disabled"
)


class Damaged(SnakepitError):
    """The cache, not the remote, is at fault: worth a second try from nothing."""


@dataclass(frozen=True, slots=True)
class Wanted:
    origin: Origin
    hash: str  # a commit (or branch or tag); empty: what the remote calls HEAD
    diff: bytes
    cache: Path


def cache_dir(root: Path, user: str, origin: Origin) -> Path:
    """By user and address; a new token does not make a new cache."""
    return root / "cache" / user / hashlib.sha256(origin.shown.encode()).hexdigest()[:40]


async def check_out(wanted: Wanted, src: Path, box: Sandbox) -> None:
    """Fills the empty directory `src` with a checkout that borrows nothing from the cache."""
    if wanted.hash and (not _REVISION.fullmatch(wanted.hash) or ".." in wanted.hash):
        raise BadRequest(f"Not a commit: {wanted.hash[:100]!r}")
    git = _Git(wanted, src, box)
    git.configure()
    async with locked(wanted.cache.with_name(wanted.cache.name + ".lock"), box):
        try:
            await git.fill()
        except Damaged:
            box.say("The cached copy of this repository is damaged: fetching it anew")
            git.suspicious = False
            await asyncio.to_thread(git.start_over)
            await git.fill()
    if wanted.diff.strip():
        await apply(box, src, wanted.diff, f"commit {wanted.hash or 'HEAD'} of {wanted.origin.shown}")
    await git.submodules()
    await git.large_files()


async def apply(box: Sandbox, src: Path, diff: bytes, onto: str, tracked: bool = True) -> None:
    """Applies a diff of either spelling. With the index first, so that new files are tracked and submodules move; a
    checkout whose line ends git rewrote never matches its index, and takes the plain way."""
    if hollow := hollow_file(diff):
        raise SnakepitError(f"The diff says that {hollow} changed, but does not hold it (a binary file): push it first")
    words = ["git", "apply", "--whitespace=nowarn", f"-p{strip_level(diff)}"]
    box.say(f"Applying a diff of {len(diff)} bytes")
    done = Finished(1, "", ())
    for more in (["--index"], []) if tracked else ([],):
        done = await box.run(
            [*words, *more, "-"], cwd=src, writable=[src], stdin=mended(diff), env=environment_of(box, src), quiet=True
        )
        if done.code == 0:
            return
    raise full_disk(done) or SnakepitError(f"The diff does not apply to {onto}: {done.words}")


class _Git:
    """The steps of one checkout."""

    def __init__(self, wanted: Wanted, src: Path, box: Sandbox) -> None:
        self.origin, self.hash, self.cache = wanted.origin, wanted.hash, wanted.cache
        self.src, self.box = src, box
        self.suspicious = True  # a complaint about an object counts even where git found a way around it
        self.shown = [Path(wanted.origin.path).resolve()] if wanted.origin.scheme == "file" else []
        allowed = (*REMOTE_PROTOCOLS, "file") if wanted.origin.scheme == "file" else REMOTE_PROTOCOLS
        self.remote = {"GIT_ALLOW_PROTOCOL": ":".join(allowed)}

    def configure(self) -> None:
        config = CONFIG
        if self.origin.credentials:
            store = self.box.home / "credentials"
            user, _, password = self.origin.credentials.partition(":")
            write_private(store, f"{self.origin.scheme}://{user}:{password}@{self.origin.host}\n")
            config += f'[credential]\n\thelper = "store --file={_quoted(_shell_quoted(str(store)))}"\n'
        write_private(self.box.home / "gitconfig", config)

    async def fill(self) -> None:
        if not (self.cache / "HEAD").is_file():
            await asyncio.to_thread(remove_tree, self.cache)
            self.cache.mkdir(parents=True, exist_ok=True)
            await self._cached("init", "--quiet", "--bare", ".")
        _clear_remains(self.cache)
        commit = await self._commit()
        self.box.say(f"Checking out {commit}")
        clone = ["clone", "--quiet", "--local", "--no-hardlinks", "--no-checkout", str(self.cache), str(self.src)]
        await self._must(clone, self.src, readable=[self.cache], env={"GIT_ALLOW_PROTOCOL": "file"})
        await self._must(["remote", "set-url", "origin", self.origin.shown], self.src)
        await self._must(["checkout", "--quiet", "--detach", commit], self.src)

    def start_over(self) -> None:
        remove_tree(self.cache)
        remove_tree(self.src)
        self.src.mkdir()

    async def submodules(self) -> None:
        if (self.src / ".gitmodules").is_file():
            self.box.say("Fetching submodules")
            update = ["git", "submodule", "update", "--quiet", "--init", "--recursive"]
            done = await self._run(update, self.src, network=True, env=self.remote)
            if done.code != 0:
                where = f"the submodules of {self.origin.shown}"
                raise full_disk(done) or SnakepitError(f"Cannot fetch {where}: {done.words}")

    async def large_files(self) -> None:
        """Git LFS, in the checkout and its submodules. The contents are cached beside the repository."""
        if (await self._run(["bash", "-c", USES_LFS], self.src)).code != 0:
            return
        if shutil.which("git-lfs", path=self.box.path) is None:
            self.box.say("This repository uses Git LFS, which is not installed on the head: large files stay pointers")
            return
        self.box.say("Fetching large files (Git LFS)")
        self.cache.mkdir(parents=True, exist_ok=True)
        env = {**self.remote, "LFS_CACHE": str(self.cache / "lfs")}
        done = await self._run(["bash", "-c", PULL_LFS], self.src, self.cache, network=True, env=env)
        if done.code != 0:
            raise full_disk(done) or SnakepitError(f"Cannot fetch the large files of {self.origin.shown}: {done.words}")

    async def _commit(self) -> str:
        """The full hash of what is wanted, from the cache alone where it is there."""
        if _FULL_HASH.fullmatch(self.hash) and (found := await self._find(self.hash)):
            return found
        self.box.say(f"Fetching {self.origin.shown}")
        everything = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
        done = await self._fetch("--prune", *everything)
        if done.code != 0:
            raise full_disk(done) or self._unfetched(done)
        await self._cached("-c", "gc.auto=6700", "gc", "--auto", "--quiet")
        if not self.hash and (await self._fetch("--no-tags", "HEAD")).code == 0:
            return await self._find("FETCH_HEAD") or self._absent()
        if found := await self._find(self.hash):
            return found
        # Neither a branch nor a tag leads there: a server may still hand it out by its name (a pull request, say).
        if _FULL_HASH.fullmatch(self.hash) and (await self._fetch("--no-tags", self.hash, quiet=True)).code == 0:
            return await self._find(self.hash) or self._absent()
        return self._absent()

    async def _fetch(self, option: str, *refs: str, quiet: bool = False) -> Finished:
        words = ["git", "fetch", "--quiet", "--force", "--no-recurse-submodules", option, self.origin.shown, *refs]
        return await self._run(words, self.cache, network=True, env=self.remote, quiet=quiet)

    async def _find(self, revision: str) -> str:
        words = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"]
        done = await self._run(words, self.cache, quiet=True)
        return done.out.strip() if done.code == 0 else ""

    def _absent(self) -> str:
        what = f"Commit {self.hash}" if self.hash else "A default branch"
        raise SnakepitError(f"{what} was not found on the remote {self.origin.shown}: push it first")

    def _unfetched(self, done: Finished) -> SnakepitError:
        hint = ""
        if _NO_ACCESS.search(done.words):
            hint = " (the head has no keys of its own: use https with a token in the address, or send an archive)"
        return SnakepitError(f"Cannot fetch {self.origin.shown}: {done.words}{hint}")

    async def _cached(self, *words: str) -> None:
        await self._must(list(words), self.cache)

    async def _must(
        self, words: list[str], place: Path, readable: list[Path] | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        done = await self._run(["git", *words], place, readable=readable, env=env)
        if done.code != 0:
            raise full_disk(done) or SnakepitError(f"Cannot check out {self.origin.shown}: {done.words}")

    async def _run(
        self,
        argv: list[str],
        place: Path,
        *more: Path,
        readable: list[Path] | None = None,
        network: bool = False,
        env: Mapping[str, str] | None = None,
        quiet: bool = False,
    ) -> Finished:
        done = await self.box.run(
            argv,
            cwd=place,
            writable=[place, *more],
            readable=[*(readable or []), *self.shown],
            network=network,
            env={**environment_of(self.box, place), **(env or {})},
            quiet=quiet,
        )
        ours = [line for line in done.last if not line.startswith("remote:")]
        if self.suspicious and _DAMAGE.search("\n".join(ours)):
            raise Damaged(f"Cannot check out {self.origin.shown}: {done.words}")
        return done


# Fixed shell texts, handed to bash and to `submodule foreach`: nothing of a user is ever pasted in.
HAS_LFS = 'git grep -q filter=lfs -- ":(glob)**/.gitattributes"'
# Contents are kept in the cache. By a link: the setting lfs.storage would be taken for the place in a local remote too.
_LINKED = 'store=$(git rev-parse --absolute-git-dir)/lfs && rm -rf "$store" && ln -s "$LFS_CACHE" "$store"'
_FETCH = f'git lfs install --local --skip-repo >/dev/null && {_LINKED} && git lfs pull && rm "$store"'
_PULL = f"if {HAS_LFS}; then {_FETCH}; fi"
_EACH = "git submodule foreach --quiet --recursive"
USES_LFS = f"{HAS_LFS} || [ -n \"$({_EACH} '{HAS_LFS} && echo yes || :')\" ]"
PULL_LFS = f"mkdir -p \"$LFS_CACHE\" && {_PULL} && {_EACH} '{_PULL}'"


def environment_of(box: Sandbox, place: Path) -> dict[str, str]:
    return {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(box.home / "gitconfig"),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "SSH_ASKPASS": "/bin/false",
        "GIT_SSH_COMMAND": f"{SSH} -o UserKnownHostsFile={_shell_quoted(str(box.home / 'known_hosts'))}",
        "GIT_CEILING_DIRECTORIES": str(place.parent),
        "GIT_LFS_SKIP_SMUDGE": "1",
    }


def full_disk(done: Finished) -> SnakepitError | None:
    if any(words in done.words for words in ("No space left on device", "Out of diskspace", "Disk quota exceeded")):
        return SnakepitError("The disk of the head is full: the code could not be fetched")
    return None


@contextlib.asynccontextmanager
async def locked(lock: Path, box: Sandbox) -> AsyncIterator[None]:
    """One at a time. Asked again and again instead of waiting in a thread that no cancel could end."""
    waited = False
    while True:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with held(lock) as mine:
            if mine:
                os.utime(lock)
                yield
                return
        if not waited:
            box.say("Waiting for the repository, which is in use")
        waited = True
        await asyncio.sleep(LOCK_PAUSE_S)


def _clear_remains(cache: Path) -> None:
    """What a killed git leaves; under our lock nobody else can be at it."""
    for pattern in ("*.lock", "refs/**/*.lock", "objects/pack/tmp_*", "objects/??/tmp_obj_*"):
        for path in cache.glob(pattern):
            path.unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _quoted(text: str) -> str:
    """Inside the double quotes of a git configuration."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _shell_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
