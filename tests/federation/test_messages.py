import struct
import subprocess
import sys
import tracemalloc

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siloweave.errors import WireError
from siloweave.federation import messages
from siloweave.federation.messages import (
    Array,
    Envelope,
    Masked,
    Public,
    Released,
    Reply,
    Request,
    reply_type,
)
from siloweave.privacy.events import Gaussian
from tests.federation.small import HANDLERS, WHY, Ask, Hello, Key, Part, Size, Sum, frame, site_of

EVENT = Gaussian(sigma=50.0, sensitivity=1.0)
ARRAY = Array.of(np.arange(6.0).reshape(2, 3), "<f8")
MESSAGES = [
    (Envelope("r1", 3, "coordinator", "clinic", messages.encode(Ask(2.0))), Envelope),
    (Size(Released(7, "ab" * 32, bytes(32)), Public("é", WHY)), Size),
    (Part(Masked(Array.of(np.arange(5), "<u4"), "ab" * 32, bytes(32))), Part),
    (ARRAY, Array),
]
IDS = ["envelope", "released", "masked", "array"]


@pytest.mark.parametrize(("message", "kind"), MESSAGES, ids=IDS)
def test_what_is_sent_comes_back(message, kind):
    assert messages.decode(messages.encode(message), kind) == message


@pytest.mark.parametrize(("message", "kind"), MESSAGES, ids=IDS)
def test_a_message_cut_at_any_byte_is_refused(message, kind):
    data = messages.encode(message)
    for length in range(len(data)):
        with pytest.raises(WireError, match=f"not a {kind.__name__}"):
            messages.decode(data[:length], kind)
    with pytest.raises(WireError, match="not a"):
        messages.decode(data + b"\0", kind)


@pytest.mark.parametrize(("message", "kind"), MESSAGES, ids=IDS)
def test_any_other_byte_anywhere_is_refused_or_still_a_message(message, kind):
    data = messages.encode(message)
    refused = 0
    for i in range(len(data)):
        for byte in range(256):
            try:
                assert isinstance(
                    messages.decode(data[:i] + bytes([byte]) + data[i + 1 :], kind), kind
                )
            except WireError:
                refused += 1
    assert refused > len(data)


@given(st.binary(max_size=200))
def test_noise_is_refused(data):
    for _, kind in MESSAGES:
        with pytest.raises(WireError):
            messages.decode(data, kind)
    with pytest.raises(WireError):
        messages.decode_request(data, HANDLERS)


HUGE = 2**32 - 1
FORGED = {
    "array of four billion": b"\xdd" + struct.pack(">I", HUGE),
    "map of four billion": b"\xdf" + struct.pack(">I", HUGE),
    "text of four billion bytes": b"\xdb" + struct.pack(">I", HUGE),
    "bytes of four billion": b"\xc6" + struct.pack(">I", HUGE),
}
OPENINGS = {
    "at the start": (b"", Array),
    "as the shape": (b"\x83\xa5dtype\xa3<f8\xa5shape", Array),
    "as the data": (b"\x83\xa5dtype\xa3<f8\xa5shape\x90\xa4data", Array),
    "as a dictionary": (b"\x83\xa4type\xa3Sum\xa4keys", Sum),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize(("opening", "kind"), OPENINGS.values(), ids=OPENINGS)
def test_a_forged_length_allocates_nothing(opening, kind, forged):
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            messages.decode(opening + forged + b"\x01" * 20, kind)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(2**40,), (2**32, 2**32), (7,), (-1, -6), (1,) * 33, (3, 3)])
def test_a_forged_shape_is_refused_before_it_is_used(shape):
    forged = msgspec.to_builtins(ARRAY, builtin_types=(bytes,)) | {"shape": shape}
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="an array"):
            messages.decode(msgspec.msgpack.encode(forged), Array)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_deep_nesting_is_refused():
    for opening in (b"\x91", b"\x81\xa1a"):
        with pytest.raises(WireError):
            messages.decode(opening * 100_000, Array)


