"""Read tables of raw cells from files, and encode their columns as numbers.

`read_table` detects how a file is written, and leaves its cells as they are. `TableEncoder` learns what each
column is (a number, a truth value, a date, a category, or nothing to learn from), and makes features of it.
"""

from heatbath._internal.warnings import UnforeseenDataWarning as UnforeseenDataWarning
from heatbath.datasets.tables.encoder import TableEncoder as TableEncoder
from heatbath.datasets.tables.read import Opened as Opened
from heatbath.datasets.tables.read import open_chunks as open_chunks
from heatbath.datasets.tables.read import read_table as read_table
