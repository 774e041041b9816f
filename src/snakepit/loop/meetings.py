"""Deciding about nodes and rights: a node is met again, goes, changes; users, groups and aliases change.

The same rules as in `decisions`: no IO, no waiting, one thing at a time.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from snakepit.core.job import Cause, Ended, ProcessId, State
from snakepit.core.placement import never_fits
from snakepit.core.request import Request
from snakepit.engines.base import Online
from snakepit.loop.decisions import Decisions
from snakepit.loop.deeds import Deeds
from snakepit.loop.live import Changes, Live, LiveAttempt, LiveJob
from snakepit.store import nodes

UNFULFILLABLE = "Cluster cannot fulfill resource request anymore"


class Meetings:
    def __init__(self, live: Live, deeds: Deeds, decisions: Decisions) -> None:
        self._live, self._deeds, self._decisions = live, deeds, decisions

    def online(self, changes: Changes, name: str, event: Online) -> None:
        """The node answers: what it does not know any more is lost, what it should not have is cleaned."""
        node = self._live.nodes.get(name)
        if node is None:
            return
        row = node.row
        new_life = bool(row.boot_id) and (row.boot_id, row.state_id) != (event.boot_id, event.state_id)
        if node.going_offline is not None:
            node.going_offline.cancel()
            node.going_offline = None
        node.online = True
        self.node_changed(changes, name)
        changes.write(None, nodes.set_online, name, True, changes.now)
        changes.write(None, nodes.set_life, name, event.boot_id, event.state_id)
        node.row = replace(row, boot_id=event.boot_id, state_id=event.state_id)
        seen = {each.id for each in event.seen}
        why = "the node was restarted" if row.boot_id != event.boot_id else "the node lost its memory of it"
        for job, attempt in self._live.attempts_on(name):
            self._meet_again(changes, job, attempt, name, seen, new_life, why)
        strangers = {id.attempt for id in seen if self._live.attempt(id.attempt) is None}
        if strangers:
            changes.acts.append(self._deeds.clean_on(name, sorted(strangers)))

    def offline(self, changes: Changes, name: str, reason: str) -> None:
        """No new starts there; said to everybody only when it lasts."""
        if (node := self._live.nodes.get(name)) is not None and node.online:
            node.online = False
            self.node_changed(changes, name)

    def node_changed(self, changes: Changes, name: str) -> None:
        node = self._live.nodes.get(name)
        if node is None:
            self._live.free.remove_node(name)
        else:
            self._live.free.set_node(node.core())
        self._decisions.replan()

    def access_changed(
        self,
        changes: Changes,
        groups_of: dict[str, frozenset[str]],
        aliases: dict[str, str],
        answer: asyncio.Future[None],
    ) -> None:
        """Users, groups, aliases or rights on resources changed: waiting jobs get their new classes, and those that
        can no longer be satisfied are stopped."""
        self._live.groups_of = groups_of
        self._live.aliases = aliases
        self._live.free.set_aliases(aliases)
        for job in list(self._live.jobs.values()):
            job.who = self._live.who(job.row.user)
            if self._live.queue.remove(job.id, 0) is not None:
                self._live.enqueue(job)
        self._stop_unfulfillable(changes)
        self._decisions.replan()
        changes.answers.append((answer, None))

    def _meet_again(
        self,
        changes: Changes,
        job: LiveJob,
        attempt: LiveAttempt,
        node: str,
        seen: set[ProcessId],
        new_life: bool,
        why: str,
    ) -> None:
        if attempt.starting is not None:
            return None
        if job.state is State.STARTING and not new_life:
            return self._decisions.start(changes, job, attempt)
        lost = Ended(Cause.LOST, None, f"{node}: {why}")
        missing = [process.id for process in attempt.on(node) if process.ended is None and process.id not in seen]
        if job.state is State.STARTING:
            for process in attempt.on(node):
                self._decisions.ended(changes, process.id, lost)
        elif missing:
            # What was seen may be older than a start that came through since: look again before it is called lost.
            changes.acts.append(self._deeds.look_for(node, missing, lost))
        if job.attempt is attempt and (job.state is State.STOPPING or attempt.ending):
            self._decisions.stop_attempt(changes, attempt, Cause.STOPPED, job.reason)
        return None

    def _stop_unfulfillable(self, changes: Changes) -> None:
        cores = [node.core() for node in self._live.nodes.values()]
        verdicts: dict[tuple[Request, frozenset[str]], bool] = {}
        for job in list(self._live.jobs.values()):
            if job.state > State.WAITING:
                continue
            key = (job.request, job.who.groups)
            if key not in verdicts:
                verdicts[key] = never_fits(job.request, cores, self._live.aliases, job.who) is not None
            if verdicts[key]:
                self._decisions.end(changes, job, UNFULFILLABLE)
