"""On a machine with an NVIDIA card: is it detected, is exactly the granted one visible to a process, is its use seen?

Needs nothing but Python and the driver (bubblewrap where there is one, torch for the load). Start it as root: the
agent then runs as `nobody`. Prints what it saw and exits with 1 when something is not as promised.
"""

from __future__ import annotations

import asyncio
import pwd
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from snakepit.core.domains import Mount
from snakepit.core.job import AttemptId, ProcessId
from snakepit.engines.base import Event, Exited, Go, Granted, Inventory, Launch, Output, Usage
from snakepit.engines.local import Account, LocalEngine, LocalOptions

LOAD = """import os, sys, time
import torch
print("torch sees", torch.cuda.device_count(), torch.cuda.get_device_name(0))
a = torch.randn(8192, 8192, device="cuda")
end = time.time() + 12
while time.time() < end:
    a = (a @ a).clamp(-1, 1)
    torch.cuda.synchronize()
"""


async def check(isolation: str, python: str) -> list[str]:
    problems = []
    home = Path(tempfile.mkdtemp(prefix="snakepit-gpu-"))
    home.chmod(0o755)
    nobody = pwd.getpwnam("nobody")
    account = Account(nobody.pw_uid, nobody.pw_gid)
    venv = Mount(str(Path(python).parent.parent), str(Path(python).parent.parent), False)
    options = LocalOptions(isolation=isolation, run_as=account, mounts=(venv,))
    engine = LocalEngine("n0", home / "state", "hardware", 1, options)
    (home / "work").mkdir()
    (home / "work").chmod(0o777)
    (home / "work" / "load.py").write_text(LOAD)
    inventory = await engine.probe()
    print(f"isolation {inventory.isolation} {inventory.isolation_problem}, limits {inventory.limits}")
    for card in inventory.resources:
        print(card)
    if not inventory.resources or not inventory.resources[0].uuid.startswith("GPU-"):
        return ["no card with a UUID was detected"]
    if inventory.resources[0].memory_bytes < 1_000_000_000:
        problems.append("the card's memory is not known")
    work = str(home / "work") if inventory.isolation == "none" else "/data"
    look = "nvidia-smi -L; echo CVD=$CUDA_VISIBLE_DEVICES; ls /dev/nvidia*; ls /proc/driver/nvidia/gpus"
    text, _ = await run(engine, inventory, 1, home, work, look, granted=False)
    print("--- without a card:\n" + text)
    if "GPU-" in text.split("CVD=")[1]:
        problems.append("a process without a card was given one")
    text, used = await run(engine, inventory, 2, home, work, f"{look}; {python} {work}/load.py", granted=True)
    print("--- with the card:\n" + text)
    print("--- use seen (compute, memory):", used)
    if f"CVD={inventory.resources[0].uuid}" not in text:
        problems.append("CUDA_VISIBLE_DEVICES is not the card's UUID")
    if "torch sees 1" not in text:
        problems.append("torch does not see exactly the granted card")
    if not any(compute > 0.5 for compute, _memory in used):
        problems.append("a busy card was not seen as busy")
    await engine.close()
    return problems


async def run(
    engine: LocalEngine, inventory: Inventory, job: int, home: Path, work: str, script: str, granted: bool
) -> tuple[str, list[tuple[float, float]]]:
    id = ProcessId(AttemptId(job), 0)
    cards = (Granted(inventory.resources[0]),) if granted else ()
    mounts = (Mount(str(home / "work"), work, True),)
    launch = Launch(id, id.name("n0"), ("/bin/bash", "-c", script), work, mounts, cards, user="tilman")
    events = engine.watch({})
    await engine.create([launch])
    await engine.go([Go(id, {})])
    return await asyncio.wait_for(collect(engine, events, id), 180)


async def collect(
    engine: LocalEngine, events: AsyncIterator[Event], id: ProcessId
) -> tuple[str, list[tuple[float, float]]]:
    text, used = b"", []
    async for event in events:
        match event:
            case Output() if event.id == id:
                text += event.data
                await engine.ack_output(id, event.offset + len(event.data))
            case Usage():
                used += list(event.cards.values())
            case Exited() if event.id == id:
                print("ended:", event.ended)
                break
            case _:
                pass
    await engine.clean([id.attempt])
    return text.decode(errors="replace"), used


def main() -> int:
    python = shutil.which("python3") or sys.executable
    problems = []
    for isolation in ["sandbox", "none"] if shutil.which("bwrap") else ["none"]:
        print(f"===== isolation={isolation}")
        problems += [f"{isolation}: {problem}" for problem in asyncio.run(check(isolation, python))]
    print("\n".join(problems) or "all as promised")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
