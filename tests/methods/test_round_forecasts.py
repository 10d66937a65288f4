"""Bytes that a training in rounds is forecast to move, beside those that cross."""

import pytest

from siloweave.datasets import adult, adult_schema
from siloweave.methods.fed_tgan.method import MDTGAN, FedPointDiff, FedTabDDPM, FedTGAN
from siloweave.models.rounds import packed
from siloweave.protocols.networks import foreseen_blocks
from siloweave.tables.split import split_rows

ROWS, PARTIES = 600, 2
NAMES = adult_schema().names
NETWORKS = {"generator": (64, 64), "critic": (64, 64), "batch": 100}
DIFFUSION = {"hidden": (64, 64), "batch": 100}
TRAINED = [
    FedTGAN(rounds=2, **NETWORKS),
    FedTGAN(rounds=2, average=0.99, conditional=False, **NETWORKS),
    MDTGAN(rounds=3, **NETWORKS),
    FedTabDDPM(rounds=2, target="income", **DIFFUSION),
    FedPointDiff(rounds=2, diffusion={"steps": 2}),
]


@pytest.mark.parametrize(
    "width",
    [
        pytest.param(4, marks=pytest.mark.slow),
        9,
        pytest.param(len(NAMES), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "synth",
    [
        TRAINED[0],
        pytest.param(TRAINED[1], marks=pytest.mark.slow),
        *TRAINED[2:4],
        pytest.param(TRAINED[4], marks=pytest.mark.slow),
    ],
    ids=lambda one: type(one).__name__,
)
def test_bytes_of_a_training_in_rounds_are_foreseen(synth, width):
    """What crosses is within a quarter of what is forecast before a row is read.

    Rows travel in MD-TGAN, and how many modes their numbers have is a guess.
    """
    most = 1.5 if isinstance(synth, MDTGAN) else 1.25
    schema = adult_schema().select([*NAMES[: width - 1], "income"])
    table = adult().take(range(ROWS)).select(schema.names)
    fitted = synth.fit(split_rows(table, PARTIES, seed=0), schema)
    sent = [one.bytes_to_party + one.bytes_from_party for one in fitted.cost.parties.values()]
    foreseen = synth.forecast(schema, rows=ROWS, parties=PARTIES).bytes_per_party
    assert 0.8 < foreseen / max(sent) < most, (foreseen, sent)


def test_shapes_of_shared_networks_are_those_of_networks_that_are_made():
    import jax

    from siloweave.methods.fed_tgan.method import _diffusion, _gan

    schema = adult_schema()
    for make, synth in ((_gan, TRAINED[0]), (_gan, TRAINED[1]), (_diffusion, TRAINED[3])):
        learner = make(synth, foreseen_blocks(schema, "modes"), PARTIES)
        shared, _ = learner.split(learner.start(jax.random.key(1), 1))
        sizes = [sum(leaf.nbytes for leaf in jax.tree.leaves(one)) for one in shared]
        assert sizes == learner.sizes()
        assert 0 <= len(packed(shared)) - sum(sizes) < 10_000  # names of arrays
