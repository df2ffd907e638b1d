"""Define predictive distributions of new data, as mixtures with one component for each sample.

`Mixture` is for numbers and counts, `Categorical` for classes. Symbols: z is a standard normal number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import SHARE, real, reals
from heatbath.datasets.problem import Floats, numbers
from heatbath.models.dense import block
from heatbath.models.likelihood import Likelihood

AT_ONCE = 1 << 18  # numbers of all components that are computed at a time, so that they stay in the cache
EXACT = 1e-12  # tolerance of a quantile, in units of the smallest scale that isn't 0
TANGENTS = 8  # Newton steps to a quantile after which every second step bisects
SD_OVER_MEAN_DEVIATION = 1.25  # of a normal distribution, about √(π/2)
TINY = 1e-300  # smaller numbers are not exact
UNCOUNTED = 1e12  # rate from which on counts are treated as normal, to 1e-6


Bounds: TypeAlias = Callable[[float, Floats, Floats], tuple[Floats, Floats]]


class Law(NamedTuple):
    """Distribution of data around the values of one network, as functions of arrays that are broadcast.

    Attributes
    ----------
    cdf : callable
        cdf(y, mean, scale) is the probability of y or less.
    log_density : callable
        log_density(y, mean, scale); for whole numbers, the logarithm of their probability.
    standard : callable
        standard(share) is the quantile for mean 0 and scale 1; for counts, that of a normal distribution.
    bounds : callable
        bounds(share, mean, scale) are two numbers: below the first the cdf is less than this share, and at
        the second it isn't.
    variance : callable
        variance(mean, scale).
    draw : callable
        draw(generator, mean, scale) draws one number for each mean.
    is_discrete : bool
        True for distributions of whole numbers.
    """

    cdf: Callable[[Floats, Floats, Floats], Floats]
    log_density: Callable[[Floats, Floats, Floats], Floats]
    standard: Callable[[float], float]
    bounds: Bounds
    variance: Callable[[Floats, Floats], Floats]
    draw: Callable[[np.random.Generator, Floats, Floats], Floats]
    is_discrete: bool = False


def _standardised(y: Floats, mean: Floats, scale: Floats) -> Floats:
    """Return (y - mean)/scale, and infinity for y = mean with scale 0, whose cdf is 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (y - mean) / scale
    return z if scale.all() else np.where((scale == 0) & (y == mean), np.inf, z)


def _normal_cdf(y: Floats, mean: Floats, scale: Floats) -> Floats:
    """Return the probability of y or less under N(mean, scale²)."""
    from scipy.special import ndtr

    return np.asarray(ndtr(_standardised(y, mean, scale)))


def _normal_log_density(y: Floats, mean: Floats, scale: Floats) -> Floats:
    """Return the logarithm of the density of N(mean, scale²) at y."""
    z = _standardised(y, mean, scale)
    return np.asarray(-0.5 * z**2 - np.log(scale) - 0.5 * math.log(2 * math.pi))


def _normal_standard(share: float) -> float:
    """Return the quantile of N(0, 1)."""
    from scipy.special import ndtri

    return float(ndtri(share))


def _exact_bounds(standard: Callable[[float], float]) -> Bounds:
    """Return the `bounds` of a `Law` from its `standard`: the quantile twice, because it is exact."""

    def bounds(share: float, mean: Floats, scale: Floats) -> tuple[Floats, Floats]:
        quantile = mean + standard(share) * scale
        return quantile, quantile

    return bounds


def _normal_draw(generator: np.random.Generator, mean: Floats, scale: Floats) -> Floats:
    """Draw one number from N(mean, scale²) for each mean."""
    return np.asarray(mean + scale * generator.standard_normal(mean.shape))


NORMAL = Law(
    _normal_cdf,
    _normal_log_density,
    _normal_standard,
    _exact_bounds(_normal_standard),
    lambda mean, scale: scale**2,
    _normal_draw,
)
"""Normal distribution N(mean, scale²); a point at the mean if the scale is 0."""


