"""What a SuperLink of ours reads of whom, and how much at a time."""

import asyncio
from collections import Counter

import pytest

from siloweave.federation.gate import Gate, Lane, for_nodes, for_strangers


class Sender:
    """Someone who sends a body in parts, and what is answered; a part that is None never comes."""

    def __init__(self, *parts, known=False, size=None):
        self.parts, self.answers, self.is_read = list(parts), [], 0
        size = sum(map(len, filter(None, parts))) if size is None else size
        self.scope = {"headers": [(b"content-length", str(size).encode())]}
        if known:
            self.scope["headers"].append((b"known", b"1"))

    async def receive(self):
        if not self.parts:
            await asyncio.Event().wait()
        part = self.parts.pop(0)
        if part is None:
            await asyncio.Event().wait()
        self.is_read += len(part)
        return {"type": "http.request", "body": part, "more_body": bool(self.parts)}

    async def send(self, part):
        if part["type"] == "http.response.start":
            self.answers.append(part["status"])


class Application:
    """Notes bodies, and answers once it may."""

    def __init__(self):
        self.bodies, self.may_answer = [], asyncio.Event()

    async def __call__(self, scope, receive, send):
        part = await receive()
        assert not part["more_body"]
        self.bodies.append(part["body"])
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200})


def gate_of(app, nodes=None, strangers=None):
    return Gate(
        app, lambda headers: b"known" in headers, nodes or for_nodes(100), strangers or lane()
    )


def lane(**named):
    return Lane(
        **{"largest": 10, "total_bytes": 30, "at_once": 4, "seconds": 5.0, "waits": False, **named}
    )


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


async def sent(gate, senders, app):
    """Let all send at once; how many bodies were held before one was answered."""
    tasks = [asyncio.create_task(gate(one.scope, one.receive, one.send)) for one in senders]
    await settled()
    held = len(app.bodies)
    app.may_answer.set()
    await asyncio.gather(*tasks)
    return held


def test_few_strangers_are_read_at_a_time_and_others_are_refused():
    async def all_():
        app = Application()
        gate, senders = gate_of(app), [Sender(b"12345") for _ in range(100)]
        assert await sent(gate, senders, app) == 4
        assert sum(one.is_read for one in senders) == 20
        assert Counter(status for one in senders for status in one.answers) == {200: 4, 503: 96}
        app.may_answer.set()
        again = Sender(b"12345")
        await gate(again.scope, again.receive, again.send)
        assert again.answers == [200]

    asyncio.run(all_())


def test_a_node_waits_for_room_and_strangers_take_none_of_it():
    async def all_():
        app = Application()
        gate = gate_of(app, lane(largest=100, total_bytes=250, waits=True))
        strangers = [Sender(b"12345") for _ in range(50)]
        nodes = [Sender(bytes(60), bytes(40), known=True) for _ in range(9)]
        assert await sent(gate, [*strangers, *nodes], app) == 4 + 2
        assert [one.answers for one in nodes] == [[200]] * 9

    asyncio.run(all_())


@pytest.mark.parametrize("known", [True, False])
def test_a_body_that_is_too_large_is_refused_unread(known):
    async def all_():
        app = Application()
        one = Sender(bytes(101), known=known)
        await gate_of(app)(one.scope, one.receive, one.send)
        assert (one.answers, one.is_read, app.bodies) == ([413], 0, [])
        one.scope["headers"] = one.scope["headers"][1:]  # no length at all
        await gate_of(app)(one.scope, one.receive, one.send)
        assert (one.answers, one.is_read) == ([413, 413], 0)

    asyncio.run(all_())


def test_a_body_that_does_not_come_gives_its_room_back():
    async def all_():
        app = Application()
        gate = gate_of(app, strangers=lane(seconds=0.01))
        app.may_answer.set()
        slow = [Sender(b"1", None, size=5) for _ in range(4)]
        await asyncio.gather(*(gate(one.scope, one.receive, one.send) for one in slow))
        assert [one.answers for one in slow] == [[408]] * 4
        quick = Sender(b"12345")
        await gate(quick.scope, quick.receive, quick.send)
        assert quick.answers == [200]

    asyncio.run(all_())


def test_a_thousand_strangers_take_less_than_two_megabytes():
    async def all_():
        app = Application()
        gate = gate_of(app, strangers=for_strangers())
        senders = [Sender(bytes(2**16)) for _ in range(1000)]
        await sent(gate, senders, app)
        assert sum(one.is_read for one in senders) <= 2**20

    asyncio.run(all_())
