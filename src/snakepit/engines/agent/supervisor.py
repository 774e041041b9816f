"""The table of processes and the verbs on it. Each verb is idempotent; what it decided is on disk before it is done.

A start is: take a holder that waits at its gate, write its pid down, open the gate. Killed before the writing, the
agent leaves a record that never ran and a holder that goes home; killed after it, a holder that runs and is found
again. One holder more than is needed stands ready at all times.
"""

import os
import signal
import time
import uuid
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from snakepit.engines.agent import ends, holder, inventory, limits, procs, sandbox
from snakepit.engines.agent.logs import Tail, Tell
from snakepit.engines.agent.places import Places
from snakepit.engines.agent.reactor import Reactor
from snakepit.engines.agent.records import Record, Records, read_text
from snakepit.engines.agent.refusal import not_now, rejected
from snakepit.engines.agent.result import read_result
from snakepit.engines.agent.trash import throw_away
from snakepit.engines.agent.usage import Sampler

TAIL_EVERY_S = 0.1
POLL_EVERY_S = 0.5  # only where the kernel has no pidfd
TERM_AGAIN_S = 0.02
TIME_LIMIT_GRACE_S = 10
SAVE_AGAIN_S = 2
SYNC_AFTER_S = 1  # by then most ends were told, and their records removed
LEAST_DISK = 64 << 20