def _poisson_cdf(y: Floats, mean: Floats, scale: Floats) -> Floats:
    """Return the probability of y or less for Poisson counts, normal ones for very large means."""
    from scipy.special import pdtr

    counts = np.where(y < 0, 0.0, pdtr(np.maximum(np.floor(y), 0), np.minimum(mean, UNCOUNTED)))
    uncounted = mean >= UNCOUNTED
    return np.where(uncounted, _normal_cdf(y, mean, scale), counts) if uncounted.any() else counts


def _poisson_log_density(y: Floats, mean: Floats, _: Floats) -> Floats:
    """Return the logarithm of the probability of Poisson counts y; -inf if y is no count."""
    from scipy.special import gammaln, xlogy

    is_count = (y >= 0) & (np.floor(y) == y)
    counts = np.where(is_count, y, 0)
    return np.where(is_count, xlogy(counts, mean) - mean - gammaln(counts + 1), -np.inf)


def _poisson_bounds(share: float, mean: Floats, _: Floats) -> tuple[Floats, Floats]:
    """Return bounds of the quantile of Poisson counts.

    By Bernstein's inequality mean - sqrt(2 lower mean) or less has at most probability `share`, and mean + x
    or more at most 1 - `share`.
    """
    lower = -math.log(share)
    upper = -math.log1p(-share)
    x = upper / 3 + np.sqrt(upper**2 / 9 + 2 * upper * mean)
    return np.maximum(np.ceil(mean - np.sqrt(2 * lower * mean)) - 1, -1.0), np.ceil(mean + x)


def _poisson_draw(generator: np.random.Generator, mean: Floats, scale: Floats) -> Floats:
    """Draw one Poisson count for each mean, normal ones for very large means."""
    counts = generator.poisson(np.minimum(mean, UNCOUNTED))
    return np.where(mean < UNCOUNTED, counts, _normal_draw(generator, mean, scale))


POISSON = Law(
    _poisson_cdf,
    _poisson_log_density,
    _normal_standard,
    _poisson_bounds,
    lambda mean, _: mean,
    _poisson_draw,
    is_discrete=True,
)
"""Poisson distribution of counts; the scale is the root of the mean."""


def student(degrees: float) -> Law:
    """Return the distribution of mean + scale t, where t has Student's distribution.

    Its variance is infinite for two degrees of freedom or less.
    """
    from scipy.special import betainccinv, betaincinv, gammaln, stdtr

    norm = gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - 0.5 * math.log(degrees * math.pi)
    variance_of_t = degrees / (degrees - 2) if degrees > 2 else math.inf

    def log_density(y: Floats, mean: Floats, scale: Floats) -> Floats:
        z = _standardised(y, mean, scale)
        return np.asarray(norm - np.log(scale) - (degrees + 1) / 2 * np.log1p(z**2 / degrees))

    def standard(share: float) -> float:
        # near is t²/(degrees + t²) and far 1 - near; the smaller of the two is exact
        tails = 2 * min(share, 1 - share)
        near = betainccinv(0.5, degrees / 2, tails)
        far = betaincinv(degrees / 2, 0.5, tails)
        if near < 0.5:
            ratio = near / (1 - near)
        elif far > TINY:
            ratio = (1 - far) / far
        else:
            ratio = math.inf
        return math.copysign(math.sqrt(degrees * ratio), share - 0.5)

    return Law(
        cdf=lambda y, mean, scale: stdtr(degrees, _standardised(y, mean, scale)),
        log_density=log_density,
        standard=standard,
        bounds=_exact_bounds(standard),
        variance=lambda mean, scale: variance_of_t * scale**2,
        draw=lambda generator, mean, scale: mean + scale * generator.standard_t(degrees, mean.shape),
    )


