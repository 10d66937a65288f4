"""VertiGAN as a method that studies name: its settings, and what a fit of it leaves.

Jiang, Zhang, Karakus & Unsal 2023, see vertigan.py.

**Guarantee**: that of vertigan.py. Here nothing reads a row.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from siloweave.algorithms.generated import Matrix
from siloweave.core.fit import Model
from siloweave.core.method import COORDINATOR, NOISE, OTHERS, Info, View, Views, own_columns
from siloweave.core.run import settings_of
from siloweave.errors import BudgetError, number, whole
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers
from siloweave.methods.vertigan.coordinator import vertigan
from siloweave.methods.vertigan.party import HANDLERS
from siloweave.privacy.budget import Budget
from siloweave.protocols.columns import ColumnsSplit, ColumnsTask, Home
from siloweave.protocols.networks import jax_key
from siloweave.tables.features import Features
from siloweave.tables.keys import Key
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models.vertigan import Head, Trunk


_STATEMENT = (
    "Each row over all parties together, from the server and everyone who sees synthetic rows: the "
    "number of rows, the counts of all columns and every critic step are paid for. From the other "
    "parties, who hold the same people, only where the budget's neighbours replace a row. The "
    "schema is public. Which rows of two parties belong together is never used."
)


@dataclass(frozen=True)
class TrunkModel:
    """The server's trunk as a model of vectors: the same hidden rows for every party.

    Attributes:
        trunk: The network.
    """

    trunk: Trunk
    takes: ClassVar[frozenset[str]] = frozenset()
    keeps: ClassVar[bool] = True

    def shares(self, column: str) -> tuple[float, ...] | None:
        """None: the server knows no column."""
        return None

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw hidden rows, once for each party side by side."""
        return np.tile(self.trunk.sample(n, key=jax_key(key)), (1, self.trunk.parties))

    def save(self, path: Path) -> None:
        """Write the trunk as one safetensors file."""
        self.trunk.save(path)


@dataclass(frozen=True)
class HeadHome:
    """What a party keeps: its encoders, and the head that makes its columns of hidden rows.

    Attributes:
        features: Vectors of its columns to table and back.
        head: The network.
    """

    features: Features
    head: Head

    @property
    def width(self) -> int:
        """Entries of a hidden row."""
        return self.head.settings.trunk[-1]

    def decode(self, part: Matrix, *, key: Key) -> Matrix:
        """Feature vectors of its columns, from hidden rows."""
        return self.head.rows(part, key=jax_key(key))

    def encode(self, X: Matrix) -> Matrix:
        """Refuse: a head cannot be turned around, and `TrunkModel` takes no columns."""
        raise NotImplementedError("VertiGAN cannot find the hidden rows of given columns")

    def coder(self) -> bytes:
        """The head as a safetensors file."""
        return self.head.written()

    @classmethod
    def read(cls, features: Features, coder: bytes | None) -> HeadHome:
        """What `coder` wrote."""
        from siloweave.models.vertigan import Head

        return cls(features, Head.read(coder or b""))