class Supervisor:
    def __init__(self, records: Records, reactor: Reactor, cluster: str) -> None:
        self.records, self.reactor, self.cluster = records, reactor, cluster
        self.boot = procs.boot_id()
        self.table: Dict[str, Record] = {}
        self.tails: Dict[str, Tail] = {}
        self.node = sandbox.Node(records, cluster)
        self.limits = limits.find(cluster)
        self.places = Places(cluster)
        self._cleans: List[Tuple[Set[str], Callable[[], None]]] = []
        self._listener: Optional[Tell] = None
        self._sandbox_works = False
        self._ticking = False
        self._ready: Optional[Tuple[int, int]] = None  # a holder at its gate, and the gate
        self._vain: Set[str] = set()  # started once, and its holder did not get as far as to begin
        self._sampler = Sampler(reactor, self.table, lambda: self.node.cards)
        self._find_again()
        reactor.soon(0, self.stand_ready)

    def create(self, launches: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """All or none. What exists already gives the same answer again."""
        fresh = [launch for launch in launches if launch["id"] not in self.table]
        for launch in fresh:
            sandbox.check(launch)
            self._refuse_buried(launch["id"])
            for grant in launch["granted"]:
                sandbox.find_card(grant, self.node.cards)
        if fresh:
            self._check_node()
        made: List[Record] = []
        try:
            for launch in fresh:
                made.append(self._place(launch))
                self._write_out(made[-1])
        except BaseException:
            for record in made:
                self._remove(record)
            raise
        for record in made:
            self.table[record["id"]] = record
            self.tails[record["id"]] = self._tail(record)
        known = [self.table[launch["id"]] for launch in launches]
        return [{"id": record["id"], "address": record["address"], "ports": record["ports"]} for record in known]

    def go(self, goes: List[Dict[str, Any]]) -> None:
        """Those that stand ready run; for one that runs or ran nothing happens."""
        for go in goes:
            if go["id"] not in self.table:
                self._refuse_buried(go["id"])
                raise rejected("{} was never created here".format(go["id"]))
        ready = []
        for go in goes:
            record = self.table[go["id"]]
            if record["phase"] == "created":
                record["go"] = go
                ready.append(record)
        self._start(ready)

    def look(self) -> List[Dict[str, Any]]:
        return [self._seen(record) for record in self.table.values() if not record.get("cleaning")]

    def stop(self, attempts: List[str], grace_s: float, cause: str, note: str) -> None:
        self.records.bury(attempts)
        for record in self._of(attempts):
            self._stop(record, grace_s, cause, note)

    def clean(self, attempts: List[str], done: Callable[[], None]) -> None:
        """Forgets them; `done` is called when the living ones among them are gone as well."""
        self.records.bury(attempts)
        waiting = set()
        for record in self._of(attempts):
            if record["phase"] == "running":
                record["cleaning"] = True
                waiting.add(record["id"])
                self._stop(record, 0, "stopped", "cleaned")
            else:
                self._remove(record)
        if waiting:
            self._cleans.append((waiting, done))
        else:
            done()

    def listen(self, tell: Optional[Tell], offsets: Dict[str, int]) -> None:
        """From now on `tell` hears of output and ends; the one before hears nothing more."""
        self._listener = tell
        for identity, tail in list(self.tails.items()):
            if tell is None:
                tail.leave()
            else:
                tail.follow(tell, offsets.get(identity, 0))
        self._sampler.listen(tell)
        self._tick()

    def find_limits(self) -> List[str]:
        """Looked for again while there are none: the service may have prepared them after our start."""
        if not self.limits.enforced:
            self.limits = limits.find(self.cluster)
        return self.limits.enforced

    def busy(self) -> bool:
        return any(record["phase"] == "running" for record in self.table.values())

    def ack(self, identity: str, offset: int) -> None:
        if identity in self.tails:
            self.tails[identity].ack(offset)

    # -- making ready

    def _check_node(self) -> None:
        if self.node.options.get("isolation") != "none" and not self._sandbox_works:
            problem = inventory.sandbox_problem()
            if problem:
                raise rejected(problem)
            self._sandbox_works = True
        disk = os.statvfs(self.records.top)
        if disk.f_bavail * disk.f_frsize < LEAST_DISK:
            raise not_now("the disk of {} is full".format(self.records.top))

    def _refuse_buried(self, identity: str) -> None:
        if identity.rpartition(".")[0] in self.records.tombstones:
            raise rejected("{} was stopped or cleaned before".format(identity))

    def _place(self, launch: Dict[str, Any]) -> Record:
        first, last = self.node.options.get("ports", (20000, 29999))
        return {
            "id": launch["id"],
            "attempt": launch["id"].rpartition(".")[0],
            "phase": "created",
            "launch": launch,
            "isolation": "none" if self.node.options.get("isolation") == "none" else "sandbox",
            "hidden": self.node.options.get("hidden", []),
            "node_mounts": self.node.options.get("mounts", []),
            "address": self.places.address(),
            "ports": self.places.ports(launch["ports"], first, last),
        }

    def _write_out(self, record: Record) -> None:
        try:
            os.makedirs(self.records.file(record["id"], "tmp"), mode=0o700, exist_ok=True)
            os.makedirs(sandbox.home(record, self.records), mode=0o700, exist_ok=True)
            self.records.save(record)
        except OSError as error:
            raise not_now("{}: {}".format(error.filename, error.strerror)) from None

    def _tail(self, record: Record) -> Tail:
        tail = Tail(record, self.records)
        if self._listener is not None:
            tail.follow(self._listener, 0)
        return tail

    # -- running

    def _start(self, ready: List[Record]) -> None:
        gates: List[int] = []
        try:
            payloads = [self._payload(record) for record in ready]
            for record in ready:
                gates.append(self._hold(record))
                self.records.save(record)
        except OSError as error:
            for record in ready:
                if record["phase"] == "running":
                    record["phase"] = "created"
                    self.reactor.soon(1, lambda pid=record["pid"]: _reap(pid))  # type: ignore[misc]
            raise not_now("cannot start: {}".format(error)) from None
        else:
            for gate, payload in zip(gates, payloads):
                holder.open_gate(gate, payload)
        finally:
            for gate in gates:
                os.close(gate)
        for record in ready:
            self._watch(record)
        self._sampler.wake()
        self._tick()
        self.reactor.soon(0, self.stand_ready)

    def stand_ready(self) -> None:
        """A holder for the next start."""
        if self._ready is None:
            self._ready = holder.fork()

    def _hold(self, record: Record) -> int:
        """A holder for it, at its gate."""
        pid, gate = self._ready or holder.fork()
        self._ready = None
        seen = procs.stat(pid)
        record.update(phase="running", pid=pid, started=seen.started if seen else 0, boot=self.boot)
        record.update(begun_at=time.time(), begun=time.monotonic())
        return gate

    def _payload(self, record: Record) -> holder.Payload:
        """Its status file has a name of its own: an earlier start may have left one."""
        record["status"] = "status-" + uuid.uuid4().hex[:12]
        sandbox.furnish(record, self.records)
        launch = record["launch"]
        record["mem_bytes"] = launch["mem_bytes"] or self._ceiling(launch)
        joins = self.limits.make(record["id"], launch["cpus"], launch["cpu_weight"], record["mem_bytes"])
        return sandbox.payload(record, self.node, joins)

    def _ceiling(self, launch: Dict[str, Any]) -> int:
        """Memory for one who asked for none: in proportion to his cards, and a tenth stays for the machine."""
        usable = inventory.memory_bytes() * 9 // 10
        if not self.node.cards:
            return usable
        share = sum(grant["share"] for grant in launch["granted"]) / len(self.node.cards)
        return int(usable * (share or 0.5))

    def _watch(self, record: Record) -> None:
        descriptor = procs.pidfd(record["pid"])
        if record["go"]["time_limit_s"]:
            self.reactor.at(record["begun"] + record["go"]["time_limit_s"], lambda: self._out_of_time(record))
        if not procs.alive(record["pid"], record["started"]):
            if descriptor is not None:
                os.close(descriptor)
            self._end(record)
        elif descriptor is None:
            self._poll(record)
        else:
            self.reactor.on_readable(descriptor, lambda: self._ended(record, descriptor))

    def _ended(self, record: Record, descriptor: Optional[int]) -> None:
        if descriptor is not None:
            self.reactor.forget(descriptor)
            os.close(descriptor)
        self._end(record)

    def _poll(self, record: Record) -> None:
        if procs.alive(record["pid"], record["started"]):
            self.reactor.soon(POLL_EVERY_S, lambda: self._poll(record))
        else:
            self._end(record)

    def _out_of_time(self, record: Record) -> None:
        note = "time limit of {} s reached".format(record["go"]["time_limit_s"])
        self._stop(record, TIME_LIMIT_GRACE_S, "time limit", note)

    # -- ending

    def _stop(self, record: Record, grace_s: float, cause: str, note: str) -> None:
        if record["phase"] == "created":
            self._finish(record, {"cause": cause, "code": None, "note": note})
        elif record["phase"] == "running":
            kill_at = time.monotonic() + max(0.0, grace_s)
            if "stop" in record:
                kill_at = min(kill_at, record["stop"]["kill_at"])
                cause, note = record["stop"]["cause"], record["stop"]["note"]
            record["stop"] = {"cause": cause, "note": note, "kill_at": kill_at}
            self._save(record)
            self._carry_out(record)

    def _carry_out(self, record: Record) -> None:
        kill_at = record["stop"]["kill_at"]
        if time.monotonic() < kill_at:
            self._term(record)
        self.reactor.at(kill_at, lambda: self._kill(record))

    def _term(self, record: Record) -> None:
        """TERM to the payload's own processes: bubblewrap's two would take the exit code with them, or ignore it."""
        if record["phase"] != "running" or time.monotonic() >= record["stop"]["kill_at"]:
            return
        root = record["pid"]
        if record["isolation"] == "sandbox":
            root = self._status(record).get("child-pid", 0)
        found = procs.below(root, procs.everyone()) if root else []
        if found:
            procs.send(found, signal.SIGTERM)
        else:
            self.reactor.soon(TERM_AGAIN_S, lambda: self._term(record))  # it is just being born

    def _kill(self, record: Record) -> None:
        """KILL to all but the holder, which stays to tell the end."""
        if record["phase"] == "running":
            held = procs.alive(record["pid"], record["started"])
            found = procs.below(record["pid"], procs.everyone()) if held else []
            procs.send(found + self.limits.members(record["id"]), signal.SIGKILL)
            self.reactor.soon(POLL_EVERY_S, lambda: self._kill(record))

    def _end(self, record: Record) -> None:
        """The holder is gone: what did it leave?"""
        _reap(record["pid"])
        if "stop" not in record and not self._begun(record):
            self._vain.add(record["id"])
            record["phase"] = "created"
            self._start([record])
            return
        status = self._status(record)
        told = "code" in status or "exit-code" in status
        if not told or record["isolation"] == "none":
            procs.kill_marked(self.node.mark(record))
        memory = self.limits.out_of_memory(record["id"])
        first_line = read_text(self.records.file(record["id"], "out"), 300).split("\n")[0]
        ended = ends.judge(status, record.get("stop"), memory, record.get("mem_bytes", 0), first_line)
        ended["at"] = status.get("at", time.time())
        self._finish(record, ended)

    def _finish(self, record: Record, ended: Dict[str, Any]) -> None:
        ended.setdefault("at", time.time())
        ended["result"] = read_result(record["launch"]) if "launch" in record else ""
        record.update(phase="ended", ended=ended)
        if record.get("cleaning"):
            self._remove(record)
            return
        # Told first: should we be killed before it is saved, the holder's file tells it again.
        self.tails[record["id"]].push()
        self._save(record)
        self.limits.remove(record["id"])
        self.reactor.soon(SYNC_AFTER_S, lambda: self._save(record, True))

    def _save(self, record: Record, sync: bool = False) -> None:
        """On a full disk later: a stop must still stop, and an end can be read again from the holder's file."""
        if self.table.get(record["id"]) is not record:
            return
        try:
            self.records.save(record, sync)
        except OSError:
            self.reactor.soon(SAVE_AGAIN_S, lambda: self._save(record, sync))

    def _remove(self, record: Record) -> None:
        identity = record["id"]
        self.table.pop(identity, None)
        self.tails.pop(identity, None)
        self._vain.discard(identity)
        self.places.free(record)
        self.limits.remove(identity)
        throw_away(self.records.top, self.records.directory(identity))
        for waiting, done in list(self._cleans):
            waiting.discard(identity)
            if not waiting:
                self._cleans.remove((waiting, done))
                done()

    def _begun(self, record: Record) -> bool:
        """A holder that got as far as its payload made a status file; what did not get there twice in our own life will
        not. Agents before us do not count: each may have been killed before it opened the gate."""
        return record["id"] in self._vain or os.path.exists(self.records.file(record["id"], record["status"]))

    def _status(self, record: Record) -> Dict[str, Any]:
        return holder.read_status(read_text(self.records.file(record["id"], record["status"])))

    # -- looking after

    def _find_again(self) -> None:
        """After a start of the agent: what ran under the one before runs on, or ended meanwhile, or is lost."""
        known = self.records.load()
        self.places.known(known)
        for record in known:
            self.table[record["id"]] = record
            record.setdefault("attempt", record["id"].rpartition(".")[0])
            self.tails[record["id"]] = Tail(record, self.records)
        self.limits.sweep([record["id"] for record in known if record["phase"] == "running"])
        for record in known:
            if record["phase"] == "broken":
                procs.kill_marked(self.node.mark(record))  # its cards are given away from here on
                self._finish(record, ends.unreadable())
            elif record["phase"] == "running" and record["boot"] != self.boot:
                self._finish(record, ends.rebooted())
            elif record["phase"] == "running":
                if "stop" in record:
                    self._carry_out(record)
                self._watch(record)
        if not self.busy():
            self.node.etc.tidy()

    def _tick(self) -> None:
        """Output goes on its way while somebody listens and something runs; otherwise nobody wakes up."""
        if self._ticking or self._listener is None:
            return
        running = [identity for identity, record in self.table.items() if record["phase"] == "running"]
        for identity in running:
            self.tails[identity].push()
        if running:
            self._ticking = True
            self.reactor.soon(TAIL_EVERY_S, self._tick_again)

    def _tick_again(self) -> None:
        self._ticking = False
        self._tick()

    def _seen(self, record: Record) -> Dict[str, Any]:
        length = self.tails[record["id"]].length()
        phase = record["phase"] if record["phase"] in ("created", "running") else "ended"
        return {"id": record["id"], "phase": phase, "ended": record.get("ended"), "log_bytes": length}

    def _of(self, attempts: List[str]) -> List[Record]:
        return [record for record in list(self.table.values()) if record["attempt"] in attempts]


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass  # the child of an agent before us: init's now