def test_arrays_keep_shape_and_type_and_refuse_what_is_not_finite():
    np.testing.assert_array_equal(ARRAY.numpy(), np.arange(6.0).reshape(2, 3))
    assert Array.of(np.zeros((0, 3)), "<i8").numpy().shape == (0, 3)
    assert Array.of(np.array(5), "<u4").numpy() == 5
    with pytest.raises(ValueError, match="read-only"):
        ARRAY.numpy()[0, 0] = 1.0
    for value in (np.nan, np.inf):
        with pytest.raises(WireError, match="not finite"):
            Array.of(np.array([value]), "<f8").numpy()
    strange = msgspec.to_builtins(ARRAY, builtin_types=(bytes,)) | {"dtype": "|O"}
    with pytest.raises(WireError, match="not a Array"):
        messages.decode(msgspec.msgpack.encode(strange), Array)


def test_what_is_too_large_is_refused_both_ways(monkeypatch):
    data = messages.encode(ARRAY)
    monkeypatch.setattr(messages, "MAX_BYTES", len(data))
    assert messages.decode(messages.encode(ARRAY), Array) == ARRAY
    monkeypatch.setattr(messages, "MAX_BYTES", len(data) - 1)
    with pytest.raises(WireError, match="exceeds"):
        messages.encode(ARRAY)
    with pytest.raises(WireError, match="refused unread"):
        messages.decode(data, Array)


class Numbers(Reply, frozen=True):
    values: Public[tuple[int, ...]]


class Triples(Reply, frozen=True):
    values: Public[tuple[tuple[int, int, int], ...]]


class Texts(Reply, frozen=True):
    values: Public[tuple[str, ...]]


class Keyed(Reply, frozen=True):
    values: Public[dict[str, bytes]]


DENSE = {
    "numbers of a byte": (Numbers, (1,)),
    "numbers of three": (Numbers, range(1000, 30_000)),
    "lists of three": (Triples, ((1, 2, 3),)),
    "short texts": (Texts, [f"{i:02d}" for i in range(100)]),
    "keys": (Keyed, None),
}


