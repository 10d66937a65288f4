import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from siloweave.errors import WireError
from siloweave.federation import masking, messages
from siloweave.federation.messages import Envelope
from siloweave.federation.site import FolderStore, MemoryStore
from siloweave.privacy import mechanisms
from siloweave.privacy.events import SharedGaussian
from tests.federation.small import (
    HANDLERS,
    Hello,
    Key,
    Part,
    Sum,
    frame,
    masked_sum,
    reply_in,
    session_of,
    site_of,
)

SURE = 1e-6
NAMES = ("a", "b", "c")


def cohort(names=NAMES):
    """Shared secrets of every party with every other."""
    secrets = {n: masking.new_secret() for n in names}
    keys = {n: masking.public_key(s) for n, s in secrets.items()}
    return {n: masking.agree_with(secrets[n], {p: keys[p] for p in names if p != n}) for n in names}


def uniform_p(words, bits=8):
    """Chi-squared test that the leading bits of 32-bit words are uniform."""
    counts = np.bincount(np.asarray(words, np.uint32) >> (32 - bits), minlength=2**bits)
    expected = counts.sum() / 2**bits
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), 2**bits - 1))


@given(
    st.lists(st.text(max_size=8), min_size=1, max_size=6, unique=True),
    st.binary(max_size=20),
    st.integers(0, 200),
)
def test_masks_of_a_cohort_cancel(names, context, size):
    shared = cohort(names)
    total = sum(
        (masking.mask(n, shared[n], context, size) for n in names), np.zeros(size, np.uint32)
    )
    assert total.dtype == np.uint32
    assert not total.any()


def test_both_sides_agree_and_nobody_else_does():
    shared = cohort()
    assert shared["a"]["b"] == shared["b"]["a"]
    assert len({shared["a"]["b"], shared["a"]["c"], shared["b"]["c"]}) == 3


def test_another_context_gives_unrelated_words():
    shared = cohort()
    first, again, other = (
        masking.mask("a", shared["a"], c, 50_000) for c in (b"r/1", b"r/1", b"r/2")
    )
    np.testing.assert_array_equal(first, again)
    assert (first == other).sum() < 5
    assert uniform_p(first - other) > SURE
    assert uniform_p(first ^ other) > SURE


def test_words_are_uniform_whatever_the_counts():
    shared = cohort()
    counts = np.arange(60_000) % 7
    assert uniform_p(counts) < SURE
    for name in NAMES:
        words = masking.masked(counts, masking.mask(name, shared[name], b"x", counts.size))
        for shift in (0, 8, 16, 24):
            assert uniform_p(words << shift) > SURE


def same_distribution_p(one, two, bits=4):
    """Chi-squared test of two samples: leading bits of two words together."""
    tables = [
        np.bincount((v[0] >> (32 - bits) << bits) + (v[1] >> (32 - bits)), minlength=4**bits)
        for v in (one, two)
    ]
    both = tables[0] + tables[1]
    statistic = ((tables[0] - tables[1]) ** 2 / np.maximum(both, 1)).sum()
    return float(chi2.sf(statistic, (both > 0).sum() - 1))


def view(values, size=40_000, *, masks=True):
    """What the coordinator sees: each party says one number `size` times."""
    shared = cohort()
    return [
        masking.masked(np.full(size, v), masking.mask(n, shared[n], b"x", size) * masks)
        for n, v in zip(NAMES, values, strict=True)
    ]


def test_inputs_of_equal_sum_cannot_be_told_apart():
    far = 2**29
    one, two = (far, -far, 5), (-far, far + 4, 1)
    views = [view(one), view(two)]
    for seen in views:
        np.testing.assert_array_equal(masking.unmask_sum(seen), np.full(40_000, 5))
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        pairs = [(seen[i], seen[j]) for seen in views]
        assert same_distribution_p(*pairs) > SURE
    bare = [view(v, masks=False) for v in (one, two)]
    assert same_distribution_p(bare[0][:2], bare[1][:2]) < SURE


def test_inputs_of_another_sum_are_told_apart_by_the_sum_alone():
    np.testing.assert_array_equal(masking.unmask_sum(view((1, 2, 3)))[:2], [6, 6])
    np.testing.assert_array_equal(masking.unmask_sum(view((-1, -2, -4)))[:2], [-7, -7])


@pytest.mark.parametrize("parties", [1, 2, 3, 100])
def test_counts_are_cut_so_that_no_sum_overflows(parties):
    most = masking.room(parties, 50.0)
    assert 2**31 // parties - 1000 < most < 2**31 // parties - 50 * 13
    words = np.zeros(2, np.uint32)
    largest = masking.cut(np.array([2**62, -(2**63)]), most)
    np.testing.assert_array_equal(largest, [most, -most])
    parts = [masking.masked(largest + 13 * 50, words)] * parties
    np.testing.assert_array_equal(masking.unmask_sum(parts), parties * (largest + 13 * 50))


def test_noise_that_fills_a_masked_sum_is_refused():
    with pytest.raises(
        WireError, match=r"width 1e\+09 is too wide for a masked sum over 2 parties"
    ):
        masking.room(2, 1e9)


SMALL_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


@pytest.mark.parametrize("key", [*SMALL_ORDER, b"", bytes(31), bytes(33)], ids=bytes.hex)
def test_a_key_that_gives_no_secret_is_refused(key):
    with pytest.raises(WireError, match="not usable"):
        masking.agree_with(masking.new_secret(), {"peer": key})


