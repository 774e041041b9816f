"""On a machine with NVIDIA cards: they are found, and a process sees those it was granted and no others."""

from pathlib import Path

import pytest

from snakepit.engines.base import Granted, Usage
from tests.engines.bench import process, room, run, shell
from tests.waiting import await_until

CARDS = Path("/proc/driver/nvidia/gpus")
NUMBER = len(list(CARDS.iterdir())) if CARDS.exists() else 0
LOOK = """
echo "cards=$CUDA_VISIBLE_DEVICES"
ls /dev | grep -E '^nvidia[0-9]+$' | sed 's/^/device /'
cat /proc/driver/nvidia/gpus/*/information 2>/dev/null | grep UUID | sed 's/^/known /'
nvidia-smi -L 2>&1 | sed 's/^/smi /'
"""

pytestmark = pytest.mark.skipif(not CARDS.exists(), reason="no NVIDIA card here")


def test_a_granted_card_is_seen_and_no_other() -> None:
    async def story() -> None:
        async with room() as here:
            cards = (await here.engine.probe()).resources
            assert len(cards) == NUMBER
            assert all(card.uuid.startswith("GPU-") and card.memory_bytes > 1 << 30 for card in cards)
            card = cards[-1]
            ended, log = await here.run(shell(process(1), LOOK, granted=(Granted(card),)))
            assert ended.succeeded, log
            assert f"cards={card.uuid}\n" in log
            assert len([line for line in log.splitlines() if line.startswith("device ")]) == 1
            known = [line for line in log.splitlines() if line.startswith("known ")]
            assert len(known) == 1
            assert card.uuid in known[0]
            assert [card.uuid in line for line in log.splitlines() if line.startswith("smi GPU")] == [True]

    run(story())


def test_without_a_grant_no_card_is_seen() -> None:
    async def story() -> None:
        async with room() as here:
            _, log = await here.run(shell(process(1), LOOK))
            assert "cards=\n" in log
            assert "device " not in log
            assert "known " not in log
            assert "smi GPU" not in log

    run(story())


def test_use_of_cards_is_sampled() -> None:
    async def story() -> None:
        async with room() as here:
            cards = (await here.engine.probe()).resources
            await here.start(shell(process(1), "sleep 1000", granted=(Granted(cards[0]),)))

            def sampled() -> bool:
                return any(set(event.cards) == {card.index for card in cards} for event in usages())

            def usages() -> list[Usage]:
                return [event for event in here.watcher.events if isinstance(event, Usage)]

            await await_until(sampled, message="a sample of every card")

    run(story())
