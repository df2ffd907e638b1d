"""Fitted estimators in files: the same values and types, and what is refused."""

import json
import math

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine

import heatbath as hb
from heatbath.estimators import files
from heatbath.runs import file
from tests.estimators.small import noisy_sine

pytestmark = pytest.mark.filterwarnings("ignore::heatbath.OffTemperatureWarning")  # of very short runs
WINE = load_wine(return_X_y=True)


def is_same(one, other):
    """Return True if two values are equal and of the same types, down to those that they hold."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict):
        return is_same(list(one.items()), list(other.items()))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and is_same(one.tolist(), other.tolist())
    return bool(one == other) or (one != one and other != other)


def same_after_a_file(fitted, X, path):
    fitted.save(path)
    again = type(fitted).load(path)
    assert is_same(again.predict(X), fitted.predict(X))
    assert is_same(again.get_params(), fitted.get_params())
    learned = {name: value for name, value in vars(fitted).items() if name.startswith("_") or name[-1] == "_"}
    for name, value in learned.items():
        assert name == "run_" or is_same(getattr(again, name), value), name
    assert set(vars(again)) == set(vars(fitted))
    return again


def test_an_estimator_is_the_same_after_a_file(sine, wine, tmp_path):
    X = noisy_sine()[0]
    again = same_after_a_file(sine, X, tmp_path / "sine.nc")
    np.testing.assert_array_equal(again.predict_interval(X), sine.predict_interval(X))
    same_after_a_file(wine, WINE[0], tmp_path / "wine.nc")
    assert hb.load(tmp_path / "wine.nc").step == wine.n_iter_
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(WINE[0][:, :2], columns=["acid", "ash"])
    names = np.array(["a", "b", "c"], object)[WINE[1]]
    own = hb.ThermodynamicClassifier(
        method=hb.AdLaLa(h=0.2), hidden=[5], steps=60, class_weight={"a": 2.0}, random_state=np.int64(0)
    ).fit(table, names)
    again = same_after_a_file(own, table, tmp_path / "own.nc")
    assert again.classes_.tolist() == ["a", "b", "c"]
    assert again.feature_names_in_.tolist() == ["acid", "ash"]
    np.testing.assert_array_equal(again.fit(table, names).run_.theta, own.run_.theta)


def test_files_that_are_not_an_estimator_of_this_kind_are_refused(wine, tmp_path):
    path = tmp_path / "wine.nc"
    wine.save(path)
    with pytest.raises(ValueError, match="it is a ThermodynamicClassifier, and this is Thermo"):
        hb.ThermodynamicRegressor.load(path)
    wine.run_.save(tmp_path / "run.nc")
    with pytest.raises(ValueError, match="has a run, and no estimator"):
        hb.ThermodynamicClassifier.load(tmp_path / "run.nc")
    good = json.loads(file.read(path).attrs["estimator"])
    for wrong in (
        "nonsense",
        json.dumps({"kind": "ThermodynamicClassifier"}),
        json.dumps(good | {"settings": good["settings"] | {"evil": 1}}),
        json.dumps(good | {"learned": {"classes_": {"array": ["x"], "type": "O"}}}),
        json.dumps([1, 2]),
    ):
        file.write(tmp_path / "bad.nc", file.read(path).assign_attrs(estimator=wrong))
        with pytest.raises(ValueError, match="is not an estimator that can be read"):
            hb.ThermodynamicClassifier.load(tmp_path / "bad.nc")
    unusual = clone(wine)
    unusual.__dict__.update(run_=wine.run_, hidden={1, 2})
    with pytest.raises(TypeError, match="hidden cannot be written"):
        unusual.save(tmp_path / "other.nc")
    assert not (tmp_path / "other.nc").exists()


@pytest.mark.parametrize(
    "value",
    [
        None, True, 7, 2**70, 0.1, math.inf, math.nan, "text", "\ud800é", (), [], (1, [2, (3.0,)], None),
        {"a": 1, 2: (0.5,), (1, "b"): [True]}, np.float64(0.1), np.float32(0.1), np.int8(3), np.bool_(True),
        np.str_("ab"), np.arange(3), np.array([[0.1, 0.2]], ">f4"), np.array(["a", "b"], "<U7"),
        np.array(0.5), np.array([True, False]), np.array([2**64 - 1], np.uint64), np.empty((0, 2)),
        np.array(["a", "b"], object), np.array([False, 1, 2.0, "x", None], object),
        np.array([np.int64(1), np.str_("b"), (1, 2)], object),
    ],
)  # fmt: skip
def test_values_are_the_same_after_a_file_in_type_too(value):
    again = files._value("it", json.loads(json.dumps(files._plain("it", value))))
    assert is_same(again, value)


@pytest.mark.parametrize(
    "value",
    [
        1j, {1, 2}, b"x", range(3), object(), np.complex128(1), np.datetime64("2020-01-01"),
        np.longdouble(0.1), np.array([b"x"]), np.array([["a"]], object), np.array([1j, 2], object),
        np.ma.masked_array([1, 2], [True, False]), [1, {2}], {"a": b"x"},
        np.zeros(1, [("a", float)]), np.array(["x"], "<U10001"),
    ],
)  # fmt: skip
def test_values_that_a_file_cannot_restore_are_refused_by_name_when_they_are_saved(value):
    with pytest.raises(TypeError, match=r"(?s)it cannot be written to a file, got .* of type .*: use"):
        files._plain("it", value)


@pytest.mark.parametrize(
    "learned",
    [
        {"classes_": np.array([0, 1])},
        {"classes_": np.array([0, 1, 3])},
        {"classes_": np.array([0, 2, 1])},
        {"classes_": np.array([0, 1, 2, 3])},
        {"classes_": [0, 1, 2]},
        {"classes_": np.array([[0], [1], [2]])},
        {"classes_": np.arange(3), "feature_names_in_": np.array(["a", "b"], object)},
        {"classes_": np.arange(3), "feature_names_in_": np.array(["a"] * 12, object)},
    ],
)
def test_classes_and_features_that_are_not_those_of_a_run_do_not_fit(wine, learned):
    with pytest.raises(ValueError, match=f"(?s){list(learned)[-1]} is .*, and its run is of Problem"):
        files._check(learned, wine.run_)


def test_classes_and_features_that_are_those_of_a_run_fit(wine):
    files._check({"classes_": np.arange(3)}, wine.run_)
    files._check({"classes_": np.array(["0", "1", "2"], object)}, wine.run_)
    for names in ([f"x{i}" for i in range(1, 14)], ["twice"] * 13):
        files._check({"classes_": np.arange(3), "feature_names_in_": np.array(names, object)}, wine.run_)
    assert files._are_classes(np.array([9, 10]), ("9", "10"))
    assert not files._are_classes(np.array(["9", "10"]), ("9", "10"))  # as text, 10 comes first


def test_targets_that_are_not_those_of_a_run_do_not_fit(sine):
    for shape in ((2,), (1, 1), [], 1):
        with pytest.raises(ValueError, match=r"_shape is .*, and its run is of Problem"):
            files._check({"_shape": shape}, sine.run_)
    for shape in ((), (1,)):
        files._check({"_shape": shape}, sine.run_)


def test_a_file_whose_classes_are_not_those_of_its_run_is_refused(wine, tmp_path):
    wine.save(tmp_path / "wine.nc")
    packed = file.read(tmp_path / "wine.nc")
    text = json.loads(packed.attrs["estimator"])
    text["learned"]["classes_"] = files._plain("classes_", np.array([0, 1]))
    file.write(tmp_path / "other.nc", packed.assign_attrs(estimator=json.dumps(text)))
    with pytest.raises(ValueError, match=r"can be read: classes_ is array\(\[0, 1\]\), and its run is of"):
        hb.ThermodynamicClassifier.load(tmp_path / "other.nc")


def test_what_runs_of_another_task_learned_is_refused(sine, wine, tmp_path):
    for fitted, other in ((sine, wine), (wine, sine)):
        fitted.save(tmp_path / "one.nc")
        text = file.read(tmp_path / "one.nc").attrs["estimator"]
        file.write(tmp_path / "two.nc", other.run_.to_xarray().assign_attrs(estimator=text))
        with pytest.raises(ValueError, match=r"is not an estimator that can be read: '(classes_|_shape)'"):
            type(fitted).load(tmp_path / "two.nc")
