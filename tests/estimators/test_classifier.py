"""Classes of any kind, their weights, and their shares."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

import heatbath as hb
from tests.estimators.small import OWN, X, Y, classifier


def test_classes_may_be_text_and_keep_their_order():
    names = np.array(["b", "a", "c"])[Y]
    fitted = classifier(steps=300).fit(X, names)
    assert fitted.classes_.tolist() == ["a", "b", "c"]
    assert fitted.run_.problem.targets == ("a", "b", "c")
    assert fitted.score(X, names) > 0.75
    assert fitted.predict_proba(X)[names == "c", 2].mean() > 0.5


def test_class_weights_are_sample_weights_and_multiply_them():
    given = classifier(class_weight={0: 3, 1: 1, 2: 2}).fit(X, Y, sample_weight=1 + np.arange(90) % 2)
    same = classifier().fit(X, Y, sample_weight=np.array([3, 1, 2])[Y] * (1 + np.arange(90) % 2))
    np.testing.assert_array_equal(given.run_.theta, same.run_.theta)


def test_class_weights_count_in_partial_fit():
    given = classifier(class_weight={0: 3, 1: 1, 2: 2}).partial_fit(X, Y, classes=[0, 1, 2])
    same = classifier().partial_fit(X, Y, classes=[0, 1, 2], sample_weight=np.array([3, 1, 2])[Y])
    np.testing.assert_array_equal(given.run_.theta, same.run_.theta)


def test_balanced_classes_have_equal_shares_and_are_predicted_more_often():
    rng = np.random.default_rng(1)
    rare = (np.arange(200) % 10 == 0).astype(int)
    data = rng.standard_normal((200, 2)) + rare[:, None]
    plain = classifier(steps=400).fit(data, rare)
    balanced = classifier(steps=400, class_weight="balanced").fit(data, rare)
    assert plain.run_.problem.weights_train is None
    weights = balanced.run_.problem.weights_train[0]
    assert weights[rare == 1].sum() == pytest.approx(100)
    assert weights[rare == 0].sum() == pytest.approx(100)
    assert balanced.predict_proba(data)[:, 1].mean() > 2 * plain.predict_proba(data)[:, 1].mean()


def test_classes_have_their_shares_in_the_validation_data():
    rare = (np.arange(90) % 9 == 0).astype(int)
    problem = classifier(early_stopping=True, validation_fraction=0.2).fit(X, rare).run_.problem
    assert problem.Y_test.sum() == 2


def test_a_classifier_of_more_rows_than_a_batch_and_fewer_learns_alike():
    data = load_iris(return_X_y=True)
    for batch in (20, 1000):
        assert (
            hb.ThermodynamicClassifier(method=OWN, batch=batch, steps=500, random_state=0)
            .fit(*data)
            .score(*data)
            > 0.93
        )


def test_class_weights_need_not_name_every_class_of_a_batch():
    X, y = np.random.default_rng(0).standard_normal((60, 2)), np.repeat(["a", "b", "c"], 20)
    classifier = hb.ThermodynamicClassifier(
        method=OWN, class_weight={"a": 2.0}, steps=20, chains=1, samples=2
    )
    classifier.partial_fit(X, y, classes=["a", "b", "c"]).partial_fit(X[20:], y[20:])
    assert list(classifier.classes_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="class_weight names the classes"):
        classifier.set_params(class_weight={"d": 2.0}).partial_fit(X, y)
