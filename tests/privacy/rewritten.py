"""A ledger as somebody would write it anew who knows the format."""

import msgspec

from siloweave.privacy import ledger as module
from siloweave.privacy.events import Gaussian


def resealed(path, *, first=1, key=None):
    """Write a ledger anew with a thousand times the noise, and seal all lines; sign with `key`."""
    header, *entries = path.read_bytes().splitlines()
    if key is not None:
        bare = module._headers.decode(header)
        header = module._sign(msgspec.structs.replace(bare, key=key.public), key)[1]
    written = [header]
    for number, line in enumerate(entries, start=1):
        if number < first:
            written.append(line)
            continue
        entry = msgspec.structs.replace(
            module._entries.decode(line),
            event=Gaussian(sigma=2000.0, sensitivity=1.0),
            previous=module._digest(written[-1]),
        )
        entry = module._seal(entry)
        written.append(module._sign(entry, key)[1] if key else module._encoder.encode(entry))
    path.write_bytes(b"\n".join(written) + b"\n")
