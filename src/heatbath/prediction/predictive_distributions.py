"""The laws of new data that samples predict, one for each sample: of numbers in a mixture, and of a class."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import SHARE, real, reals
from heatbath.datasets.problem import Floats, numbers
from heatbath.models.dense import block
from heatbath.models.likelihood import Likelihood

AT_ONCE = 1 << 18  # numbers of all components at a time: they stay in the cache
EXACT = 1e-12  # how well a quantile is known, in units of the smallest deviation that is not 0
TANGENTS = 8  # that are followed to a quantile before every other step halves the interval in which it lies
TINY = 1e-300  # nothing below is exact
UNCOUNTED = 1e12  # a rate from which on counts have a normal law, to 1e-6


class Law(NamedTuple):
    """The law of data around what one network says: functions of arrays that are broadcast.

    - `cdf(y, mean, scale)`: the probability of y or less;
    - `log_density(y, mean, scale)`: of whole numbers, the logarithm of their probability;
    - `standard(share)`: where the law with mean 0 and scale 1 has this share below; of counts, a normal one;
    - `bounds(share, mean, scale)`: below the first `cdf` is less than this share, at the second it is not;
    - `variance(mean, scale)`;
    - `draw(generator, mean, scale)`: one datum for each mean;
    - `whole`: whether data are whole numbers.
    """

    cdf: Callable[[Floats, Floats, Floats], Floats]
    log_density: Callable[[Floats, Floats, Floats], Floats]
    standard: Callable[[float], float]
    bounds: Callable[[float, Floats, Floats], tuple[Floats, Floats]]
    variance: Callable[[Floats, Floats], Floats]
    draw: Callable[[np.random.Generator, Floats, Floats], Floats]
    whole: bool = False


def _standard(y: Floats, mean: Floats, scale: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (y - mean) / scale
    return z if scale.all() else np.where((scale == 0) & (y == mean), np.inf, z)  # y or less, without noise


def _normal_cdf(y: Floats, mean: Floats, scale: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(_standard(y, mean, scale)))


def _normal_log_density(y: Floats, mean: Floats, scale: Floats) -> Floats:
    z = _standard(y, mean, scale)
    return np.asarray(-0.5 * z**2 - np.log(scale) - 0.5 * math.log(2 * math.pi))


def _normal_standard(share: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(share))


def _normal_bounds(share: float, mean: Floats, scale: Floats) -> tuple[Floats, Floats]:
    quantile = mean + _normal_standard(share) * scale
    return quantile, quantile


def _normal_draw(generator: np.random.Generator, mean: Floats, scale: Floats) -> Floats:
    return np.asarray(mean + scale * generator.standard_normal(mean.shape))


NORMAL = Law(
    _normal_cdf,
    _normal_log_density,
    _normal_standard,
    _normal_bounds,
    lambda mean, scale: scale**2,
    _normal_draw,
)
"""N(mean, scale²); where the scale is 0, the mean."""


def _poisson_cdf(y: Floats, mean: Floats, scale: Floats) -> Floats:
    from scipy.special import pdtr

    counts = np.where(y < 0, 0.0, pdtr(np.maximum(np.floor(y), 0), np.minimum(mean, UNCOUNTED)))
    uncounted = mean >= UNCOUNTED
    return np.where(uncounted, _normal_cdf(y, mean, scale), counts) if uncounted.any() else counts


def _poisson_log_density(y: Floats, mean: Floats, _: Floats) -> Floats:
    from scipy.special import gammaln, xlogy

    whole = (y >= 0) & (np.floor(y) == y)
    counts = np.where(whole, y, 0)
    return np.where(whole, xlogy(counts, mean) - mean - gammaln(counts + 1), -np.inf)


def _poisson_bounds(share: float, mean: Floats, _: Floats) -> tuple[Floats, Floats]:
    lower, upper = -math.log(share), -math.log1p(-share)
    # by Bernstein mean - sqrt(2 lower mean) or less has at most the probability of the share, and mean + x or
    # more at most that of the rest
    x = upper / 3 + np.sqrt(upper**2 / 9 + 2 * upper * mean)
    return np.maximum(np.ceil(mean - np.sqrt(2 * lower * mean)) - 1, -1.0), np.ceil(mean + x)


def _poisson_draw(generator: np.random.Generator, mean: Floats, scale: Floats) -> Floats:
    counts = generator.poisson(np.minimum(mean, UNCOUNTED))
    return np.where(mean < UNCOUNTED, counts, _normal_draw(generator, mean, scale))


POISSON = Law(
    _poisson_cdf,
    _poisson_log_density,
    _normal_standard,
    _poisson_bounds,
    lambda mean, _: mean,
    _poisson_draw,
    whole=True,
)
"""Counts with this mean, whose root is the scale."""


def student(degrees: float) -> Law:
    """mean + scale t, t with Student's law; its variance is infinite with two degrees or less."""
    from scipy.special import betainccinv, betaincinv, gammaln, stdtr

    norm = gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - 0.5 * math.log(degrees * math.pi)
    factor = degrees / (degrees - 2) if degrees > 2 else math.inf

    def log_density(y: Floats, mean: Floats, scale: Floats) -> Floats:
        z = _standard(y, mean, scale)
        return np.asarray(norm - np.log(scale) - (degrees + 1) / 2 * np.log1p(z**2 / degrees))

    def standard(share: float) -> float:
        both = 2 * min(share, 1 - share)
        near, far = betainccinv(0.5, degrees / 2, both), betaincinv(degrees / 2, 0.5, both)
        # t²/(degrees + t²) and the rest of 1, of which the smaller is exact
        ratio = near / (1 - near) if near < 0.5 else (1 - far) / far if far > TINY else math.inf
        return math.copysign(math.sqrt(degrees * ratio), share - 0.5)

    def bounds(share: float, mean: Floats, scale: Floats) -> tuple[Floats, Floats]:
        quantile = mean + standard(share) * scale
        return quantile, quantile

    return Law(
        cdf=lambda y, mean, scale: stdtr(degrees, _standard(y, mean, scale)),
        log_density=log_density,
        standard=standard,
        bounds=bounds,
        variance=lambda mean, scale: factor * scale**2,
        draw=lambda generator, mean, scale: mean + scale * generator.standard_t(degrees, mean.shape),
    )


