"""Cells as numbers, dates and truth values."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from heatbath.datasets.tables import column_types
from tests.datasets.tables.cells import encode

NUMBERS = [31.0, 40.0, 22.0, 31.0]


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["31", "40", "22", "31"], NUMBERS),
        ([31, 40, 22, 31], NUMBERS),
        ([31.0, 40.0, 22.0, 31.0], NUMBERS),
        ([Decimal(31), Decimal(40), Decimal(22), Decimal(31)], NUMBERS),
        (pd.array([31, 40, 22, 31], "Int64"), NUMBERS),
        (["3.1e1", " 40", "+22", "31."], NUMBERS),
        (["$31", "$40", "$22", "$31"], NUMBERS),
        (["31%", "40 %", "22%", "31%"], NUMBERS),
        (["1,234", "12,345.5", "1", "\u22125"], [1234, 12345.5, 1, -5]),
        (["1 234", "1'234", "1", "2"], [1234, 1234, 1, 2]),
        (["(1,234.50)", "($12)", "7", "-$5"], [-1234.5, -12, 7, -5]),  # as accountants write them
    ],
)
def test_numbers_are_numbers_however_they_are_written(cells, values):
    encoder, found = encode(cells)
    assert encoder.columns_["c"] == column_types.Number("c", float(np.median(values)))
    assert found[:, 0].tolist() == values


def test_errors_of_spreadsheets_are_missing_cells():
    _, found = encode(["#DIV/0!", "1.5", "#value!", "#N/A", "4", "2", "7", "8"])
    assert found[:, 1].tolist() == [1, 0, 1, 1, 0, 0, 0, 0]
