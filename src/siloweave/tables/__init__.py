"""What a row is: schemas, tables, codes, keys and row splits.

`column` and `schema` declare what is public, and `detect` proposes it by the rules in `kinds`.
`read` makes a `table` of frames, files and databases, each kind by a file of its own
(`native_types`, `text_files`, `spreadsheets`, `statistical_files`, `database`); `origin` is what a
table remembers of its source, and `write` brings it out again. `cells` reads each cell by its
column alone, and `moved` counts those that fit none; `forms` and `parsing` know how numbers, ids
and times are spelled. `bins` and `codes` cut columns into codes and back, and `counted` does the
same in a database. `constraints`, `formulas` and `modelled` are the rules between columns;
`encodings` and `features` serve networks.
"""

from siloweave.tables.aligned import Aligned, AlignedColumn, align
from siloweave.tables.codes import Clique, Codes, Domain, Encoder
from siloweave.tables.column import Category, Column, Kind
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import read, read_batches
from siloweave.tables.schema import Schema
from siloweave.tables.split import (
    clusters,
    iid,
    label_skew,
    split_columns,
    split_rows,
    synth_fs,
)
from siloweave.tables.table import Table
from siloweave.tables.text_encoding import encoding_of
from siloweave.tables.write import write

__all__ = [
    "Aligned", "AlignedColumn", "Category", "Clique", "Codes", "Column", "Domain", "Encoder", "Key",
    "Kind", "Schema", "Table", "align", "clusters", "encoding_of", "fold_in", "generator", "iid",
    "label_skew", "read", "read_batches", "split_columns", "split_rows", "synth_fs", "write",
]  # fmt: skip
