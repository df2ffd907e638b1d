"""What columns are taken for, and which features are made of them."""

import json
import math
from datetime import date

import numpy as np
import pandas as pd
import pytest

from heatbath._internal.warnings import UnforeseenDataWarning
from heatbath.datasets.tables import TableEncoder, column_types
from tests.datasets.tables.cells import encode, frame

GAPPED = [31, np.nan, 22, 31]


AB = list("aabbaabbaa")


@pytest.mark.parametrize("blank", ["", "NA", "n/a", "-", "?", "NaN", "null", "None", ".", "inf", "1e400"])
def test_missing_numbers_get_the_median_and_a_feature_says_where(blank):
    cells = [str(i % 7) for i in range(40)]
    cells[3] = blank
    encoder, found = encode(cells)
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
    encoder, found = encode(few)
    assert encoder.columns_["c"].kind == "number"
    assert "2 missing (such as 'many' in row 0, 'few' in row 1) replaced by" in encoder.columns_["c"].note()
    assert found[:3, 1].tolist() == [1, 1, 0]
    assert encode(many)[0].columns_["c"].kind == "category"


def test_a_word_or_two_among_many_different_numbers_are_missing_ones():
    cells = [str(i % 37) for i in range(60)]
    cells[::4] = ["unknown"] * 15
    encoder, found = encode(cells)
    assert encoder.columns_["c"].kind == "number"
    assert "15 missing (such as 'unknown' in row 0) replaced by" in encoder.columns_["c"].note()
    assert found[:5, 1].tolist() == [1, 0, 0, 0, 1]
    cells[::4] = ["unknown", "never", "low"] * 5
    assert encode(cells)[0].columns_["c"].kind == "category"


def test_infinite_numbers_are_missing_ones_however_many_and_however_written():
    words = ["inf", "-Inf", "Infinity", "+INF"]
    encoder, _ = encode([words[i % 4] if i % 5 == 0 else f"{i / 7:.3f}" for i in range(100)])
    assert (encoder.columns_["c"].kind, encoder.columns_["c"].missing) == ("number", 20)
    assert "20 missing (such as 'inf' in row 0, " in encoder.notes()[0]
    assert encode(["inf", "-inf"] * 10)[0].columns_["c"].kind == "category"  # no number at all


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
    assert encode(two)[0].columns_["c"].kind == "category"


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
    encoder, found = encode(cells)
    assert encoder.columns_["c"].kind == kind
    assert np.isfinite(found).all()
    assert found.shape == (len(cells), len(encoder.columns_["c"].features))
    assert len(encoder.columns_["c"].note()) > 5


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
    encoder, _ = encode(cells)
    assert len(encoder.remarks_) == (word is not None)
    if word is not None:
        assert encoder.columns_["c"].kind in ("left out", "category")
        assert encoder.remarks_[0].startswith("warning: 'c' is taken for text: the most of its texts")
        assert word in encoder.remarks_[0]
        assert encode(cells * 6)[0].columns_["c"].kind == "category"  # as they come again
        assert word in encode(cells * 6)[0].remarks_[0]
        assert encode(cells, ignore=["c"])[0].remarks_ == encode(cells, categorical=["c"])[0].remarks_ == ()


def test_categories_have_a_feature_each_and_rare_ones_one_together():
    cells = ["a"] * 40 + ["b"] * 50 + ["c"] * 5 + ["d"] * 4 + [""]  # of 100 rows, 5 are needed
    encoder, found = encode(cells)
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
    encoder, _ = encode(cells + ["common 3"] * 9)
    assert len(encoder.columns_["c"].features) == column_types.MOST_CATEGORIES
    assert "common 3" in encoder.columns_["c"].known
    rare = [f"rare {i // 2}" for i in range(2 * column_types.MOST_RARE + 2)]
    encoder, found = encode(cells + rare)
    assert encoder.columns_["c"].crowded
    assert encoder.columns_["c"].rare == ()
    assert "over 1000 rare ones joined" in encoder.columns_["c"].note()
    assert found[-1].argmax() == found.shape[1] - 1
    assert encoder.transform(frame(c=["new"], beside=[0]))[0, :-1].argmax() == found.shape[1] - 1


def test_truths_are_0_and_1_and_missing_ones_their_mean():
    encoder, found = encode(["no", "yes", "", "Yes", "no", "YES"])
    assert found.tolist() == [[0, 0], [1, 0], [0.6, 1], [1, 0], [0, 0], [1, 0]]
    assert encoder.columns_["c"].words == ("no", "yes")


def test_dates_are_years_since_2000_and_where_in_year_week_and_day_they_are():
    cells = ["2000-01-03", "2001-01-02 06:00", "2000-01-10 12:00"]
    encoder, found = encode(cells)
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
    assert encode(dates)[0].columns_["c"].periods == periods


def test_missing_dates_are_the_median():
    encoder, found = encode(["01.01.2020", "03.01.2020", "", "09.01.2020"] * 3)
    assert encoder.columns_["c"].form == "%d.%m.%Y"
    np.testing.assert_array_equal(found[2, 0], found[1, 0])
    assert found[:4, -1].tolist() == [0, 0, 1, 0]


def test_ambiguous_dates_are_read_with_the_month_first_and_it_is_said():
    encoder, _ = encode(["1/2/2020", "3/4/2020", "5/6/2021"])
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
    encoder, values = encode([*days, "13/01/2020", "28/02/2020", "31/03/2020"])
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
