"""A party whose answers are changed on their way, for the tests of what a coordinator checks."""

import msgspec

from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Envelope, Masked, Public, Released, reply_type
from tests.federation.sites import handlers_of
from tests.federation.small import reply_in, with_reply


def lie(patch, party, question, **changes):
    """Change fields of what a party answers to a kind of question; each change gets the value."""
    send = Direct.send

    def sent(transport, name, frame):
        answer = send(transport, name, frame)
        request = messages.decode_request(
            messages.decode(frame, Envelope).body, handlers_of(transport)
        )
        if name != party or type(request).__name__ != question:
            return answer
        reply = reply_in(answer, reply_type(type(request)))
        fields = {f: changed(getattr(reply, f), change) for f, change in changes.items()}
        return with_reply(answer, msgspec.structs.replace(reply, **fields))

    patch.setattr(Direct, "send", sent)


def sealed_whole(change):
    """A change of all that a field holds, seals included."""
    change.whole = True
    return change


def changed(sealed, change):
    """The value inside a seal, changed; of a tuple of seals, all of them."""
    if getattr(change, "whole", False):
        return change(sealed)
    if isinstance(sealed, tuple):
        return tuple(changed(one, change) for one in sealed)
    if isinstance(sealed, Masked):
        return msgspec.structs.replace(sealed, words=change(sealed.words))
    assert isinstance(sealed, Public | Released)
    return msgspec.structs.replace(sealed, value=change(sealed.value))