def _quantile(law: Law, share: float, means: Floats, scales: Floats) -> Floats:
    """Where the mixtures of (points, components) have a share below, (points,).

    By Newton's tangents of z(y), the normal quantile of the cdf, which for one normal law is a line. The
    interval in which each quantile lies is kept, and halved where tangents lead out of it or are many.
    """
    from scipy.special import ndtri

    lower, upper = law.bounds(share, means, scales)
    low, high = lower.min(axis=1), upper.max(axis=1)
    silent = ~scales.any(axis=1)  # the least of these means that so many do not exceed
    place = np.searchsorted(np.arange(1, means.shape[1] + 1) / means.shape[1], share)
    low[silent] = high[silent] = np.partition(means[silent], place, axis=1)[:, place]
    exact = np.where(law.whole, 1.0, EXACT * scales.min(axis=1, where=scales > 0, initial=np.inf))
    wanted = ndtri(share)
    centre = means.mean(axis=1)
    spread = np.hypot(1.25 * np.abs(means - centre[:, None]).mean(axis=1), scales.mean(axis=1))  # nearly sd
    y = np.clip(centre + law.standard(share) * spread, low, high)
    y = np.floor(y) if law.whole else y
    for turn in itertools.count():
        rounding = 4 * np.spacing(np.maximum(np.abs(low), np.abs(high)))
        rows = np.flatnonzero(high - low > np.maximum(exact, rounding))
        if not len(rows):
            break
        at, parts = y[rows], (y[rows, None], means[rows], scales[rows])
        below = law.cdf(*parts).mean(axis=1)
        short = below < share
        a, b = np.where(short, at, low[rows]), np.where(short, high[rows], at)
        with np.errstate(all="ignore"):
            z, density = ndtri(below), np.exp(law.log_density(*parts)).mean(axis=1)
            then = at + (wanted - z) * np.exp(-(z**2) / 2) / (math.sqrt(2 * math.pi) * density)
        if law.whole:
            then, middle = np.where(short, np.ceil(then), np.floor(then)), np.floor(a / 2 + b / 2)
        else:  # a little beyond, so that the interval closes from both sides
            then, middle = then + np.where(short, 0.5, -0.5) * exact[rows], a / 2 + b / 2
        good = (then > a) & (then < b) & (turn < TANGENTS or turn % 2 == 1)
        low[rows], high[rows], y[rows] = a, b, np.where(good, then, middle)
    return np.asarray(high if law.whole else low / 2 + high / 2)


