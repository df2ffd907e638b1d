"""Problems to test with."""

import numpy as np

ARRAYS = "X_train", "Y_train", "X_test", "Y_test", "weights_train", "weights_test"


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ARRAYS)


def ones(*shape):
    return np.ones(shape)
