"""How things look: the job table of `status` and `show jobs`, and the labelled lines of `show`. Pure text making."""

from __future__ import annotations

from snakepit.pit.render import cell, clean, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Job = dict[str, Any]

# As core.job.State.letters (a test holds them together); 8 was produced by services of 2018.
LETTERS = ("NEW", "PRE", "WAI", "STA", "RUN", "STO", "CLN", "FIN", "ARC")
# What became of an ended job, in the same column; one that succeeded keeps the seed's letters.
ENDS = {"failed": "ERR", "timed out": "TIM", "stopped": "CAN", "lost": "LOS"}
LIMITS = {"cpu": "cores", "mem": "memory", "pids": "processes"}
WAITING, DONE = 2, 7
TITLE = 40
RESOURCE_ELSEWHERE = 30
CAPTIONS = (("running", "Running:"), ("waiting", "Waiting:"), ("done", "Done:"))


def letters(state: object) -> str:
    return LETTERS[state] if isinstance(state, int) and 0 <= state < len(LETTERS) else str(state)


def fate(job: Job) -> str:
    """The letters of its state; of an ended one those of its outcome."""
    state = job.get("state")
    return ENDS.get(str(job.get("outcome")), LETTERS[DONE]) if state == DONE else letters(state)


# ---------------------------------------------------------------------------------------------------------- job table


def header(columns: int | None, dated: bool = False) -> str:
    names = {"id": "JOB", "state": "S", "when": "DATE" if dated else "SINCE", "uc": "UC%", "um": "UM%"}
    return _row({**names, "user": "USER", "title": "TITLE", "resource": "RESOURCE"}, columns, dated)


def row(job: Job, columns: int | None, dated: bool = False) -> str:
    cells = {
        "id": str(job.get("id", "")),
        "state": fate(job),
        "when": str(job.get("date") or "") if dated else since(job.get("since") or {}),
        "uc": percent(job.get("utilComp")),
        "um": percent(job.get("utilMem")),
        "user": str(job.get("user") or ""),
        "title": str(job.get("description") or ""),
        "resource": str(job.get("resources") or ""),
    }
    return _row(cells, columns, dated)


def _row(cells: dict[str, str], columns: int | None, dated: bool) -> str:
    title, resource = _flexible(columns, 24 if dated else 12)
    parts = [
        cell(cells["id"], 6, right=True),
        cell(cells["state"], 3, right=True),
        cell(cells["when"], 24 if dated else 12),
        cell(cells["uc"], 3, right=True),
        cell(cells["um"], 3, right=True),
        cell(cells["user"], 10),
        cell(cells["title"], title),
        cell(cells["resource"], resource),
    ]
    return " ".join(parts).rstrip(" ")


def _flexible(columns: int | None, when: int) -> tuple[int, int]:
    """Widths of TITLE and RESOURCE. Where a terminal leaves less than 16 for the resources, the title gives way."""
    if columns is None:
        return TITLE, RESOURCE_ELSEWHERE
    left = columns - (6 + 3 + when + 3 + 3 + 10 + 7)
    title = max(8, min(TITLE, left - 16))
    return title, max(8, left - title)


def since(time: dict[str, int]) -> str:
    days, hours, minutes, seconds = (int(time.get(part, 0)) for part in ("days", "hours", "minutes", "seconds"))
    return f"{days}d" if days > 99 else f"{days:02}d {hours:02}:{minutes:02}:{seconds:02}"


def percent(part: object) -> str:
    return str(round(max(0.0, min(1.0, part)) * 100)) if isinstance(part, int | float) else "0"


def status(groups: dict[str, list[Job]], columns: int | None) -> str:
    lines = [header(columns)]
    for key, caption in CAPTIONS:
        if jobs := groups.get(key):
            lines.append(caption)
            lines += [row(job, columns) for job in jobs]
    return "\n".join(lines) + "\n"


def jobs(found: list[Job], columns: int | None) -> str:
    return "\n".join([header(columns, dated=True), *(row(job, columns, dated=True) for job in found)]) + "\n"


def audit(found: list[Job]) -> str:
    """Who went inside which job."""
    lines = [_entry("ENTRY", "DATE", "USER", "JOB", "W", "NODE", "WHAT", "DETAIL")]
    for each in found:
        place = (each.get("job"), each.get("worker"), each.get("node"), each.get("kind"), each.get("detail"))
        lines.append(_entry(each.get("id"), each.get("date"), each.get("user"), *place))
    return "\n".join(lines) + "\n"


def _entry(id: object, date: object, user: object, job: object, worker: object, node: object, *what: object) -> str:
    parts = [cell(str(id), 6, right=True), cell(str(date), 24), cell(str(user), 10), cell(str(job), 6, right=True)]
    parts += [cell(str(worker), 3, right=True), cell(str(node), 10), cell(str(what[0]), 11), clean(str(what[1]))]
    return " ".join(parts).rstrip(" ")


# --------------------------------------------------------------------------------------------------------------- show


def labelled(lines: list[tuple[str, str | None]]) -> str:
    """`Label: value` lines, values in one column; those without a value are left out."""
    present = [(label, value) for label, value in lines if value is not None]
    width = max((len(label) for label, _ in present), default=0) + 1
    return "".join(f"{label}:".ljust(width) + f" {value}\n" for label, value in present)


