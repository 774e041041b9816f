"""Which cards a machine has: NVIDIA by nvidia-smi and /proc/driver/nvidia, AMD by sysfs, anything by declaration.

Texts are read by pure functions; `detect` alone looks at the machine. A card is a dict, as it travels to the head.
"""

import glob
import os
import re
import shutil
import subprocess
from typing import Any, Dict, List, Optional

from snakepit.engines.agent.records import read_text

Card = Dict[str, Any]
QUERY = "index,uuid,name,memory.total,pci.bus_id"
NVIDIA_PROC = "/proc/driver/nvidia/gpus"
NVIDIA_SHARED = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
)
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def detect() -> List[Card]:
    cards = _nvidia() + _amd()
    for index, card in enumerate(cards):
        card["index"] = index
    return cards


def read_smi(text: str) -> List[Card]:
    """The answer to `nvidia-smi --query-gpu=… --format=csv,noheader,nounits`; memory comes in MiB."""
    cards = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 5 or not fields[0].isdigit():
            continue
        memory = int(fields[3]) << 20 if fields[3].isdigit() else 0
        cards.append(_card(fields[2], "cuda", fields[1], memory, bus(fields[4])))
    return cards


def read_information(text: str) -> Dict[str, str]:
    """A file /proc/driver/nvidia/gpus/<bus>/information."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def bus(text: str) -> str:
    """`00000000:65:00.0`, as nvidia-smi writes it, is `0000:65:00.0` in /proc and sysfs."""
    domain, _, rest = text.lower().partition(":")
    return domain[-4:] + ":" + rest


def read_utilisation(text: str) -> Dict[str, List[float]]:
    """UUID to (compute, memory), each 0..1, from `--query-gpu=uuid,utilization.gpu,memory.used,memory.total`."""
    found = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4:
            compute, used, total = (float(field) if re.match(r"^[\d.]+$", field) else 0.0 for field in fields[1:])
            found[fields[0]] = [compute / 100, used / total if total else 0.0]
    return found


def declared(text: str) -> List[Card]:
    """`2:GeForce GTX 1070/8G, 1:tpu=thing`: how many, the kind (cuda if not said), the model, its memory."""
    cards: List[Card] = []
    for part in text.split(","):
        if not part.strip():
            continue
        found = re.match(
            r"^\s*(?:(\d{1,4})\s*:)?\s*(?:([a-z]+)\s*=)?\s*([^/:=]+?)\s*(?:/\s*(\d+)\s*([KMGT]?)B?)?\s*$", part
        )
        if not found or found.group(1) == "0":
            raise ValueError(
                "cannot read the resource {!r}: expected COUNT:MODEL or COUNT:MODEL/MEMORY".format(part.strip())
            )
        count, kind, name, amount, unit = found.groups()
        memory = int(amount) * UNITS[unit] if amount else 0
        for _ in range(int(count or 1)):
            cards.append(dict(_card(name, kind or "cuda", "", memory, ""), declared=True, index=len(cards)))
    return cards


def devices(granted: List[Card]) -> List[str]:
    """The device files that a process with these cards needs."""
    found: List[str] = []
    for card in granted:
        found += [path for path in card.get("devices", ()) if path not in found]
    if any(card["kind"] == "cuda" and not card["declared"] for card in granted):
        found += [path for path in NVIDIA_SHARED if os.path.exists(path)]
    return found


def visible(granted: List[Card]) -> Dict[str, str]:
    """The variables by which libraries choose cards: real ones by UUID, declared ones by number."""
    cuda = [card["uuid"] or str(card["index"]) for card in granted if card["kind"] == "cuda"]
    rocm = [card["uuid"] or str(card["index"]) for card in granted if card["kind"] == "rocm"]
    chosen = {"CUDA_VISIBLE_DEVICES": ",".join(cuda)}
    if rocm:
        chosen["ROCR_VISIBLE_DEVICES"] = ",".join(rocm)
    return chosen


def _card(name: str, kind: str, uuid: str, memory_bytes: int, address: str) -> Card:
    return {
        "index": 0,
        "name": name,
        "kind": kind,
        "uuid": uuid,
        "memory_bytes": memory_bytes,
        "bus": address,
        "devices": [],
        "declared": False,
    }


def ask_smi(query: str) -> Optional[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=" + query, "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.decode("utf-8", "replace") if answer.returncode == 0 else None


def _nvidia() -> List[Card]:
    known = {}
    for path in sorted(glob.glob(NVIDIA_PROC + "/*/information")):
        known[os.path.basename(os.path.dirname(path)).lower()] = read_information(read_text(path))
    cards = read_smi(ask_smi(QUERY) or "") if known or os.path.exists("/dev/nvidiactl") else []
    if not cards:
        for address, facts in known.items():
            cards.append(_card(facts.get("Model", "NVIDIA GPU"), "cuda", facts.get("GPU UUID", ""), 0, address))
    for number, card in enumerate(cards):
        minor = known.get(card["bus"], {}).get("Device Minor", str(number))
        card["devices"] = ["/dev/nvidia" + minor]
    return cards


def _amd() -> List[Card]:
    cards = []
    for path in sorted(glob.glob("/sys/class/drm/renderD*/device")):
        memory = read_text(path + "/mem_info_vram_total").strip()
        if read_text(path + "/vendor").strip() != "0x1002" or not memory.isdigit():
            continue
        name = read_text(path + "/product_name").strip() or "AMD GPU " + read_text(path + "/device").strip()
        unique = read_text(path + "/unique_id").strip()
        card = _card(
            name, "rocm", "GPU-" + unique if unique else "", int(memory), os.path.basename(os.path.realpath(path))
        )
        card["devices"] = ["/dev/kfd", "/dev/dri/" + os.path.basename(os.path.dirname(path))]
        cards.append(card)
    return cards
