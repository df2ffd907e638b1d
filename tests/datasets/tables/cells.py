"""Encode the cells of one column."""

import numpy as np
import pandas as pd

from heatbath.datasets.tables import TableEncoder


def frame(**cells):
    return pd.DataFrame(cells)


def encoded(cells, **options):
    """The encoder of one column, beside another that is a number, and what it makes of it."""
    table = frame(c=cells, beside=np.arange(len(cells)) / 3)
    encoder = TableEncoder(**options).fit(table)
    return encoder, encoder.transform(table)[:, :-1]