def test_sums_of_nobody_and_of_different_shapes_are_refused():
    with pytest.raises(WireError, match="no party answered"):
        masking.unmask_sum([])
    with pytest.raises(WireError, match="cannot be added"):
        masking.unmask_sum([np.zeros(2, np.uint32), np.zeros(3, np.uint32)])


def test_a_sum_over_sites_is_exact_but_for_the_noise():
    rows = [[1, 2, 300], [10, 20, 0], [-4, 0, 7]]
    session = session_of([site_of(n, r) for n, r in zip(NAMES, rows, strict=True)])
    words, total = masked_sum(session, share_sigma=20.0)
    assert (np.abs(total - [7, 22, 307]) < 8 * 20 * 3**0.5).all()
    assert all(w.dtype == np.uint32 for w in words)
    partial = masking.unmask_sum(words[:2])
    assert (np.abs(partial) > 10_000).any()


def test_a_party_alone_adds_its_noise_unmasked():
    _, total = masked_sum(session_of([site_of("a", [5, 6])]), share_sigma=20.0)
    assert (np.abs(total - [5, 6]) < 160).all()


def test_a_stream_is_never_used_for_two_messages(monkeypatch):
    """Two masked releases in one step, or in two steps, differ by no readable number."""
    monkeypatch.setattr(mechanisms, "add_gaussian", lambda counts, sigma, entropy: counts)
    one, other = (site_of(n, np.zeros(20_000, np.int64)) for n in ("a", "b"))
    keys = {
        s.name: reply_in(s.answer(frame(Hello(), to=s.name), HANDLERS), Key).key.value
        for s in (one, other)
    }
    event = SharedGaussian(
        share_sigma=20.0, shares=2, tolerated=1, sensitivity=1.0, dimension=20_000
    )
    seen = []

    def twice(request, site):
        parts = [site.release_masked(event, "counts", site.rows, request.keys) for _ in range(2)]
        seen.append([p.words.numpy() for p in parts])
        return Part(parts[0])

    shown = {}
    for step in (1, 2):
        before = dict(shown)
        for site, peer in ((one, other), (other, one)):
            asked = messages.decode(frame(Sum(keys, 20.0), step=step, to=site.name), Envelope)
            proofs = {peer.name: before[peer.name, site.name]} if before else {}
            asked = messages.encode(msgspec.structs.replace(asked, proofs=proofs))
            made = reply_in(site.answer(asked, {Sum: twice}), Part).sums
            shown |= {(site.name, reader): proof for reader, proof in made.proofs.items()}
    seen = seen[::2] + seen[1::2]
    streams = [words for parts in seen[:2] for words in parts]
    for i, first in enumerate(streams):
        assert uniform_p(first) > SURE
        for second in streams[i + 1 :]:
            assert uniform_p(first - second) > SURE
    for mine, theirs in zip(streams, [w for parts in seen[2:] for w in parts], strict=True):
        assert not (mine + theirs).any()


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_keys_belong_to_a_run_and_survive_a_restart(kind, tmp_path):
    def store():
        return MemoryStore() if kind == "memory" else FolderStore(tmp_path)

    def key(site, run, step=0):
        reply = site.answer(frame(Hello(), run=run, step=step), HANDLERS)
        return reply_in(reply, Key).key.value

    site = site_of(store=store())
    assert key(site, "r1") != key(site, "r2")
    assert key(site, "r1", 1) == key(site, "r1", 2)
    if kind == "folder":
        assert key(site_of(store=store()), "r1", 3) == key(site, "r1", 1)


def test_a_peer_that_keeps_its_key_over_two_runs_still_cancels(monkeypatch):
    secrets = iter([bytes([i]) * 32 for i in (1, 2, 3, 2)])
    monkeypatch.setattr(masking, "new_secret", lambda entropy: next(secrets))
    one, peer = site_of("a", [4]), site_of("b", [5])
    for run in ("r1", "r2"):
        _, total = masked_sum(session_of([one, peer], run=run), share_sigma=20.0)
        assert abs(int(total[0]) - 9) < 300


# Many seeds


def test_bytes_of_seeds_are_those_of_a_block_cipher():
    """Every block is AES(x) + x of the seed and a counter, under a key that the name gives."""
    seeds = np.arange(6, dtype=np.uint64).reshape(3, 2) + np.uint64(2**63)
    found = masking.expanded(seeds, b"name", 40)
    key = masking.HKDF(
        masking.SHA256(), length=16, salt=None, info=b"siloweave seeds\0name"
    ).derive(b"")
    for seed, row in zip(seeds, found, strict=True):
        whole = b""
        for block in range(3):
            x = (int(seed[0]) ^ block).to_bytes(8, "little") + int(seed[1]).to_bytes(8, "little")
            cipher = masking.Cipher(masking.algorithms.AES(key), masking.modes.ECB()).encryptor()
            whole += bytes(a ^ b for a, b in zip(cipher.update(x), x, strict=True))
        assert row.tobytes() == whole[:40]


def test_bytes_of_seeds_are_uniform_and_of_one_name_and_seed():
    seeds = np.arange(4000, dtype=np.uint64).reshape(2000, 2)
    one, other = (masking.expanded(seeds, name, 32) for name in (b"one", b"other"))
    for data in (one, other, one ^ other, one[1:] ^ one[:-1], one[:, :16] ^ one[:, 16:]):
        counts = np.bincount(data.reshape(-1), minlength=256)
        statistic = ((counts - data.size / 256) ** 2 / (data.size / 256)).sum()
        assert chi2.sf(statistic, 255) > SURE
    np.testing.assert_array_equal(one[5:6], masking.expanded(seeds[5:6], b"one", 32))
    np.testing.assert_array_equal(one[:, :7], masking.expanded(seeds, b"one", 7))
