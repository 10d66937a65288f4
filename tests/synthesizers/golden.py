"""What a tiny seeded run of every method sends, pays, draws and saves, as digests.

    python -m tests.synthesizers.golden

writes them anew into golden.json, with the settings of tests/conftest.py in the environment:
XLA_FLAGS and OPENBLAS_CORETYPE. With names of cases it writes these alone, such as those of a new
method. A change that is to change nothing leaves them as they are; one that changes a message, a
ledger, a row or a file on purpose writes them anew and says so.
"""

import inspect
import json
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from siloweave.core.run import Opener, open_here
from siloweave.federation.session import Closed, Session
from siloweave.tables import write
from tests.guarantees.whole import plain
from tests.synthesizers.processes import opened_by
from tests.synthesizers.test_visibility import CASES

FILE = Path(__file__).with_name("golden.json")
# Of a saved fit: hashes, keys, times, and types as this pandas names them.
_VOLATILE = ("ledgers", "heads", "phases", "types")


def digest(*parts: bytes) -> str:
    return blake2b(b"\0".join(parts), digest_size=12).hexdigest()


def arithmetic() -> str:
    """Of the machine's own floats, in JAX and in NumPy: digests compare where this is the same."""
    x = jax.random.normal(jax.random.key(0), (64, 64))
    found, y = jnp.tanh(x @ x.T / 8).sum(0), np.asarray(x, np.float64)
    floats = [(np.exp(one) @ np.log1p(one**2).T).tobytes() for one in (y, y[:37], np.asarray(x))]
    flags = os.environ.get("XLA_FLAGS", "")
    return digest(bytes(memoryview(found)), *floats, jax.__version__.encode(), flags.encode(),
                  platform.machine().encode())  # fmt: skip


class Wire:
    """Everything that crosses it, per kind of request."""

    def __init__(self) -> None:
        self.sent: dict[str, list[bytes]] = defaultdict(list)

    def listen(self, patch: pytest.MonkeyPatch) -> None:
        answered = Session._received

        def heard(session, asked, kind, crossed, answer):
            reply = answered(session, asked, kind, crossed, answer)
            if kind is not Closed:  # which has times and signatures; the ledgers are held below
                values = [plain(getattr(reply, field)) for field in reply.__struct_fields__]
                said = msgspec.msgpack.encode(values)
                self.sent[kind.__name__].append(digest(asked.body, said).encode())
            return reply

        patch.setattr(Session, "_received", heard)


def saved(fitted) -> dict[str, str]:
    """Files of a saved fit, without what no two runs have alike."""
    with TemporaryDirectory() as folder:
        fitted.save(folder)
        found = {}
        for path in sorted(Path(folder).rglob("*")):
            if path.is_dir():
                continue
            data = path.read_bytes()
            if path.suffix == ".json":
                facts = json.loads(data)
                if isinstance(facts, dict):
                    facts = {k: v for k, v in facts.items() if k not in _VOLATILE}
                data = json.dumps(facts, sort_keys=True).encode()
            if path.suffix == ".safetensors":  # whose header is in no order
                end = 8 + int.from_bytes(data[:8], "little")
                data = json.dumps(json.loads(data[8:end]), sort_keys=True).encode() + data[end:]
            name = str(path.relative_to(folder))
            found[name] = "" if path.suffix == ".parquet" else digest(data)
        return found


def golden(name: str, folder: Path | None = None, opener: Opener = open_here) -> dict[str, object]:
    """Return the digests of one case, whose parties an opener opens."""
    case = CASES[name]
    crossed = Wire()
    with pytest.MonkeyPatch.context() as patch, opened_by(opener):
        crossed.listen(patch)
        seeded = "noise" in inspect.signature(case.synth.fit).parameters
        named = {"noise": "seeded"} if seeded else {}
        fitted = case.synth.fit(case.data(0), case.schema, folder=folder, **case.fit, **named)
    paid = [
        [party, e.run, e.step, e.what, e.to, msgspec.to_builtins(e.event)]
        for party, entries in fitted.ledgers.items()
        for e in entries
    ]
    found: dict[str, object] = {
        "messages": {kind: [len(all_), digest(*all_)] for kind, all_ in crossed.sent.items()},
        "ledgers": digest(msgspec.json.encode(paid)),
        "saved": saved(fitted),
    }
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        if fitted.shared:
            tables = [fitted.sample_table(40, seed=1)]
        else:
            tables = list(fitted.part_tables(40, seed=1).values())
        rows = []
        for table in tables:
            write(table, file)
            rows.append(file.read_bytes())
        found["rows"] = digest(*rows)
    return found


def write_golden(names: Sequence[str]) -> None:
    """Write the digests of some cases into the file, or of all if none is named."""
    digests: dict[str, object] = {"arithmetic": arithmetic()}
    if names:
        digests = json.loads(FILE.read_text())
        if digests["arithmetic"] != arithmetic():
            sys.exit(
                f"{FILE.name} was made with other floats than these; set XLA_FLAGS and "
                "OPENBLAS_CORETYPE as tests/conftest.py does, or name no case to write all anew"
            )
    for name in names or CASES:
        digests[name] = golden(name)
    # In the order of the cases, however many were written.
    ordered = {name: digests[name] for name in ("arithmetic", *CASES) if name in digests}
    FILE.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    write_golden(sys.argv[1:])