def _quantile(law: Law, share: float, means: Floats, scales: Floats) -> Floats:
    """Return a quantile of each of several mixtures.

    An interval [low, high] that contains each quantile shrinks to a point. Its next inner point y is that of
    Newton's method; the interval is bisected instead if a Newton step leaves it, or there have been many.

    Parameters
    ----------
    law : Law
        The kind of the components.
    share : float
        The probability below the quantile.
    means, scales : array, (mixtures, components)
        The components of each mixture.

    Returns
    -------
    array, (mixtures,)
    """
    low, high = _quantile_interval(law, share, means, scales)
    tolerance = np.where(law.is_discrete, 1.0, EXACT * scales.min(axis=1, where=scales > 0, initial=np.inf))
    y = np.clip(_normal_approximation(law, share, means, scales), low, high)
    if law.is_discrete:
        y = np.floor(y)

    for step in itertools.count():
        rounding = 4 * np.spacing(np.maximum(np.abs(low), np.abs(high)))
        rows = np.flatnonzero(high - low > np.maximum(tolerance, rounding))  # of the open intervals
        if not len(rows):
            break
        is_low, newton = _newton_step(law, share, y[rows], means[rows], scales[rows])
        low[rows] = np.where(is_low, y[rows], low[rows])
        high[rows] = np.where(is_low, high[rows], y[rows])
        middle = low[rows] / 2 + high[rows] / 2
        if law.is_discrete:
            newton = np.where(is_low, np.ceil(newton), np.floor(newton))
            middle = np.floor(middle)
        else:  # a little further, so that the interval closes from both sides
            newton = newton + np.where(is_low, 0.5, -0.5) * tolerance[rows]

        is_inside = (newton > low[rows]) & (newton < high[rows])
        may_use_newton = step < TANGENTS or step % 2 == 1
        y[rows] = np.where(is_inside & may_use_newton, newton, middle)
    if law.is_discrete:
        return high
    return np.asarray(low / 2 + high / 2)


def _normal_approximation(law: Law, share: float, means: Floats, scales: Floats) -> Floats:
    """Return roughly the quantile of each mixture, as if all were normal; see `_quantile`."""
    centres = means.mean(axis=1)
    mean_deviations = np.abs(means - centres[:, None]).mean(axis=1)
    approximate_sds = np.hypot(SD_OVER_MEAN_DEVIATION * mean_deviations, scales.mean(axis=1))
    return np.asarray(centres + law.standard(share) * approximate_sds)


def _newton_step(
    law: Law, share: float, y: Floats, means: Floats, scales: Floats
) -> tuple[NDArray[np.bool_], Floats]:
    """Return whether the cdf of each mixture at y is below a probability, and Newton's next y.

    Newton's method solves z(y) = z(share), where z is the normal quantile of the cdf. For a single normal
    distribution z is a line, and one step is exact.
    """
    from scipy.special import ndtri

    components = (y[:, None], means, scales)
    probability = law.cdf(*components).mean(axis=1)
    with np.errstate(all="ignore"):
        z = ndtri(probability)
        density = np.exp(law.log_density(*components)).mean(axis=1)
        newton = y + (ndtri(share) - z) * np.exp(-(z**2) / 2) / (math.sqrt(2 * math.pi) * density)
    return probability < share, newton


def _quantile_interval(law: Law, share: float, means: Floats, scales: Floats) -> tuple[Floats, Floats]:
    """Return the ends of an interval that contains the quantile of each mixture, (mixtures,).

    It is a point for mixtures without any noise: the smallest mean that at least this share doesn't exceed.
    """
    lower, upper = law.bounds(share, means, scales)
    low = lower.min(axis=1)
    high = upper.max(axis=1)
    has_no_noise = ~scales.any(axis=1)
    rank = np.searchsorted(np.arange(1, means.shape[1] + 1) / means.shape[1], share)
    low[has_no_noise] = high[has_no_noise] = np.partition(means[has_no_noise], rank, axis=1)[:, rank]
    return low, high


def checked_shares(values: ArrayLike) -> tuple[float, ...]:
    """Return one or several probabilities as a tuple. Raises ValueError unless they are between 0 and 1."""
    shares = reals("shares", np.atleast_1d(values).tolist(), SHARE)
    if not all(0 < share < 1 for share in shares):
        raise ValueError(f"shares must be between 0 and 1, got {shares}")
    return shares


def central(coverage: float) -> tuple[float, float]:
    """Return the probabilities below the two ends of the central interval with this coverage."""
    coverage = real("coverage", coverage, SHARE)
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be between 0 and 1, got {coverage:g}")
    return (1 - coverage) / 2, (1 + coverage) / 2


