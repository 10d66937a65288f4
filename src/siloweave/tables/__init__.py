"""What a row is: schemas, tables, codes, keys and row splits."""

from siloweave.tables.codes import Clique, Codes, Domain, Encoder
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import Table, read, read_batches, write
from siloweave.tables.schema import Category, Column, Kind, Schema

__all__ = [
    "Category",
    "Clique",
    "Codes",
    "Column",
    "Domain",
    "Encoder",
    "Key",
    "Kind",
    "Schema",
    "Table",
    "fold_in",
    "generator",
    "read",
    "read_batches",
    "write",
]
