"""What columns are taken for, and which numbers are made of them."""

import json
import math
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from heatbath._internal.warnings import UnforeseenDataWarning
from heatbath.datasets.tables import TableEncoder, column_types


def frame(**cells):
    return pd.DataFrame(cells)


def encoded(cells, **options):
    """The encoder of one column, beside another that is a number, and what it makes of it."""
    table = frame(c=cells, beside=np.arange(len(cells)) / 3)
    encoder = TableEncoder(**options).fit(table)
    return encoder, encoder.transform(table)[:, :-1]


NUMBERS = [31.0, 40.0, 22.0, 31.0]
GAPPED = [31, np.nan, 22, 31]
AB = list("aabbaabbaa")


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
    encoder, found = encoded(cells)
    assert encoder.columns_["c"] == column_types.Number("c", float(np.median(values)))
    assert found[:, 0].tolist() == values


@pytest.mark.parametrize("blank", ["", "NA", "n/a", "-", "?", "NaN", "null", "None", ".", "inf", "1e400"])
def test_missing_numbers_get_the_median_and_a_feature_says_where(blank):
    cells = [str(i % 7) for i in range(40)]
    cells[3] = blank
    encoder, found = encoded(cells)
    assert encoder.get_feature_names_out()[:2].tolist() == ["c", "c=(missing)"]
    median = np.median([float(cell) for cell in cells if cell != blank])
    assert found[3].tolist() == [median, 1]
    assert found[:, 1].sum() == 1
    note = (
        f"(such as {blank!r} in row 3)"
        if blank in ("-", "?", "None", ".", "inf", "1e400")
        else "1 missing replaced"
    )
    assert note in encoder.columns_["c"].note()


def test_few_odd_cells_are_missing_numbers_and_many_make_a_category():
    cells = [str(i % 7) for i in range(40)]
    few, many = list(cells), list(cells)
    few[:2], many[:3] = ["many", "few"], ["many", "few", "few"]  # 5 % are accepted
    encoder, found = encoded(few)
    assert encoder.columns_["c"].kind == "number"
    assert "2 missing (such as 'many' in row 0, 'few' in row 1) replaced by" in encoder.columns_["c"].note()
    assert found[:3, 1].tolist() == [1, 1, 0]
    assert encoded(many)[0].columns_["c"].kind == "category"


def test_a_word_or_two_among_many_different_numbers_are_missing_ones():
    cells = [str(i % 37) for i in range(60)]
    cells[::4] = ["unknown"] * 15
    encoder, found = encoded(cells)
    assert encoder.columns_["c"].kind == "number"
    assert "15 missing (such as 'unknown' in row 0) replaced by" in encoder.columns_["c"].note()
    assert found[:5, 1].tolist() == [1, 0, 0, 0, 1]
    cells[::4] = ["unknown", "never", "low"] * 5
    assert encoded(cells)[0].columns_["c"].kind == "category"


def test_infinite_numbers_are_missing_ones_however_many_and_however_written():
    words = ["inf", "-Inf", "Infinity", "+INF"]
    encoder, _ = encoded([words[i % 4] if i % 5 == 0 else f"{i / 7:.3f}" for i in range(100)])
    assert (encoder.columns_["c"].kind, encoder.columns_["c"].missing) == ("number", 20)
    assert "20 missing (such as 'inf' in row 0, " in encoder.notes()[0]
    assert encoded(["inf", "-inf"] * 10)[0].columns_["c"].kind == "category"  # no number at all


