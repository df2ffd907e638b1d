"""Tables of raw cells: files opened as they are, and an encoder that makes numbers of their columns.

`open_table` finds out how a file is written, and leaves its cells as they are. `TableEncoder` learns what
each column is, a number, a truth value, a date, a category or nothing to learn from, and makes features of
it.
"""

from heatbath.tables.encoder import TableEncoder as TableEncoder
from heatbath.tables.opening import Opened as Opened
from heatbath.tables.opening import Unforeseen as Unforeseen
from heatbath.tables.opening import open_chunks as open_chunks
from heatbath.tables.opening import open_table as open_table
