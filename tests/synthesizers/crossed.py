"""What crossed the wire in a run, and whether a method's lines of visibility tell of it truly."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import msgspec

from siloweave.core.views import OTHERS
from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Envelope, Masked, Public, Relayed, reply_type
from siloweave.privacy.events import NonPrivate
from tests.federation.sites import handlers_of


@dataclass
class Crossed:
    """All messages of a run.

    Attributes:
        replies: Per field of a reply, what protected it: "nothing", "noise", "masks", or "keys" of
            others.
        requests: Per request and field, the values that were sent.
        public: Values that parties sent as independent of their rows, such as keys.
        parties: Who was asked.
        asked: How often each question was asked: by run, party and tag.
        along: How many brought the next one along.
    """

    replies: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    requests: dict[str, dict[str, set[bytes]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    public: set[bytes] = field(default_factory=set)
    parties: set[str] = field(default_factory=set)
    asked: Counter = field(default_factory=Counter)
    along: int = 0

    def listen(self, patch):
        """Note everything that parties in this process are asked and answer."""
        send = Direct.send

        def sent(transport, name, frame):
            answer = send(transport, name, frame)
            self._note(transport, name, frame, answer)
            return answer

        patch.setattr(Direct, "send", sent)

    def _note(self, transport, name, frame, answer):
        self.parties.add(name)
        envelope = messages.decode(frame, Envelope)
        asked = messages.decode_request(envelope.body, handlers_of(transport))
        self.asked[envelope.run, name, asked.__struct_config__.tag] += 1
        if envelope.then:
            self.along += 1
        for part in asked.__struct_fields__:
            sent = self.requests[type(asked).__name__][part]
            value = getattr(asked, part)
            sent |= {
                _bytes(one) for one in (value.values() if isinstance(value, dict) else [value])
            }
        events = {entry.hash: entry.event for entry in transport.parties[name].ledger.entries}
        reply = messages.decode(messages.decode(answer, Envelope).body, reply_type(type(asked)))
        for part in reply.__struct_fields__:
            value = getattr(reply, part)
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Public):
                    self.public.add(_bytes(item.value))
                    continue
                if isinstance(item, Relayed):
                    self.replies[f"{type(reply).__name__}.{part}"].add("keys")
                    continue
                bare = isinstance(events[item.entry], NonPrivate)
                noisy = "masks" if isinstance(item, Masked) else "noise"
                self.replies[f"{type(reply).__name__}.{part}"].add("nothing" if bare else noisy)


def _bytes(value):
    return msgspec.msgpack.encode(value)


def following_rows(one, other):
    """Requests that were not the same in two runs that differ in their rows (and their noise)."""
    public = one.public | other.public
    return {
        request
        for request in one.requests.keys() | other.requests.keys()
        for part in one.requests[request].keys() | other.requests[request].keys()
        if (one.requests[request][part] ^ other.requests[request][part]) - public
    }


def problems(info, one, other=None):
    """What is wrong with a method's lines.

    Args:
        info: What a fit states.
        one: Its messages.
        other: Those of a fit to other rows; where there is one party alone, nobody else is asked.
    """
    found, known, several = [], {}, len(one.parties) > 1
    for view in info.visibility:
        for name in view.carries:
            if name in known:
                found.append(f"two lines cover {name}")
            known[name] = view
    for name, kinds in one.replies.items():
        found += _of_reply(name, kinds, known.get(name), several)
    sent = following_rows(one, other) if other else set()
    found += [f"no line covers {n}" for n in sent if n not in known or known[n].who != OTHERS]
    there = one.replies.keys() | (one.requests.keys() if several else set())
    found += [f"{name} never crosses" for name in known.keys() - there]
    bare = any("nothing" in kinds for kinds in one.replies.values())
    for view in info.visibility:
        derived = (view.who == OTHERS and view.carries) or (
            view.who == "readers" and not view.carries
        )
        if derived and _bare(view) != bare:
            found.append(f"{view.who} are {'' if bare else 'not '}shown what nothing protects")
    if bare == (info.guarantee == "dp"):
        found.append(f"the guarantee is {info.guarantee!r}")
    return found


def _of_reply(name, kinds, view, several):
    if view is None or view.who == OTHERS:
        return [f"no line covers {name}"]
    found = []
    if _bare(view) != ("nothing" in kinds):
        found.append(f"{name} is protected by {view.protected_by!r}, in truth by {kinds}")
    for kind in ("masks", "keys"):
        if (kind in view.protected_by) != (several and kind in kinds):
            found.append(f"{name} is under {kinds}, and not protected by {view.protected_by!r}")
    return found


def _bare(view):
    return view.protected_by.startswith("nothing")