def test_errors_of_spreadsheets_are_missing_cells():
    _, found = encoded(["#DIV/0!", "1.5", "#value!", "#N/A", "4", "2", "7", "8"])
    assert found[:, 1].tolist() == [1, 0, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("unit", ["kg", " kg", " km/h", "°C", " m²"])
def test_numbers_of_one_unit_are_numbers(unit):
    cells = [f"{1.5 * i}{unit}" for i in range(30)]
    encoder = TableEncoder().fit(pd.DataFrame({"c": cells}))
    assert encoder.transform(pd.DataFrame({"c": cells})).tolist() == [[1.5 * i] for i in range(30)]
    assert encoder.columns_["c"].note() == f"a number of {unit.strip()}"
    again = TableEncoder.from_plain(encoder.plain())
    assert again.transform(pd.DataFrame({"c": [f"7{unit}", "8"]})).tolist() == [[7], [8]]
    with pytest.warns(UnforeseenDataWarning, match="is not a number, and counts as missing"):
        again.transform(pd.DataFrame({"c": ["7 miles"]}))
    bare = TableEncoder().fit(pd.DataFrame({"c": [1.5, 2.5, 3.5]})).plain()["columns"]
    assert bare == [
        {"kind": "number", "name": "c", "median": 2.5, "missing": 0, "odd": []}
    ]  # as in old files
    two = [f"{i % 5} {'kg' if i % 2 else 'g'}" for i in range(30)]
    assert encoded(two)[0].columns_["c"].kind == "category"


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2", "3", "1"] * 3, "number"),  # few different whole numbers are numbers
        (["00501", "10001", "00501", "02108"] * 3, "category"),  # codes of towns
        (["0", "10", "0.5", "-0.5"] * 3, "number"),
        (["true", "FALSE", "True", "false"] * 3, "truth"),
        ([True, False, True, None] * 3, "truth"),
        (pd.array([True, False, None, True] * 3, "boolean"), "truth"),
        (["yes", "no", "", "yes"] * 3, "truth"),
        (["y", "n", "?", "N"] * 3, "truth"),
        (["yes", "no", "maybe", "no"] * 3, "category"),
        (["yes", "", "", "yes"] * 3, "category"),
        (["2020-01-05", "2021-03-01", "", "2020-01-05"] * 3, "date"),
        (["05.01.2020", "31.12.2020", "1.2.2020", "05.01.2020"] * 3, "date"),
        (["1/5/2020", "12/31/2020", "2/1/2020", "1/5/2020"] * 3, "date"),
        (["31/12/2020", "1/5/2020", "2/1/2020", "1/5/2020"] * 3, "date"),
        (["Jan 5, 2020", "Feb 6, 2021", "Mar 7, 2022", "Jan 5, 2020"] * 3, "date"),
        (["5 Jan 2020 10:30", "6 Feb 2021 11:00", "7 Mar 2022 00:00", "5 Jan 2020 10:30"] * 3, "date"),
        (["2020-01-05T10:00:00Z", "2020-01-05T10:00:00+02:00"] * 6, "date"),
        ([date(2020, 1, 5), date(2021, 1, 5), None] * 4, "date"),
        (pd.to_datetime(["2020-01-05", "2021-03-01", None, "2020-01-05"] * 3), "date"),
        (pd.to_datetime(["2020-01-05", "2021-03-01"] * 6).tz_localize("Europe/Berlin"), "date"),
        (["99.99.2020", "88.88.2020"] * 6, "category"),
        (["a", "b", "b", "a"] * 3, "category"),
        (pd.Categorical(["a", "b", "b", None] * 3), "category"),
        ([["a"], {"b": 1}, 1, None] * 3, "category"),
        (["-", "?", "-", "?"] * 3, "category"),
        (["x"] * 12, "left out"),
        ([7] * 12, "left out"),
        (["", "NA", None, "nan"] * 3, "left out"),
        ([np.nan] * 12, "left out"),
        (pd.to_datetime([None] * 12), "left out"),
        (pd.to_datetime(["2020-01-05"] * 12), "left out"),
        ([f"name {i}" for i in range(12)], "left out"),
        ([f"name {i // 2}" for i in range(12)], "category"),
        (list(range(100, 120)), "left out"),
        ([str(i) for i in range(20)], "left out"),
        ([2 * i for i in range(20)], "left out"),  # as many as there are are missing between them
        ([3 * i for i in range(20)], "number"),
        ([i % 19 for i in range(20)], "number"),
        ([i + 0.5 for i in range(20)], "number"),
    ],
)  # fmt: skip
def test_columns_are_taken_for(cells, kind):
    encoder, found = encoded(cells)
    assert encoder.columns_["c"].kind == kind
    assert np.isfinite(found).all()
    assert found.shape == (len(cells), len(encoder.columns_["c"].features))
    assert len(encoder.columns_["c"].note()) > 5


def test_options_win_over_how_a_column_looks():
    numbers, names, rows = ["1", "2", "3", "1"] * 5, [f"name {i}" for i in range(20)], list(range(20))
    assert encoded(numbers, categorical=["c"])[0].columns_["c"].known == ("1", "2", "3")
    assert encoded(numbers, ignore=["c"])[0].columns_["c"] == column_types.LeftOut("c", "as asked for")
    assert encoded(names, categorical=["c"])[0].columns_["c"].kind == "category"
    assert encoded(rows, keep=["c"])[0].columns_["c"].kind == "number"
    with pytest.raises(ValueError, match="there is no column 'd'; there are 'c', 'beside'"):
        encoded(numbers, categorical=["d"])
    with pytest.raises(TypeError, match="ignore must be a list of names, got 'c'"):
        encoded(numbers, ignore="c")


