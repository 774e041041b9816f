"""The engine's values as the agent's JSON and back. Pure."""

from __future__ import annotations

from typing import Any

from snakepit.core.job import Cause, Ended, ProcessId
from snakepit.core.resources import Resource
from snakepit.engines.base import Created, Event, Exited, Go, Granted, Inventory, Launch, Output, Seen, Usage

Body = dict[str, Any]


def launch_body(launch: Launch) -> Body:
    return {
        "id": str(launch.id),
        "name": launch.name,
        "argv": list(launch.argv),
        "cwd": launch.cwd,
        "mounts": [{"source": m.source, "path": m.path, "writable": m.writable} for m in launch.mounts],
        "granted": [_granted_body(granted) for granted in launch.granted],
        "cpus": launch.cpus,
        "mem_bytes": launch.mem_bytes,
        "cpu_weight": launch.cpu_weight,
        "result_file": launch.result_file,
        "ports": launch.ports,
        "log_limit_bytes": launch.log_limit_bytes,
        "user": launch.user,
    }


def _granted_body(granted: Granted) -> Body:
    card = granted.resource
    return {"index": card.index, "uuid": card.uuid, "share": float(granted.share), "mem_bytes": granted.mem_bytes}


def go_body(go: Go) -> Body:
    return {
        "id": str(go.id),
        "environment": dict(go.environment),
        "hosts": dict(go.hosts),
        "time_limit_s": go.time_limit_s,
    }


def created(body: Body) -> Created:
    return Created(ProcessId.parse(body["id"]), body["address"], tuple(body["ports"]))


def seen(body: Body) -> Seen:
    end = ended(body["ended"]) if body["ended"] else None
    return Seen(ProcessId.parse(body["id"]), body["phase"], end, body["log_bytes"])


def ended(body: Body) -> Ended:
    return Ended(Cause(body["cause"]), body["code"], body["note"], body.get("result", ""), body.get("at", 0.0))


def inventory(body: Body, boot_id: str, state_id: str) -> Inventory:
    return Inventory(
        cpus=body["cpus"],
        mem_bytes=body["mem_bytes"],
        resources=tuple(resource(card) for card in body["cards"]),
        isolation=body["isolation"],
        isolation_problem=body["isolation_problem"],
        limits=tuple(body["limits"]),
        hostname=body["hostname"],
        boot_id=boot_id,
        state_id=state_id,
    )


def resource(card: Body) -> Resource:
    return Resource(card["index"], card["name"], card["kind"], card["uuid"], card["memory_bytes"], card["declared"])


def event(body: Body, payload: bytes) -> Event:
    match body["event"]:
        case "output":
            return Output(ProcessId.parse(body["id"]), body["offset"], payload, body["at"], body["dropped"])
        case "exited":
            return Exited(ProcessId.parse(body["id"]), ended(body["ended"]), body["log_bytes"])
        case "usage":
            cards = {int(index): (use[0], use[1]) for index, use in body["cards"].items()}
            return Usage(cards, {ProcessId.parse(one): (use[0], use[1]) for one, use in body["processes"].items()})
    raise ValueError(f"no such event: {body['event']}")
