"""A run that is killed at one of its messages, for the tests of every algorithm."""

from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Envelope
from siloweave.federation.site import FolderStore

WHERE = ("before the answer", "before the reply is kept", "after the answer")


class KilledError(RuntimeError):
    """The process is gone."""


class Tap:
    """Counts messages, keeps what was answered, and kills at one of them."""

    def __init__(self, patch, at=None, where=WHERE[0]):
        self.count, self.answers, self.at, self.where = 0, {}, at, where
        send, put = Direct.send, FolderStore.put

        def sent(transport, name, frame):
            self.count += 1
            if self.count == self.at and where == WHERE[0]:
                raise KilledError
            answer = send(transport, name, frame)
            envelope = messages.decode(frame, Envelope)
            if self.count == self.at and where == WHERE[2]:
                raise KilledError
            self.answers[envelope.run, name, envelope.step] = answer
            return answer

        def kept(store, name, data):
            if self.count == self.at and where == WHERE[1] and name.startswith("reply/"):
                raise KilledError
            put(store, name, data)

        patch.setattr(Direct, "send", sent)
        patch.setattr(FolderStore, "put", kept)