def test_numbers_of_the_rows_are_kept_where_there_is_nothing_else():
    only = frame(a=range(30), b="x")
    assert TableEncoder().fit(only).get_feature_names_out().tolist() == ["a"]
    assert TableEncoder().fit(only).notes()[0].startswith("warning: 'a' seems to name or count the rows, and")
    assert TableEncoder(keep=["a"]).fit(only).remarks_ == ()  # as asked for
    with pytest.raises(ValueError, match="no column is left to learn from: 'b' is left out: it is 'x' every"):
        TableEncoder(ignore=["a"]).fit(only[["b", "a"]])


DAYS = pd.date_range("2020-01-01", periods=60)
IN_TWO_FORMS = [day.strftime("%Y-%m-%d" if day.day % 2 else "%d/%m/%Y") for day in DAYS]


@pytest.mark.parametrize(
    ("cells", "word"),
    [
        (
            [f"{i}.5" if i % 3 else f"about {i}" for i in range(60)],
            "numbers, and too many are not, such as 'ab",
        ),
        (
            [day.strftime("%Y-%m-%d" if day.day % 2 else "%d/%m/%Y") for day in DAYS],
            "dates, and not of one form",
        ),
        ([day.strftime("%Y-%m-%d") for day in DAYS], None),
        ([f"name {i}" for i in range(60)], None),
        ([f"{i} Main St" for i in range(60)], None),  # no dates, though they begin like some
        ([f"0{i}" for i in range(60)], None),  # codes
        (["1", "2", "3+"] * 20, None),  # few different ones are categories
        (["", "?"] * 30, None),
    ],
)
def test_texts_that_look_like_numbers_or_dates_in_several_forms_are_warned_of(cells, word):
    encoder, _ = encoded(cells)
    assert len(encoder.remarks_) == (word is not None)
    if word is not None:
        assert encoder.columns_["c"].kind in ("left out", "category")
        assert encoder.remarks_[0].startswith("warning: 'c' is taken for text: the most of its texts")
        assert word in encoder.remarks_[0]
        assert encoded(cells * 6)[0].columns_["c"].kind == "category"  # as they come again
        assert word in encoded(cells * 6)[0].remarks_[0]
        assert encoded(cells, ignore=["c"])[0].remarks_ == encoded(cells, categorical=["c"])[0].remarks_ == ()


def test_categories_have_a_feature_each_and_rare_ones_one_together():
    cells = ["a"] * 40 + ["b"] * 50 + ["c"] * 5 + ["d"] * 4 + [""]  # of 100 rows, 5 are needed
    encoder, found = encoded(cells)
    names = encoder.get_feature_names_out()[:-1].tolist()
    assert names == ["c=a", "c=b", "c=c", "c=(rare)", "c=(missing)"]
    assert found.sum(axis=0).tolist() == [40, 50, 5, 4, 1]
    assert (found.sum(axis=1) == 1).all()
    assert found[-1].tolist() == [0, 0, 0, 0, 1]
    with pytest.warns(UnforeseenDataWarning, match="row 0, column 'c': 'e' did not occur in training"):
        new = encoder.transform(frame(c=["e", "d"], beside=[0, 0]))
    assert new[:, :-1].tolist() == [[0, 0, 0, 0, 0], [0, 0, 0, 1, 0]]


def test_of_many_categories_the_most_frequent_stay_and_too_many_rare_ones_are_not_remembered():
    cells = [f"common {i % 30}" for i in range(3000)]
    encoder, _ = encoded(cells + ["common 3"] * 9)
    assert len(encoder.columns_["c"].features) == column_types.MOST_CATEGORIES
    assert "common 3" in encoder.columns_["c"].known
    rare = [f"rare {i // 2}" for i in range(2 * column_types.MOST_RARE + 2)]
    encoder, found = encoded(cells + rare)
    assert encoder.columns_["c"].crowded
    assert encoder.columns_["c"].rare == ()
    assert "over 1000 rare ones joined" in encoder.columns_["c"].note()
    assert found[-1].argmax() == found.shape[1] - 1
    assert encoder.transform(frame(c=["new"], beside=[0]))[0, :-1].argmax() == found.shape[1] - 1