@dataclass(frozen=True)
class VertiGAN(ColumnsSplit):
    """GAN over split columns: one trunk, a head and a private critic at every party.

    Args:
        target: None: it takes no target.
        shared: Whether synthetic columns are put together.
        settings: Of the networks and their training (`models.vertigan.VertiGANSettings`), as a
            mapping; defaults for the rest. ``rounds`` is the number of messages to each party.
        private: False to train without noise, and without a guarantee.
        clip: Largest norm of a row's gradient.
        counts_share: Share of the budget's zCDP for the counts of columns, in (0, 0.9].
        bins: Equal-width bins of a column of numbers that are counted, and so are bins of 16, 256
            ... of them together.
    """

    private: bool = True
    clip: float = 1.0
    counts_share: float = 0.1
    bins: int = 4096
    home_share: ClassVar[float] = 0.0
    info: ClassVar[Info] = Info(
        "vertigan",
        "VertiGAN",
        "GAN",
        "columns",
        "local",
        "dp",
        "Jiang, Zhang, Karakus & Unsal 2023, Distributed GAN-Based Privacy-Preserving Publication "
        "of Vertically-Partitioned Data, PVLDB 16(11)",
        _STATEMENT,
    )

    @property
    def visibility(self) -> Views:
        """Who sees what of a run at these settings."""
        slopes = "gradients of each party's loss at generated rows"
        made = "generated rows, which follow the gradients of all"
        if not self.private:
            why, known = "nothing: critics are trained without noise", "the number of rows"
            heard = View(
                COORDINATOR, f"{known}, and {slopes}", why, ("VertiGANReady.rows", "Moved.slope")
            )
            return (
                own_columns(),
                heard,
                View(OTHERS, made, why, ("TrainCritics",)),
                self.readers(why),
            )
        known = "noisy counts of each party's columns, and of the rows if their number is private"
        known_in = ("Counted.paid_rows", "Counted.counts")
        same = "they hold the same people, so it holds towards them for rows replaced only"
        told = f"the number of rows, as it was counted, and {made}"
        return (
            own_columns(),
            View(COORDINATOR, f"{known}, and {slopes}", NOISE, (*known_in, "Moved.slope")),
            View(OTHERS, told, f"{NOISE}; {same}", ("BeginVertiGAN", "TrainCritics")),
            self.readers(NOISE),
        )

    @property
    def stated(self) -> Info:
        """What it is, guarantees and shows at these settings."""
        if self.private:
            return super().stated
        statement = "Nothing: critics are trained without noise."
        return msgspec.structs.replace(super().stated, guarantee="none", statement=statement)

    def network(self) -> Any:
        """Settings of the networks; raises InputError if one is wrong or unknown."""
        return settings_of(self.settings_type(), self.settings)

    @staticmethod
    def settings_type() -> Any:
        """The dataclass of its settings."""
        from siloweave.models.settings import VertiGANSettings

        return VertiGANSettings

    def chosen(self) -> dict[str, Any]:
        """The settings, as plain values; raises InputError if one is wrong."""
        number("clip", self.clip, 0, inf, "()")
        number("counts_share", self.counts_share, 0, 0.9, "(]")
        whole("bins", self.bins, 1)
        own = {"clip": self.clip, "counts_share": self.counts_share, "bins": self.bins}
        return {"private": self.private, **own, **asdict(self.network())}

    def allowed(self, budget: Budget | None) -> Budget:
        """The budget of a run; raises BudgetError where it does not fit the settings."""
        if self.private and (budget is None or not budget.private):
            raise BudgetError(
                "VertiGAN needs a finite epsilon, and budget has none. Use VertiGAN(private=False) "
                "to go without a guarantee."
            )
        return super().allowed(budget)

    def moves(self, schema: Schema, rows: int, parties: int) -> tuple[int, int]:
        """Questions and bytes of a party: in every round the hidden rows, there and back."""
        made = self.network()
        return 4 + made.rounds, 2 * made.rounds * 4 * made.made * made.trunk[-1]

    def handlers(self) -> Handlers:
        """A party's side."""
        return HANDLERS

    def coordinate(self, parties: Session, task: ColumnsTask) -> tuple[Model, int]:
        """See vertigan.py."""
        trunk, rows = vertigan(
            parties,
            task,
            self.network(),
            clip=self.clip,
            counts_share=self.counts_share,
            bins=self.bins,
        )
        return TrunkModel(trunk), rows

    @staticmethod
    def home(features: Features, coder: bytes | None) -> Home:
        """What a party kept at home."""
        return HeadHome.read(features, coder)

    @staticmethod
    def load(path: Path) -> Model:
        """Read the server's trunk."""
        from siloweave.models.vertigan import Trunk

        return TrunkModel(Trunk.load(path))
