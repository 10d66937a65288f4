"""Markov random fields over a finite domain: marginals, densities and samples.

A model is its potentials on a few cliques. Everything else, the junction tree and the calibrated
beliefs, is derived when first needed and never stored or sent.

Oracle: the tests hold `MRF.marginal` against brute force and against mbi 2.x.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from siloweave.errors import DataError, SchemaError
from siloweave.models.junction_tree import JunctionTree
from siloweave.models.propagation import Array, Calibrated, Propagation
from siloweave.models.sampling import sample_given, sample_rows
from siloweave.models.subtree import project
from siloweave.tables.codes import Clique, Codes, Domain
from siloweave.tables.keys import Key

__all__ = ["MRF"]

_FORMAT = "siloweave-mrf-1"


class MRF:
    """A Markov random field that stands for `total` rows.

    Args:
        domain: Attributes and their numbers of values.
        potentials: Logarithms of the potentials, one table per clique (axes in domain order).
        total: Number of rows that the marginals add up to.

    Example:
        >>> import numpy as np
        >>> from siloweave.tables.codes import Domain
        >>> model = MRF(Domain(("a", "b"), (2, 3)), {("a",): np.log([0.25, 0.75])}, total=8)
        >>> model.marginal(("a",)).round(9).tolist()
        [2.0, 6.0]
    """

    def __init__(self, domain: Domain, potentials: Mapping[Clique, Array], total: float) -> None:
        for clique, table in potentials.items():
            if table.shape != domain.shape(clique):
                raise ValueError(
                    f"potentials[{clique}] has shape {table.shape}; "
                    f"the domain needs {domain.shape(clique)}"
                )
        self.domain = domain
        self.potentials = dict(potentials)
        self.total = float(total)
        self._known: dict[Clique, Array] = {}

    @classmethod
    def uniform(cls, domain: Domain, total: float) -> MRF:
        """The model in which every cell of the domain is equally likely."""
        return cls(domain, {}, total)

    @cached_property
    def tree(self) -> JunctionTree:
        """The junction tree of the cliques that carry potentials."""
        return JunctionTree.build(self.domain, self.potentials)

    @cached_property
    def _plan(self) -> Propagation:
        return Propagation(self.tree, tuple(self.potentials))

    @cached_property
    def _calibrated(self) -> Calibrated:
        plan = self._plan
        tables = [plan.inner(i, self.potentials[c]) for i, c in enumerate(plan.scopes)]
        return plan.run(tables, keep=True)

    @cached_property
    def beliefs(self) -> list[Array]:
        """Probability tables of the tree's cliques (axes in domain order, each sums to 1)."""
        pairs = zip(self.tree.cliques, self._calibrated.beliefs, strict=True)
        return [self._plan.table(clique, flat) for clique, flat in pairs]

    def marginal(self, clique: Clique) -> npt.NDArray[np.float64]:
        """Expected counts of the cells of a clique.

        Args:
            clique: Attributes in domain order; they need not lie in one clique of the tree.

        Returns:
            float64 array of shape `domain.shape(clique)` that sums to `total`; read-only, and
            the same object when asked again.
        """
        if clique not in self._known:
            home = self.tree.home(clique)
            if home is None:
                table = project(self.tree, self.beliefs, clique)
            else:
                gone = [i for i, a in enumerate(self.tree.cliques[home]) if a not in clique]
                table = self.beliefs[home].sum(axis=tuple(gone))
            table = table * self.total
            table.flags.writeable = False
            self._known[clique] = table
        return self._known[clique]

    def log_density(self, codes: Codes) -> npt.NDArray[np.float64]:
        """Natural logarithm of the model's probability of each row, shape (num_rows,)."""
        result = np.zeros(codes.num_rows)
        with np.errstate(divide="ignore"):
            for clique, separator, belief in zip(
                self.tree.cliques, self.tree.separators, self.beliefs, strict=True
            ):
                gone = [i for i, a in enumerate(clique) if a not in separator]
                shared = belief.sum(axis=tuple(gone), keepdims=True)
                ratio = np.divide(belief, shared, out=np.zeros_like(belief), where=shared > 0)
                result += np.log(ratio).reshape(-1)[codes.flat(clique)]
        return result

    def sample(self, num_rows: int | None = None, *, key: Key) -> Codes:
        """Draw rows with low variance: counts of every tree clique are rounded, not multinomial.

        Args:
            num_rows: How many; `total`, rounded, if not given.
            key: Seed or key; the same key gives the same rows.

        Returns:
            Codes over the whole domain, in random order.
        """
        rows = round(self.total) if num_rows is None else num_rows
        return sample_rows(self.tree, self.beliefs, rows, key=key)

    def sample_given(self, known: Mapping[str, npt.NDArray[np.int64]], *, key: Key) -> Codes:
        """Complete rows of which some columns are fixed, each drawn from the exact conditional.

        Args:
            known: Codes of the fixed columns, one entry per row wanted.
            key: Seed or key.

        Raises:
            DataError: if a column is unknown, codes lie outside the domain, lengths differ, or
                the model gives a combination probability 0.
        """
        return sample_given(self.domain, self.potentials, known, key=key)

    def save(self, path: Path | str) -> None:
        """Write the model as one safetensors file: numbers and names, nothing that runs."""
        header = {
            "format": _FORMAT,
            "total": repr(self.total),
            "names": json.dumps(self.domain.names),
            "sizes": json.dumps(self.domain.sizes),
            "cliques": json.dumps(list(self.potentials)),
        }
        tables = {
            str(i): np.ascontiguousarray(table, np.float64)
            for i, table in enumerate(self.potentials.values())
        }
        save_file(tables, str(path), metadata=header)

    @classmethod
    def load(cls, path: Path | str) -> MRF:
        """Read a model written by `save`.

        Raises:
            DataError: if the file is missing, cut, no model of this format, or holds tables that
                no model has.
        """
        try:
            with safe_open(str(path), framework="numpy") as file:
                header: dict[str, str] = file.metadata() or {}
                if header.get("format") != _FORMAT:
                    raise DataError(f"{path} is no model file of format {_FORMAT}")
                cliques = [tuple(c) for c in json.loads(header["cliques"])]
                tables = {c: file.get_tensor(str(i)) for i, c in enumerate(cliques)}
            return cls._checked(header, tables)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, SchemaError) as error:
            raise DataError(f"{path} cannot be read as a model: {error}") from error

    @classmethod
    def _checked(cls, header: Mapping[str, str], tables: Mapping[Clique, Array]) -> MRF:
        """A model from a file's contents; ValueError where they make none."""
        names, sizes = (tuple(json.loads(header[part])) for part in ("names", "sizes"))
        domain, total = Domain(names, sizes), float(header["total"])
        if not all(isinstance(name, str) for name in names):
            raise ValueError("a column's name is not text")
        if not 0.0 <= total < math.inf:
            raise ValueError(f"it stands for {total} rows")
        for clique, table in tables.items():
            if clique != domain.canonical(clique):
                raise ValueError(f"{clique} is not in the order of the columns")
            if table.dtype != np.float64 or np.isnan(table).any() or np.isposinf(table).any():
                raise ValueError(f"the table of {clique} is not of numbers")
        return cls(domain, tables, total)