def test_truths_are_0_and_1_and_missing_ones_their_mean():
    encoder, found = encoded(["no", "yes", "", "Yes", "no", "YES"])
    assert found.tolist() == [[0, 0], [1, 0], [0.6, 1], [1, 0], [0, 0], [1, 0]]
    assert encoder.columns_["c"].words == ("no", "yes")


def test_dates_are_years_since_2000_and_where_in_year_week_and_day_they_are():
    cells = ["2000-01-03", "2001-01-02 06:00", "2000-01-10 12:00"]
    encoder, found = encoded(cells)
    assert encoder.columns_["c"].periods == ("week", "day")  # and no whole year
    days = [0, 365.25, 7.5]
    np.testing.assert_allclose(found[:, 0], np.array(days) / 365.25, rtol=1e-15, atol=1e-15)
    for place, length in ((1, 7), (3, 1)):
        angles = 2 * math.pi * np.array(days) / length
        np.testing.assert_allclose(found[:, place], np.sin(angles), atol=1e-12)
        np.testing.assert_allclose(found[:, place + 1], np.cos(angles), atol=1e-12)
    assert encoder.get_feature_names_out().tolist()[:3] == ["c (years)", "c (sin of week)", "c (cos of week)"]


@pytest.mark.parametrize(
    ("dates", "periods"),
    [
        (["2020-01-01", "2021-06-01", "2022-01-01"], ("year", "week")),
        (["2020-01-06", "2020-01-13", "2020-01-20"], ()),  # Mondays
        (["2020-01-06", "2020-01-13", "2020-01-21"], ("week",)),
        (["2020-01-06", "2020-01-06 12:00", "2020-01-08 18:00"], ("day",)),
        (["2020-01-06 01:00", "2020-01-06 12:00", "2020-01-06 18:00"], ()),
    ],
)
def test_a_time_of_a_period_is_there_where_dates_go_through_more_than_one(dates, periods):
    assert encoded(dates)[0].columns_["c"].periods == periods


def test_missing_dates_are_the_median():
    encoder, found = encoded(["01.01.2020", "03.01.2020", "", "09.01.2020"] * 3)
    assert encoder.columns_["c"].form == "%d.%m.%Y"
    np.testing.assert_array_equal(found[2, 0], found[1, 0])
    assert found[:4, -1].tolist() == [0, 0, 1, 0]


def test_ambiguous_dates_are_read_with_the_month_first_and_it_is_said():
    encoder, _ = encoded(["1/2/2020", "3/4/2020", "5/6/2021"])
    assert encoder.columns_["c"].form == "%m/%d/%Y"
    said = (
        "a date, month/day/year (all could also be day/month/year: if they are, write them as 2024-12-31), as"
    )
    assert said in encoder.columns_["c"].note()
    again = TableEncoder.from_plain(json.loads(json.dumps(encoder.plain())))
    assert again.columns_ == encoder.columns_


def test_dates_are_read_by_the_format_that_most_of_them_have():
    """Three of a hundred days are above 12: with the month first these would be missing."""
    days = [f"{1 + i % 12:02d}/{1 + i % 7:02d}/2020" for i in range(97)]
    encoder, values = encoded([*days, "13/01/2020", "28/02/2020", "31/03/2020"])
    assert encoder.columns_["c"].form == "%d/%m/%Y"
    assert (encoder.columns_["c"].missing, encoder.columns_["c"].other) == (0, "")
    last = (pd.Timestamp("2020-03-31") - pd.Timestamp("2000-01-03")).days
    assert values[-1, 0] * 365.25 == pytest.approx(last)


def test_numbers_are_left_out_that_are_called_identifiers_and_years_are_not():
    rng = np.random.default_rng(0)
    many = rng.choice(10**7, 70, replace=False)
    columns = {"customer_id": many, "amount": many, "year": 1950 + np.arange(70), "row": 1 + np.arange(70)}
    columns |= {"orderId": many, "ID": many, "humid": many, "shop_id": many % 7, "y": rng.random(70)}
    found = TableEncoder().fit(pd.DataFrame(columns)).columns_
    left_out = {name: column.reason for name, column in found.items() if column.kind == "left out"}
    assert set(left_out) == {"customer_id", "orderId", "ID", "row"}
    assert left_out["ID"].startswith("its name says that it names the rows")
    kept = TableEncoder(keep=["customer_id"]).fit(pd.DataFrame(columns)).columns_
    assert kept["customer_id"].kind == "number"


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