def entity(type: str, body: Job) -> str:
    return {"user": user, "node": node, "job": job, "alias": alias, "group": group}[type](body)


def user(body: Job) -> str:
    return labelled(
        [
            ("Username", text(body.get("id"))),
            ("Full name", text(body.get("fullname"))),
            ("E-Mail address", text(body.get("email"))),
            ("Groups", words(body.get("groups"))),
            ("Auto share", words(body.get("autoshare"))),
            ("Is administrator", yes_no(body.get("admin"))),
        ]
    )


def alias(body: Job) -> str:
    return labelled([("Alias", text(body.get("id"))), ("For", text(body.get("name")))])


def group(body: Job) -> str:
    return labelled([("Name", text(body.get("id"))), ("Title", text(body.get("title")))])


def node(body: Job) -> str:
    resources = body.get("resources") or []
    return labelled(
        [
            ("Node name", text(body.get("id"))),
            ("State", _node_state(body)),
            ("Since", text(body.get("since"))),
            ("Resources", _block(_resource(each) for each in resources) if resources else None),
            ("Cores", text(body.get("cpus") or None)),
            ("Memory", size(body["memory"]) if body.get("memory") else None),
            ("Slots", text(body.get("slots") or None)),
            ("Mounts", text(body.get("mounts") or None)),
            ("Limits", _limits(body)),
            ("Isolation", _isolation(body)),
        ]
    )


def _node_state(body: Job) -> str:
    state = "ONLINE" if body.get("online") else "OFFLINE"
    if not body.get("drained"):
        return state
    why = text(body.get("drainReason"))
    return f"{state} (drained{': ' + why if why else ''})"


def _limits(body: Job) -> str | None:
    """Which of the things that a job asks for it cannot take more of."""
    limits = body.get("limits")
    if limits is None:
        return None
    return ", ".join(LIMITS.get(each, clean(str(each))) for each in limits) or "none is enforced"


def _isolation(body: Job) -> str | None:
    kind, problem = text(body.get("isolation") or None), text(body.get("isolationProblem"))
    return f"{kind or 'unknown'} ({problem})" if problem else kind


def _resource(each: Job) -> str:
    line = f'{each.get("index")}: "{text(each.get("name"))}"'
    if each.get("alias"):
        line += f' aka "{text(each["alias"])}"'
    line += f" ({text(each.get('type'))} {each.get('index')})"
    if each.get("declared"):
        line += " - declared"
    if each.get("groups"):
        line += f" - Groups: {words(each['groups'])}"
    return line


def job(body: Job) -> str:
    processes, changes, attempts = (body.get(name) or [] for name in ("processes", "stateChanges", "attempts"))
    return labelled(
        [
            ("Job number", text(body.get("id"))),
            ("Continued job", text(body.get("continueJob") or None)),
            ("Title", text(body.get("description"))),
            ("Owner", text(body.get("user"))),
            ("Groups", words(body.get("groups"))),
            ("May go inside", words(body.get("execGroups"))),
            ("Error", text(body.get("error"))),
            ("Provisioning", text(body.get("provisioning"))),
            ("Resources", text(body.get("resources"))),
            ("Util. GPU", _utilization(body.get("utilComp"))),
            ("Util. memory", _utilization(body.get("utilMem"))),
            ("State", _job_state(body)),
            ("Outcome", _outcome(body)),
            ("Attempts", _block(_attempt(each) for each in attempts) if len(attempts) > 1 else None),
            ("Processes", _block(_process(each) for each in processes) if processes else None),
            ("State changes", _block(_change(each) for each in changes) if changes else None),
        ]
    )


def _job_state(body: Job) -> str:
    state = letters(body.get("state"))
    position = body.get("schedulePosition")
    return f"{state} (position {position})" if body.get("state") == WAITING and position else state


def _outcome(body: Job) -> str | None:
    outcome = text(body.get("outcome"))
    why = text(body.get("reason"))
    return f"{outcome} - {why}" if outcome and why else outcome


def _utilization(part: object) -> str | None:
    number = percent(part)
    return None if number == "0" else f"{number} %"


def _process(each: Job) -> str:
    code = each.get("status")
    line = f"[{each.get('groupIndex')}, {each.get('processIndex')}]: Status code: {'?' if code is None else code}"
    note = text(each.get("note"))
    result = text(" / ".join(line for line in str(each.get("result") or "").splitlines() if line.strip()))
    line = f"{line} ({note})" if note else line
    return f"{line} - {result}" if result else line


def _attempt(each: Job) -> str:
    codes = words([process.get("status") for process in each.get("processes") or []])
    line = f"{each.get('number')}: {text(each.get('outcome')) or 'running'}"
    why = text(each.get("reason"))
    return line + (f" - {why}" if why else "") + (f" (status codes: {codes})" if codes else "")


def _change(each: Job) -> str:
    why = text(each.get("reason"))
    return f"{letters(each.get('state'))}: {text(each.get('since'))}{' - ' + why if why else ''}"


def _block(lines: object) -> str:
    return "".join(f"\n  {line}" for line in lines)  # type: ignore[attr-defined]


def text(value: object) -> str | None:
    return None if value is None else clean(str(value))


def words(value: object) -> str | None:
    return clean(" ".join(str(each) for each in value)) if isinstance(value, list) and value else None


def yes_no(value: object) -> str | None:
    return None if value is None else "yes" if value else "no"