@dataclass(frozen=True, eq=False)
class Mixture:
    """Predictive distribution of numbers: a mixture with equal weights of one component for each sample.

    Attributes
    ----------
    means : array, (samples, examples, outputs)
        Values of the networks: of a regression, or rates of counts. Each output has its own distribution.
    deviations : array, (samples, outputs) or (samples, examples, outputs)
        Standard deviation of the data around these values, or the scale of Student's distribution. If it is
        0, the mixture is the distribution of the networks' values.
    law : Law
        The kind of the components.
    """

    means: Floats
    deviations: Floats
    law: Law = NORMAL

    @property
    def mean(self) -> Floats:
        """Mean of new data, (examples, outputs)."""
        return np.asarray(self.means.mean(axis=0))

    @property
    def sd(self) -> Floats:
        """Standard deviation of new data, (examples, outputs): of the networks and of the noise."""
        within = self.law.variance(self.means, self.scales)
        return np.asarray(np.sqrt(self.means.var(axis=0) + within.mean(axis=0)))

    @property
    def scales(self) -> Floats:
        """Deviations in a shape that broadcasts with the means."""
        return self._scale(slice(None))

    def cdf(self, y: ArrayLike) -> Floats:
        """Return the probability of y or less, which is uniform for data if the prediction is right.

        Parameters
        ----------
        y : array_like, (examples, outputs), or (examples,) for one output

        Returns
        -------
        array, (examples, outputs)
        """
        values = self._checked(y)
        return self._in_chunks(
            lambda rows, means, scale: self.law.cdf(values[rows], means, scale).mean(axis=0)
        )

    def log_density(self, y: ArrayLike) -> Floats:
        """Return the logarithm of the density at y, or of the probability of counts.

        Parameters
        ----------
        y : array_like, (examples, outputs), or (examples,) for one output

        Returns
        -------
        array, (examples, outputs)
        """
        from scipy.special import logsumexp

        values = self._checked(y)

        def mixture_log_density(rows: slice, means: Floats, scale: Floats) -> Floats:
            logs = self._log_densities(values[rows], means, scale)
            return np.asarray(logsumexp(logs, axis=0) - math.log(len(logs)))

        return self._in_chunks(mixture_log_density)

    def log_likelihood(self, y: ArrayLike) -> Floats:
        """Return the logarithm of each sample's density at y, or of its probability of counts.

        Parameters
        ----------
        y : array_like, (examples, outputs), or (examples,) for one output

        Returns
        -------
        array, (samples, examples, outputs)
        """
        values = self._checked(y)

        def sample_log_densities(rows: slice, means: Floats, scale: Floats) -> Floats:
            return self._log_densities(values[rows], means, scale).swapaxes(0, 1)

        return self._in_chunks(sample_log_densities, len(self.means)).swapaxes(0, 1)

    def quantiles(self, shares: ArrayLike) -> Floats:
        """Return quantiles of new data.

        Parameters
        ----------
        shares : array_like
            Probabilities below the quantiles, between 0 and 1.

        Returns
        -------
        array, (shares, examples, outputs)
            For counts, the smallest numbers that are not exceeded with these probabilities.
        """
        probabilities = checked_shares(shares)

        def quantiles_of_rows(_: slice, means: Floats, scale: Floats) -> Floats:
            shape = means.shape
            components = [
                np.ascontiguousarray(np.broadcast_to(array, shape).reshape(len(means), -1).T)
                for array in (means, scale)
            ]
            quantiles = [_quantile(self.law, p, *components).reshape(shape[1:]) for p in probabilities]
            return np.stack(quantiles, axis=1)

        return np.asarray(np.moveaxis(self._in_chunks(quantiles_of_rows, len(probabilities)), 1, 0))

    def interval(self, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Return the central interval that contains new data with a given probability.

        Parameters
        ----------
        coverage : float, optional
            The probability. For counts it is at least this, with both ends included.

        Returns
        -------
        low, high : array, (examples, outputs)
        """
        low, high = self.quantiles(central(coverage))
        return low, high

    def output(self, index: int) -> Mixture:
        """Return the predictive distribution of one output alone."""
        columns = slice(index, index + 1)
        return Mixture(self.means[..., columns], self.deviations[..., columns], self.law)

    def draw(self, seed: int = 0) -> Floats:
        """Draw new data, one number for each sample: (samples, examples, outputs)."""
        return self.law.draw(np.random.default_rng(seed), self.means, self.scales)

    def _log_densities(self, values: Floats, means: Floats, scale: Floats) -> Floats:
        """Return the log density of every component. Raises ValueError without noise."""
        if not self.law.is_discrete and not (self.deviations > 0).all():
            raise ValueError(
                "without noise of the data there is no density: train with posterior=Posterior()"
            )
        return self.law.log_density(values, means, scale)

    def _checked(self, y: ArrayLike) -> Floats:
        """Return y as an array, (examples, outputs), after a check of its shape."""
        values = numbers("y", y, (1, 2))
        shape = self.means.shape[1:]
        if values.ndim == 1 and shape[1] == 1:
            values = values[:, None]
        if values.shape != shape:
            raise ValueError(f"y must be (examples, outputs) = {shape}, got an array of shape {np.shape(y)}")
        return values

    def _scale(self, rows: slice) -> Floats:
        """Return the deviations of some examples in a shape that broadcasts with their means."""
        return self.deviations[:, None] if self.deviations.ndim == 2 else self.deviations[:, rows]

    def _in_chunks(self, function: Callable[[slice, Floats, Floats], Floats], *extra: int) -> Floats:
        """Apply a function to blocks of examples, and join the results.

        Parameters
        ----------
        function : callable
            Gets the rows of a block, with their means and deviations, and returns (examples, *extra,
            outputs).
        *extra : int
            The sizes of the result's additional dimensions.
        """
        count, examples, outputs = self.means.shape
        step = block(AT_ONCE // max(1, count * outputs))
        spans = [slice(first, first + step) for first in range(0, examples, step)]
        parts = [function(rows, self.means[:, rows], self._scale(rows)) for rows in spans]
        return np.concatenate(parts) if parts else np.empty((0, *extra, outputs))


def mixture_of(likelihood: Likelihood, outputs: Floats, variances: Floats | None) -> Mixture:
    """Return the predictive distribution for the outputs of networks.

    Parameters
    ----------
    likelihood : Likelihood
        How outputs become predictions.
    outputs : array, (samples, examples, outputs)
        The outputs of the networks.
    variances : array, (samples, targets), or None
        Noise variances of the targets for each network, if there are any.
    """
    values = likelihood.values(outputs)
    if likelihood.problem.task == "counts":
        return Mixture(values, np.sqrt(values), POISSON)
    if likelihood.degrees < math.inf and variances is not None:
        scale = np.sqrt(variances) * likelihood.problem.target_scale
        return Mixture(values, scale, student(likelihood.degrees))
    noise = likelihood.noise(outputs, variances)
    if noise is None:
        return Mixture(values, np.zeros((len(values), values.shape[-1])))
    return Mixture(values, np.sqrt(noise))


@dataclass(frozen=True, eq=False)
class Categorical:
    """Predictive distribution of classes: a mixture with equal weights of one component for each sample.

    `logits` are the networks' outputs, (samples, examples, outputs): one for the second of two classes, or
    one for each class.
    """

    logits: Floats

    def log_likelihood(self, y: ArrayLike) -> Floats:
        """Return the logarithm of each sample's probability of the classes y, (samples, examples, 1)."""
        from scipy.special import log_softmax

        labels = numbers("y", y, (2,)).astype(np.int64)
        log_probabilities = log_softmax(self._class_logits(), axis=-1)
        return np.asarray(np.take_along_axis(log_probabilities, labels[None], axis=-1))

    def draw(self, seed: int = 0) -> NDArray[np.int64]:
        """Draw new classes, one for each sample: (samples, examples, 1)."""
        logits = self._class_logits()
        gumbel = np.random.default_rng(seed).gumbel(size=logits.shape)  # its argmax has the softmax's law
        return np.asarray((logits + gumbel).argmax(axis=-1)[..., None])

    def _class_logits(self) -> Floats:
        """Return a logit for each class, (samples, examples, classes)."""
        if self.logits.shape[-1] > 1:
            return self.logits
        return np.concatenate([np.zeros_like(self.logits), self.logits], axis=-1)