def dense(kind, values, items):
    """A message of about so many items."""
    if kind is Keyed:
        return kind(Public({chr(160 + i // 90) + chr(33 + i % 90): b"" for i in range(items)}, WHY))
    each = 4 if kind is Triples else 1
    return kind(Public(tuple(values[i % len(values)] for i in range(items // each)), WHY))


@pytest.mark.parametrize(("kind", "values"), DENSE.values(), ids=DENSE)
def test_many_small_items_are_refused_before_they_take_memory(kind, values, monkeypatch):
    """A number of one byte takes seventeen in memory, so the bytes of a message bound nothing."""
    monkeypatch.setattr(messages, "MAX_ITEMS", 20_000)
    fits = msgspec.msgpack.encode(dense(kind, values, 9_000))
    too_many = msgspec.msgpack.encode(dense(kind, values, 21_000))
    tracemalloc.start()
    try:
        messages.decode(fits, kind)
        assert tracemalloc.get_traced_memory()[1] < 80 * 20_000
        tracemalloc.reset_peak()
        kept = tracemalloc.get_traced_memory()[0]
        with pytest.raises(WireError, match="more than 20,000 items"):
            messages.decode(too_many, kind)
        assert tracemalloc.get_traced_memory()[1] < kept + 20_000
    finally:
        tracemalloc.stop()
    with pytest.raises(WireError, match="more than 20,000 items"):
        messages.encode(dense(kind, values, 21_000))


LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.binary() | st.sampled_from(["x" * 40, "x" * 300, "x" * 70_000, b"x" * 300, b"x" * 70_000])
)  # fmt: skip
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=40
) | st.sampled_from([[None] * 20, [1.5] * 70_000, {str(i): i for i in range(70_000)}])


def items_in(tree):
    if isinstance(tree, list):
        return 1 + sum(map(items_in, tree))
    if isinstance(tree, dict):
        return 1 + sum(1 + items_in(value) for value in tree.values())
    return 1


@given(TREES)
def test_items_are_counted_as_they_are_decoded(tree):
    data, count = msgspec.msgpack.encode(tree), items_in(tree)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "MAX_ITEMS", count)
        assert messages.decode(data, object) is not msgspec.UNSET
        patch.setattr(messages, "MAX_ITEMS", count - 1)
        if len(data) >= count:
            with pytest.raises(WireError, match="items"):
                messages.decode(data, object)


def test_json_of_many_items_is_refused(monkeypatch):
    text = msgspec.json.encode([{"a": [1.0, 2.0]}, "x"])
    monkeypatch.setattr(messages, "MAX_ITEMS", 7)
    messages.check_json(text)
    monkeypatch.setattr(messages, "MAX_ITEMS", 6)
    with pytest.raises(WireError, match="JSON of 7 items exceeds 6"):
        messages.check_json(text)


def test_a_message_of_another_type_is_refused():
    for message, _ in MESSAGES:
        for _, kind in MESSAGES:
            if not isinstance(message, kind):
                with pytest.raises(WireError, match=f"not a {kind.__name__}"):
                    messages.decode(messages.encode(message), kind)
    with pytest.raises(WireError, match="not a"):
        messages.decode_request(messages.encode(Ask(1.0)), {Hello: HANDLERS[Hello]})
    assert messages.decode_request(messages.encode(Ask(1.0)), HANDLERS) == Ask(1.0)


def test_a_request_names_its_reply():
    assert reply_type(Ask) is Size
    with pytest.raises(TypeError, match="must derive from Request"):
        reply_type(Request)


class Loose(Reply, frozen=True):
    value: object


def seal_error(value):
    site = site_of()
    with pytest.raises(WireError, match=r"Loose\.value is not sealed"):
        messages.check_sealed(Loose(value), site.sealed_here)


@pytest.mark.parametrize("value", [3, b"rows", None, [], {"a": 1}, (1,)], ids=repr)
def test_a_field_without_a_seal_is_refused(value):
    seal_error(value)


def test_lists_and_nested_values_do_not_hide_what_is_not_sealed():
    site = site_of()
    paid = site.release(EVENT, "x", lambda: 3)
    messages.check_sealed(Loose(paid), site.sealed_here)
    messages.check_sealed(Loose((paid, Public(1, WHY))), site.sealed_here)
    for hidden in ([paid], {"a": paid}, (paid, 3), ((paid,),)):
        with pytest.raises(WireError, match="not sealed"):
            messages.check_sealed(Loose(hidden), site.sealed_here)


def test_a_release_of_another_site_is_refused():
    seal_error(site_of().release(EVENT, "x", lambda: 3))
    seal_error(site_of("other").release(EVENT, "x", lambda: 3))


def test_a_forged_release_is_refused():
    site = site_of()
    paid = site.release(EVENT, "x", lambda: 3)
    words = Array.of(np.arange(3), "<u4")
    forgeries = [
        msgspec.structs.replace(paid, value=4),
        msgspec.structs.replace(paid, entry="0" * 64),
        msgspec.structs.replace(paid, seal=bytes(32)),
        Released(3, paid.entry, b""),
        Masked(words, paid.entry, paid.seal),
    ]
    for forged in forgeries:
        assert not site.sealed_here(forged)
        with pytest.raises(WireError, match="not sealed"):
            messages.check_sealed(Loose(forged), site.sealed_here)


def test_a_handler_that_sends_rows_gets_nothing_out():
    leaks = {
        "raw": lambda request, site: Key(site.rows),
        "own seal": lambda request, site: Size(Released(3, "0" * 64, bytes(32)), Public("", WHY)),
    }
    for leak in leaks.values():
        site = site_of()
        with pytest.raises(WireError, match="not sealed"):
            site.answer(frame(Ask(9.0)), {Ask: leak})
        assert site.answer(frame(Ask(50.0)), HANDLERS)  # nothing was stored for this step


# A coordinator reads the replies of several parties in threads. Up to 0.22, msgspec let a thread
# use a type whose fields another thread had not all set: a NULL pointer, which ends the process.
_FIRST_READS = """
import sys
from threading import Barrier, Thread
import msgspec

sys.setswitchinterval(1e-6)
for _ in range(200):
    class Inner(msgspec.Struct):
        names: tuple[str, ...]
        counts: dict[str, int]
    class Outer(msgspec.Struct):
        inner: Inner
        inners: tuple[Inner, ...]
        word: str | None
    inner = Inner(("a",), {"b": 1})
    outer = Outer(inner, (inner, inner), None)
    data = msgspec.msgpack.encode(outer)
    barrier = Barrier(4)
    def read():
        barrier.wait()
        assert msgspec.msgpack.decode(data, type=Outer) == outer
    threads = [Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_a_type_can_be_read_for_the_first_time_in_several_threads():
    done = subprocess.run([sys.executable, "-c", _FIRST_READS], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
