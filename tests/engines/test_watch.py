"""Whoever watches a node can be called off at any moment."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from snakepit.engines.agent_client import AgentEngine


def test_a_watch_ends_also_when_a_word_comes_at_the_moment_it_is_called_off() -> None:
    async def story() -> None:
        link: Any = SimpleNamespace(events=asyncio.Queue())
        engine = AgentEngine(cast("Any", None), "c", 1, {})
        watching = asyncio.create_task(engine._next_word(link))
        for _ in range(3):
            await asyncio.sleep(0)
        link.events.put_nowait(({}, b""))
        watching.cancel()
        await asyncio.wait([watching])
        assert watching.cancelled()

    asyncio.run(story())
