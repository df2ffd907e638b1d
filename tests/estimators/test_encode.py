"""Estimators of tables with columns of any kind."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline

import heatbath as hb
from heatbath.runs import file

ROWS = 60


def make_table_of_members():
    rng = np.random.default_rng(0)
    columns = {
        "age": np.where(np.arange(ROWS) % 9 == 4, np.nan, rng.integers(18, 80, ROWS)),
        "town": rng.choice(["Bern", "Rom", "Oslo"], ROWS),
        "since": pd.date_range("2020-01-01", periods=ROWS, freq="9D"),
        "member": rng.choice([True, False], ROWS),
    }
    return pd.DataFrame(columns)


TABLE = make_table_of_members()
LEFT = np.where((TABLE["town"] == "Rom") ^ TABLE["member"], "yes", "no")
SPENT = TABLE["age"].fillna(40).to_numpy() * 2 + (TABLE["town"] == "Rom")
QUICK = {"method": hb.LOL(), "hidden": (4,), "steps": 40, "chains": 2, "samples": 4, "random_state": 0}


def test_encode_is_as_an_encoder_before_it_in_a_pipeline():
    one = hb.ThermodynamicClassifier(encode=True, **QUICK).fit(TABLE, LEFT)
    two = make_pipeline(hb.TableEncoder(), hb.ThermodynamicClassifier(**QUICK)).fit(TABLE, LEFT)
    np.testing.assert_array_equal(one.predict_proba(TABLE), two.predict_proba(TABLE))
    assert one.encoder_.plain() == two[0].plain()
    assert (one.n_features_in_, list(one.feature_names_in_)) == (4, list(TABLE.columns))
    assert one.run_.problem.features == tuple(two[0].get_feature_names_out())
    with pytest.raises(ValueError, match=r"could not convert string to float: '(Rom|Bern|Oslo)'"):
        hb.ThermodynamicClassifier(**QUICK).fit(TABLE, LEFT)  # the control


@pytest.mark.parametrize("kind", [hb.ThermodynamicClassifier, hb.ThermodynamicRegressor])
def test_a_saved_estimator_takes_the_same_tables_without_pickle(kind, tmp_path):
    y = LEFT if kind is hb.ThermodynamicClassifier else SPENT
    fitted = kind(encode=True, **QUICK).fit(TABLE, y)
    fitted.save(tmp_path / "e.nc")
    loaded = kind.load(tmp_path / "e.nc")
    np.testing.assert_array_equal(loaded.predict(TABLE[TABLE.columns[::-1]]), fitted.predict(TABLE))
    assert (loaded.encode, loaded.n_features_in_) == (True, 4)
    np.testing.assert_array_equal(loaded.run_.outputs(TABLE), fitted.run_.outputs(TABLE))
    np.testing.assert_array_equal(loaded.sample_posterior(TABLE), fitted.sample_posterior(TABLE))
    packed = file.read(tmp_path / "e.nc")
    text = json.loads(packed.attrs["estimator"])
    text["settings"]["encode"] = False
    file.write(tmp_path / "e.nc", packed.assign_attrs(estimator=json.dumps(text)))
    with pytest.raises(ValueError, match="encode is False, and its run has another encoder"):
        kind.load(tmp_path / "e.nc")


def test_rows_without_weight_teach_the_encoder_nothing():
    odd = TABLE.assign(town=np.where(np.arange(ROWS) == 3, "Paris", TABLE["town"]))
    weights = np.where(np.arange(ROWS) == 3, 0.0, 1.0)
    with pytest.warns(hb.tables.UnforeseenDataWarning, match="row 3, column 'town': 'Paris'"):
        fitted = hb.ThermodynamicRegressor(encode=True, **QUICK).fit(odd, SPENT, weights)
    assert fitted.encoder_.columns_["town"].known == ("Bern", "Oslo", "Rom")
    assert fitted.run_.problem.X_train.shape[1] == ROWS - 1


def test_a_fit_that_goes_on_keeps_its_encoder():
    fitted = hb.ThermodynamicRegressor(encode=True, warm_start=True, **QUICK).fit(TABLE, SPENT)
    encoder = fitted.encoder_
    fitted.partial_fit(TABLE[:20], SPENT[:20])
    assert fitted.encoder_ is encoder
    assert fitted.run_.step == 80
    assert len(cross_val_predict(hb.ThermodynamicRegressor(encode=True, **QUICK), TABLE, SPENT, cv=2)) == ROWS


@pytest.mark.parametrize("kind", [hb.ThermodynamicClassifier, hb.ThermodynamicRegressor])
def test_rows_that_judge_when_to_stop_teach_the_encoder_nothing(kind):
    y = LEFT if kind is hb.ThermodynamicClassifier else SPENT
    told = TABLE.assign(row=[f"row {i // 4}" for i in range(ROWS)])  # four rows have each
    fitted = kind(encode=True, early_stopping=True, validation_fraction=0.3, **QUICK).fit(told, y)
    assert fitted.run_.problem.X_test.shape[1] == 18
    town = fitted.run_.problem.encoder.columns_["age"]
    ages = fitted.run_.problem.X_train[0, :, 0] * fitted.run_.problem.scale[0] + fitted.run_.problem.shift[0]
    gaps = fitted.run_.problem.X_train[0, :, 1] > 0
    assert town.missing == gaps.sum() < TABLE["age"].isna().sum()
    assert town.median == pytest.approx(np.median(ages[~gaps]))
    np.testing.assert_array_equal(fitted.predict(told), fitted.predict(told.iloc[::-1])[::-1])
