"""Running averages over samples."""

import numpy as np

from heatbath.prediction.ensemble_average import Average
from tests.optional import optional

peak = optional("tests.torch.prediction.models").peak


def test_disagreement_is_never_negative():
    rng, average = np.random.default_rng(0), Average("classes")
    p = rng.dirichlet(np.ones(3), 500)
    for _ in range(7):
        average.add(p * (1 + 1e-16 * rng.integers(-5, 5, p.shape)))
    told = average.prediction()
    assert (told.entropy < told.expected_entropy).any()  # by rounding
    assert (told.mutual_information >= 0).all()
    assert (told.mutual_information < 1e-12).all()


def test_averages_need_no_more_memory_for_more_samples():
    def averaged(count):
        rng, average = np.random.default_rng(0), Average("classes")
        for _ in range(count):
            average.add(rng.dirichlet(np.ones(10), 2000))
        return average.prediction()

    averaged(1)
    few, many = peak(lambda: averaged(5)), peak(lambda: averaged(100))
    assert many < few + 2000 * 10 * 8 / 2
