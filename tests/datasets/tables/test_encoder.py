"""What columns are taken for, and which numbers are made of them."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from heatbath._internal.warnings import UnforeseenDataWarning
from heatbath.datasets.tables import TableEncoder, column_types
from tests.datasets.tables.cells import encode, frame


def test_options_win_over_how_a_column_looks():
    numbers, names, rows = ["1", "2", "3", "1"] * 5, [f"name {i}" for i in range(20)], list(range(20))
    assert encode(numbers, categorical=["c"])[0].columns_["c"].known == ("1", "2", "3")
    assert encode(numbers, ignore=["c"])[0].columns_["c"] == column_types.LeftOut("c", "as asked for")
    assert encode(names, categorical=["c"])[0].columns_["c"].kind == "category"
    assert encode(rows, keep=["c"])[0].columns_["c"].kind == "number"
    with pytest.raises(ValueError, match="there is no column 'd'; there are 'c', 'beside'"):
        encode(numbers, categorical=["d"])
    with pytest.raises(TypeError, match="ignore must be a list of names, got 'c'"):
        encode(numbers, ignore="c")


def test_numbers_of_the_rows_are_kept_where_there_is_nothing_else():
    only = frame(a=range(30), b="x")
    assert TableEncoder().fit(only).get_feature_names_out().tolist() == ["a"]
    assert TableEncoder().fit(only).notes()[0].startswith("warning: 'a' seems to name or count the rows, and")
    assert TableEncoder(keep=["a"]).fit(only).remarks_ == ()  # as asked for
    with pytest.raises(ValueError, match="no column is left to learn from: 'b' is left out: it is 'x' every"):
        TableEncoder(ignore=["a"]).fit(only[["b", "a"]])


MIXED = frame(
    n=[1.5, np.nan, 3.5, 4.0] * 5,
    b=[True, False, True, True] * 5,
    c=["u", "v", None, "u"] * 5,
    i=[3, 1, 2, 1] * 5,
)
MIXED["d"] = pd.to_datetime(["2020-01-05", "2020-02-07", "2021-01-01", "2020-01-05"] * 5)


def as_text(table):
    cells = {name: ["" if pd.isna(cell) else str(cell) for cell in table[name]] for name in table}
    return pd.DataFrame(cells, dtype="str")


def test_a_table_of_text_is_encoded_as_that_of_its_types():
    typed, text = TableEncoder().fit(MIXED), TableEncoder().fit(as_text(MIXED))
    assert typed.get_feature_names_out().tolist() == text.get_feature_names_out().tolist()
    np.testing.assert_array_equal(typed.transform(MIXED), text.transform(as_text(MIXED)))
    np.testing.assert_array_equal(typed.transform(as_text(MIXED)), text.transform(MIXED))  # crosswise, too


def test_columns_go_by_their_names_in_any_order_and_what_lacks_is_named():
    encoder = TableEncoder(ignore=["i"]).fit(MIXED)
    expected = encoder.transform(MIXED)
    turned = MIXED[["d", "c", "b", "n"]].assign(more="text")
    np.testing.assert_array_equal(encoder.transform(turned), expected)
    with pytest.raises(ValueError, match="there are no columns 'n', 'c'; there are 'b', 'i', 'd'"):
        encoder.transform(MIXED[["b", "i", "d"]])


def test_new_cells_are_encoded_and_warned_of_and_known_ones_are_not():
    table = frame(
        a=["1", "2", "4", "8"], b=["x", "y", "x", "y"], t=["no", "yes", "no", "yes"],
        d=["1.2.2020", "1.3.2020", "2.3.2020", "2.3.2020"], e=["x", "y", "y", "x"],
    )  # fmt: skip
    encoder = TableEncoder().fit(table)
    encoder.transform(table)  # warnings would be errors
    rest = {"t": ["no", "NA", "so"], "d": ["1.2.2020", "1/2/2020", ""], "e": ["x", "", "y"]}
    new = frame(a=["", "nine", "3"], b=["x", "", "z"], **rest).set_axis(pd.Index([5, 7, 9], name="line"))
    with pytest.warns(UnforeseenDataWarning) as caught:
        found = encoder.transform(new)
    assert str(caught[0].message).split("; ") == [
        "line 7, column 'a': 'nine' is not a number, and counts as missing (and 1 more)",
        "line 9, column 'b': 'z' did not occur in training (and 1 more)",
        "line 9, column 't': 'so' is neither no nor yes, and counts as missing (and 1 more)",
        "line 7, column 'd': '1/2/2020' is not a date, day.month.year, and counts as missing (and 1 more)",
        "line 7, column 'e': it is missing, and none was missing in training",
    ]
    assert found[:, :3].tolist() == [[3, 1, 0], [3, 0, 0], [3, 0, 0]]


def test_features_have_different_names_and_groups_are_of_columns():
    table = frame(**{"a": ["b=c", "x"] * 4, "a=b": ["c", "x"] * 4, "k": [1] * 8, "n": [1, 2, None, 4] * 2})
    encoder = TableEncoder().fit(table)
    names = encoder.get_feature_names_out().tolist()
    assert names == ["a=b=c", "a=x", "a=b=c.2", "a=b=x", "n", "n=(missing)"]
    assert encoder.groups() == {"a": [0, 1], "a=b": [2, 3], "n": [4, 5]}


def test_what_is_plain_is_json_and_makes_the_same_encoder():
    encoder = TableEncoder(categorical=["i"]).fit(MIXED).with_remarks(["a remark"], ",")
    text = json.dumps(encoder.plain(), allow_nan=False)
    again = TableEncoder.from_plain(json.loads(text))
    assert again.plain() == encoder.plain()
    assert again.notes() == encoder.notes()
    assert again.decimal_ == ","
    with pytest.raises(ValueError, match="decimal of an encoder must be"):
        TableEncoder.from_plain(encoder.plain() | {"decimal": ";"})
    assert again.notes()[0] == "a remark"
    assert again.columns_ == encoder.columns_
    np.testing.assert_array_equal(again.transform(MIXED), encoder.transform(MIXED))


def changed(**values):
    plain = TableEncoder().fit(MIXED).plain()
    for path, value in values.items():
        *way, last = path.split("__")
        place = plain
        for step in way:
            place = place[int(step) if step.isdigit() else step]
        place[int(last) if last.isdigit() else last] = value
    return plain


@pytest.mark.parametrize(
    "plain",
    [
        None,
        {},
        changed(version=2),
        changed(more=1),
        changed(ignore="a"),
        changed(ignore=[1]),
        changed(remarks=None),
        changed(columns={}),
        changed(columns=[]),
        changed(columns__0=None),
        changed(columns__0__kind="code"),
        changed(columns__0__kind=["number"]),
        changed(columns__0__name=3),
        changed(columns__0__name="b"),
        changed(columns__0__median="1"),
        changed(columns__0__median=math.nan),
        changed(columns__0__missing=-1),
        changed(columns__0__missing=True),
        changed(columns__0__odd="text"),
        changed(columns__0__form="x"),
        changed(columns__1__words=["a", "b"]),
        changed(columns__1__words=[["a"], 1]),
        changed(columns__2__known=["u", "u"]),
        changed(columns__2__crowded=1),
        changed(columns__4__form="%Y-%m-%d %H:%M:%S.%f and so on"),
        changed(columns__4__form=3),
        changed(columns__4__periods=["month"]),
    ],
)
def test_what_is_no_encoder_is_refused(plain):
    with pytest.raises((ValueError, TypeError)):
        TableEncoder.from_plain(plain)


def test_it_passes_scikit_learn_s_own_checks_and_works_in_a_pipeline():
    failed = [
        one
        for one in check_estimator(TableEncoder(), on_skip=None, on_fail=None)
        if one["status"] == "failed"
    ]
    assert failed == []
    y = ["p", "q", "p", "p"] * 5
    assert make_pipeline(TableEncoder(), LogisticRegression()).fit(MIXED, y).score(MIXED, y) == 1
    named = TableEncoder().set_output(transform="pandas").fit_transform(MIXED)
    assert list(named.columns) == TableEncoder().fit(MIXED).get_feature_names_out().tolist()


def test_tables_that_have_no_names_or_the_same_twice():
    assert (
        TableEncoder().fit(np.array([[1, "a"], [2, "b"]], object)).notes()[1] == "x1: a category, 2 different"
    )
    with pytest.raises(ValueError, match="columns must have different names, and several are '1'"):
        TableEncoder().fit(pd.DataFrame([[1, 2]], columns=[1, "1"]))


def test_many_plain_numbers_are_told_of_in_one_sentence():
    few = frame(kind=["a", "b"] * 15, x=np.arange(30) / 7)
    assert TableEncoder().fit(few).brief_notes() == ["kind: a category, 2 different", "x: a number"]
    many = few.assign(**{f"gene {i}": np.arange(30) / (i + 3) for i in range(40)}).drop(columns="x")
    encoder = TableEncoder().fit(many).with_remarks(["cells separated by commas"])
    assert encoder.brief_notes() == [
        "cells separated by commas",
        "kind: a category, 2 different",
        "gene 0, gene 1, gene 2 and 37 more: numbers",
    ]
