"""How bubblewrap is called: a small world described, an argv made. Pure, and the only place that knows its flags.

The same world is built by the agent (payloads), by provisioning (git, tar) and by pipes (sftp-server). The agent takes
a copy of this file to nodes, so its syntax stays at Python 3.6. Sources are found in the outer world, so a path that is
hidden inside can still be the source of a bind.
"""

from typing import List, NamedTuple, Optional, Sequence, Tuple

# Programs and libraries. On systems with a merged /usr, /bin is a link and the bind follows it.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")

# What programs need of /etc: names, certificates, the linker's cache. Nothing that holds a secret.
ETC = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "default/locale",
    "fonts",
    "gai.conf",
    "gitconfig",
    "group",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "OpenCL",
    "passwd",
    "pki/ca-trust",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "profile",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "vulkan",
)

# The machine's shape, as OpenMP (cores) and the GPU libraries (the PCI tree) read it. Not /sys/fs: cgroups stay out.
SYS_CORES = ("/sys/devices/system",)
SYS_CARDS = ("/sys/bus", "/sys/class", "/sys/dev", "/sys/devices", "/sys/module")

BARE_DEVICES = ("/dev/null", "/dev/urandom")


class Bind(NamedTuple):
    """`source` outside, seen as `path` inside. A missing `optional` one is left out; a `device` keeps its powers."""

    source: str
    path: str
    writable: bool = False
    optional: bool = False
    device: bool = False


class World(NamedTuple):
    """All that a confined program sees. Later binds cover earlier ones, so a child must come after its parent."""

    binds: Tuple[Bind, ...] = ()
    hidden: Tuple[str, ...] = ()  # outer directories that must not show through the system's own (an empty one instead)
    masked: Tuple[str, ...] = ()  # covered by an empty directory after the system, before the binds
    cwd: str = "/"
    network: bool = False
    hostname: str = ""
    temporary: str = ""  # an outer directory that is /tmp inside; empty: a tmpfs
    sysfs: Tuple[str, ...] = ()
    etc: str = ""  # an outer directory that is /etc inside; empty: the short list, bound one by one
    links: Tuple[Tuple[str, str], ...] = ()  # those of SYSTEM that are links outside: target, path
    status_fd: Optional[int] = None  # bubblewrap writes the child's pid and its exit code there, as JSON lines
    die_with_parent: bool = False
    # For programs that speak with strangers: no /proc (nobody pokes into a running program's memory through it), no
    # memory to write into, of /dev what every C library wants, of the system the programs and libraries alone.
    bare: bool = False


def bubblewrap(world: World, argv: Sequence[str], program: str = "bwrap") -> List[str]:
    """The command that runs `argv` in `world`: no privileges, an own pid namespace, nothing but what is named."""
    command = [program, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    # An own session: a script's `kill 0` must not reach the outer bubblewrap, which knows the exit code.
    command += ["--cap-drop", "ALL", "--new-session"]
    if not world.network:
        command.append("--unshare-net")
    if world.hostname:
        command += ["--hostname", world.hostname]
    if world.die_with_parent:
        command.append("--die-with-parent")
    if world.status_fd is not None:
        command += ["--json-status-fd", str(world.status_fd)]
    command += _system(world)
    command += _bare() if world.bare else _furnished(world)
    for path in world.hidden:
        if showing(path):
            command += ["--tmpfs", path] + (["--remount-ro", path] if world.bare else [])
    for path in world.masked:
        command += ["--tmpfs", path]
    for bind in world.binds:
        command += [_flag(bind), bind.source, bind.path]
    # The root itself is a tmpfs of bubblewrap's: read-only, so that nobody fills memory by writing beside his mounts.
    return [*command, "--remount-ro", "/", "--chdir", world.cwd, "--", *argv]


def _furnished(world: World) -> List[str]:
    command = ["--proc", "/proc", "--dev", "/dev"]
    command += ["--bind", world.temporary, "/tmp"] if world.temporary else ["--tmpfs", "/tmp"]
    return [*command, "--symlink", "../tmp", "/var/tmp", "--tmpfs", "/run"]


def _bare() -> List[str]:
    return [word for path in BARE_DEVICES for word in ("--dev-bind", path, path)]


def _system(world: World) -> List[str]:
    links = {path: target for target, path in world.links}
    command: List[str] = []
    for path in SYSTEM:
        if world.bare and path == "/opt":
            continue
        command += ["--symlink", links[path], path] if path in links else ["--ro-bind-try", path, path]
    if world.etc:
        command += ["--ro-bind", world.etc, "/etc"]
    else:
        for name in ETC:
            command += ["--ro-bind-try", "/etc/" + name, "/etc/" + name]
    for path in world.sysfs:
        command += ["--ro-bind-try", path, path]
    return command


def showing(path: str) -> bool:
    """Whether an outer directory would be seen inside by lying below one of the system's own."""
    return any(path == top or path.startswith(top + "/") for top in SYSTEM)


def _flag(bind: Bind) -> str:
    kind = "--dev-bind" if bind.device else "--bind" if bind.writable else "--ro-bind"
    return kind + "-try" if bind.optional else kind