def checked_shares(given: ArrayLike) -> tuple[float, ...]:
    """Shares between 0 and 1, one or several."""
    shares = reals("shares", np.atleast_1d(given).tolist(), SHARE)
    if not all(0 < share < 1 for share in shares):
        raise ValueError(f"shares must be between 0 and 1, got {shares}")
    return shares


def central(coverage: float) -> tuple[float, float]:
    """The shares below the two ends of the central interval with this coverage."""
    coverage = real("coverage", coverage, SHARE)
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be between 0 and 1, got {coverage:g}")
    return (1 - coverage) / 2, (1 + coverage) / 2


@dataclass(frozen=True, eq=False)
class Mixture:
    """Equally likely laws of one kind: `means` (samples, examples, outputs) and `deviations` (samples,
    outputs), or (samples, examples, outputs) where they depend on the inputs.

    Columns are the values of a regression, or counts, each with a law of its own. A deviation is that of the
    data around what a network says, of Student's law its scale; 0 where none is known, and then the law is of
    the networks' values.
    """

    means: Floats
    deviations: Floats
    law: Law = NORMAL

    @property
    def mean(self) -> Floats:
        """(examples, outputs)."""
        return np.asarray(self.means.mean(axis=0))

    @property
    def sd(self) -> Floats:
        """The standard deviation: networks differ, and data lie around them."""
        within = self.law.variance(self.means, self.scales)
        return np.asarray(np.sqrt(self.means.var(axis=0) + within.mean(axis=0)))

    @property
    def scales(self) -> Floats:
        """The deviations in the form of the means, to be broadcast over the examples where they are alike."""
        return self._scale(slice(None))

    def cdf(self, y: ArrayLike) -> Floats:
        """The probability of y or less, (examples, outputs); of values that are observed it is uniform where
        the prediction is right."""
        values = self._checked(y)
        return self._in_chunks(
            lambda rows, means, scale: self.law.cdf(values[rows], means, scale).mean(axis=0)
        )

    def log_density(self, y: ArrayLike) -> Floats:
        """The logarithm of the density at y, of counts that of their probability, (examples, outputs)."""
        from scipy.special import logsumexp

        values = self._checked(y)

        def of(rows: slice, means: Floats, scale: Floats) -> Floats:
            logs = self._log_densities(values[rows], means, scale)
            return np.asarray(logsumexp(logs, axis=0) - math.log(len(logs)))

        return self._in_chunks(of)

    def log_likelihood(self, y: ArrayLike) -> Floats:
        """The logarithm of the density, or of the probability of counts, that each sample has at y, (samples,
        examples, outputs)."""
        values = self._checked(y)

        def of(rows: slice, means: Floats, scale: Floats) -> Floats:
            return self._log_densities(values[rows], means, scale).swapaxes(0, 1)

        return self._in_chunks(of, len(self.means)).swapaxes(0, 1)

    def quantiles(self, shares: ArrayLike) -> Floats:
        """The values below which data lie with these probabilities, (shares, examples, outputs); of counts
        the least that are not exceeded with them."""
        wanted = checked_shares(shares)

        def of(_: slice, means: Floats, scale: Floats) -> Floats:
            shape = means.shape
            columns = [
                np.ascontiguousarray(np.broadcast_to(each, shape).reshape(len(means), -1).T)
                for each in (means, scale)
            ]
            found = [_quantile(self.law, share, *columns).reshape(shape[1:]) for share in wanted]
            return np.stack(found, axis=1)

        return np.asarray(np.moveaxis(self._in_chunks(of, len(wanted)), 1, 0))

    def interval(self, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """The lower and upper ends between which data lie with this probability, as many below as above; of
        counts with at least this one, ends included."""
        low, high = self.quantiles(central(coverage))
        return low, high

    def output(self, place: int) -> Mixture:
        """The law of one output alone."""
        chosen = slice(place, place + 1)
        return Mixture(self.means[..., chosen], self.deviations[..., chosen], self.law)

    def draw(self, seed: int = 0) -> Floats:
        """New data: one for each sample, (samples, examples, outputs)."""
        return self.law.draw(np.random.default_rng(seed), self.means, self.scales)

    def _log_densities(self, values: Floats, means: Floats, scale: Floats) -> Floats:
        if not self.law.whole and not (self.deviations > 0).all():
            raise ValueError("the networks' values have no density: train with posterior=Posterior()")
        return self.law.log_density(values, means, scale)

    def _checked(self, y: ArrayLike) -> Floats:
        values = numbers("y", y, (1, 2))
        shape = self.means.shape[1:]
        if values.ndim == 1 and shape[1] == 1:
            values = values[:, None]
        if values.shape != shape:
            raise ValueError(f"y must be (examples, outputs) = {shape}, got an array of shape {np.shape(y)}")
        return values

    def _scale(self, rows: slice) -> Floats:
        """The deviations of some examples, in the form of the means."""
        return self.deviations[:, None] if self.deviations.ndim == 2 else self.deviations[:, rows]

    def _in_chunks(self, function: Callable[[slice, Floats, Floats], Floats], *more: int) -> Floats:
        """A function of some examples at a time, with their means and deviations; its result has these `more`
        dimensions after that of the examples."""
        count, examples, outputs = self.means.shape
        step = block(AT_ONCE // max(1, count * outputs))
        spans = [slice(first, first + step) for first in range(0, examples, step)]
        parts = [function(rows, self.means[:, rows], self._scale(rows)) for rows in spans]
        return np.concatenate(parts) if parts else np.empty((0, *more, outputs))


def mixture_of(likelihood: Likelihood, outputs: Floats, variances: Floats | None) -> Mixture:
    """The mixture of networks that say this, (samples, examples, outputs), with these variances of the
    targets, (samples, targets), if they have any."""
    values = likelihood.values(outputs)
    if likelihood.problem.task == "counts":
        return Mixture(values, np.sqrt(values), POISSON)
    if likelihood.degrees < math.inf and variances is not None:
        scale = np.sqrt(variances) * likelihood.problem.target_scale
        return Mixture(values, scale, student(likelihood.degrees))
    noise = likelihood.noise(outputs, variances)
    return Mixture(values, np.zeros((len(values), values.shape[-1])) if noise is None else np.sqrt(noise))


@dataclass(frozen=True, eq=False)
class Categorical:
    """Equally likely laws of a class: the networks' `logits`, (samples, examples, outputs), with one output
    for the second of two classes, or one for each class."""

    logits: Floats

    def log_likelihood(self, y: ArrayLike) -> Floats:
        """The logarithm of the probability that each sample gives the classes y, (samples, examples, 1)."""
        from scipy.special import log_softmax

        labels = numbers("y", y, (2,)).astype(np.int64)
        return np.asarray(np.take_along_axis(log_softmax(self._each(), axis=-1), labels[None], axis=-1))

    def draw(self, seed: int = 0) -> NDArray[np.int64]:
        """New classes: one for each sample, (samples, examples, 1)."""
        gumbel = np.random.default_rng(seed).gumbel(size=self._each().shape)
        return np.asarray((self._each() + gumbel).argmax(axis=-1)[..., None])  # is drawn as the softmax says

    def _each(self) -> Floats:
        """A logit for each class."""
        if self.logits.shape[-1] > 1:
            return self.logits
        return np.concatenate([np.zeros_like(self.logits), self.logits], axis=-1)
