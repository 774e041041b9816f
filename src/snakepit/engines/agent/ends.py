"""How a process ended, in one word and one line for people. Pure: what was seen goes in, the verdict comes out."""

from typing import Any, Dict, Optional

from snakepit.engines.agent.procs import signal_name

EXIT, SIGNAL, OUT_OF_MEMORY, LOST = "exit", "signal", "out of memory", "lost"  # the words of core.job.Cause


def judge(
    status: Dict[str, Any], stop: Optional[Dict[str, Any]], out_of_memory: bool, mem_bytes: int, first_line: str
) -> Dict[str, Any]:
    """`status` is the holder's word, `stop` ours (we sent the signal), `first_line` the beginning of the output."""
    code = status.get("code", status.get("exit-code"))
    words = _of_code(code, first_line)
    if stop:
        note = "; ".join(part for part in (stop.get("note", ""), words) if part)
        return {"cause": stop["cause"], "code": code, "note": note}
    if code is None:
        return {"cause": LOST, "code": None, "note": "the process and its holder vanished; nobody knows its exit code"}
    if out_of_memory and code != 0:
        return {"cause": OUT_OF_MEMORY, "code": code, "note": "out of memory (limit {})".format(size(mem_bytes))}
    cause = SIGNAL if 128 < code <= 128 + 64 else EXIT
    return {"cause": cause, "code": code, "note": words}


def rebooted() -> Dict[str, Any]:
    return {"cause": LOST, "code": None, "note": "the node was restarted while it ran"}


def unreadable() -> Dict[str, Any]:
    return {"cause": LOST, "code": None, "note": "the node's record of it was damaged, and what ran of it was ended"}


def size(count: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= factor:
            return "{:.4g} {}".format(count / factor, unit)
    return "{} bytes".format(count)


def _of_code(code: Optional[int], first_line: str) -> str:
    if code is not None and 128 < code <= 128 + 64:
        return "killed by signal {} ({})".format(code - 128, signal_name(code - 128))
    if code == 1 and first_line.startswith("bwrap: "):
        return "the sandbox could not be made: " + first_line[len("bwrap: ") :]
    return ""
