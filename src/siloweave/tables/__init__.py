"""What a row is: schemas, tables, codes, keys and row splits.

`column` and `schema` declare what is public, and `detect` proposes it by the rules in `kinds`.
`read` opens files and writes them; `cells` reads each cell by its column alone, and `moved` counts
those that fit none; `forms` and `parsing` know how numbers, ids and times are spelled. `bins` and
`codes` cut columns into codes and back, and `counted` does the same in a database. `constraints`,
`formulas` and `modelled` are the rules between columns; `encodings` and `features` serve networks.
"""

from siloweave.tables.aligned import Aligned, AlignedColumn, align
from siloweave.tables.codes import Clique, Codes, Domain, Encoder
from siloweave.tables.column import Category, Column, Kind
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import Table, encoding_of, read, read_batches, write
from siloweave.tables.schema import Schema
from siloweave.tables.split import (
    clusters,
    iid,
    label_skew,
    split_columns,
    split_rows,
    synth_fs,
)

__all__ = [
    "Aligned", "AlignedColumn", "Category", "Clique", "Codes", "Column", "Domain", "Encoder", "Key",
    "Kind", "Schema", "Table", "align", "clusters", "encoding_of", "fold_in", "generator", "iid",
    "label_skew", "read", "read_batches", "split_columns", "split_rows", "synth_fs", "write",
]  # fmt: skip
