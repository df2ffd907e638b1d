"""Sampling of any density: chains of a method, with or without a Metropolis test of every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.arviz import for_arviz
from heatbath._internal.checks import choice, whole
from heatbath.diagnostics import mcmc
from heatbath.methods import Langevin, Method
from heatbath.methods.langevin import O
from heatbath.methods.letters import A, Array, B
from heatbath.methods.partition import Partition
from heatbath.methods.schedules import MOST_STEPS, Coefficient, Constant, at
from heatbath.reference import random as numbers
from heatbath.reference.integrator import Reference

if TYPE_CHECKING:
    import arviz
    import xarray as xr

Function: TypeAlias = Callable[[Any], Any]

STEPSIZE, CHAINS = 0.1, 4  # where nothing is said
READ = 2_000_000  # numbers of which a repr says R-hat and ESS: of more that would take seconds
AHEAD = 2**14  # normal numbers that are drawn at a time: a call for one step takes longer than the step


@dataclass(frozen=True, eq=False, repr=False)
class Sampled:
    """Samples of a density.

    - `samples`: (chain, draw, dimension).
    - `steps`: after how many steps each draw was taken, (draw,).
    - `log_density`: of every sample, (chain, draw), as the user's function has it; None where there is none.
    - `acceptance`: the share of the steps after the burn-in that the Metropolis test has accepted, (chain,);
      None without it.
    """

    samples: Array
    steps: NDArray[np.int64]
    log_density: Array | None
    acceptance: Array | None

    def rhat(self) -> Array:
        """R-hat of every coordinate (`statistics.rhat`): 1 where the chains agree. Needs 4 draws."""
        return np.array([mcmc.rhat(trace) for trace in np.moveaxis(self.samples, 2, 0)])

    def ess(self) -> Array:
        """The effective sample size for the mean of every coordinate (`statistics.ess`). Needs 4 draws."""
        return np.array([mcmc.ess(trace) for trace in np.moveaxis(self.samples, 2, 0)])

    def to_arviz(self) -> arviz.InferenceData | xr.DataTree:
        """The samples for ArviZ as `theta`, chain x draw x dimension; the log density is `lp`, where known.

        An InferenceData for ArviZ before 1.0, a DataTree since. Needs the extra `heatbath[arviz]`.
        """
        import xarray as xr

        labels = {"chain": np.arange(len(self.samples)), "draw": self.steps}
        theta = xr.Dataset({"theta": (("chain", "draw", "dimension"), self.samples)}, labels)
        groups = {"posterior": theta}
        if self.log_density is not None:
            groups["sample_stats"] = xr.Dataset({"lp": (("chain", "draw"), self.log_density)}, labels)
        return for_arviz(groups)

    def __repr__(self) -> str:
        chains, draws, dimension = self.samples.shape
        words = [f"{chains} chains x {draws} draws x {dimension} dimensions"]
        if self.acceptance is not None:
            words.append(f"acceptance {self.acceptance.mean():.2f}")
        if draws >= 4 and self.samples.size <= READ:
            words.append(f"R-hat at most {self.rhat().max():.2f}, ESS at least {self.ess().min():.0f}")
        return f"Sampled({', '.join(words)})"


def sample(
    log_density: Function | None = None,
    gradient: Function | None = None,
    start: ArrayLike | None = None,
    method: Method | Partition = Langevin(gamma=1.0, tau=1.0),  # noqa: B008 (a value)
    h: Coefficient | None = None,
    steps: int = 1000,
    *,
    chains: int | None = None,
    burn_in: int | None = None,
    thin: int = 1,
    seed: int = 0,
    metropolis: bool = False,
    momenta: Literal["thermal", "zero"] = "thermal",
) -> Sampled:
    """Sample the law with density exp(log_density(θ)/τ), so at τ = 1 that of the log density itself.

    - `log_density(theta)`: of θ (chains, dimension), one number for each chain, up to a constant.
    - `gradient(theta)`: that of the log density, (chains, dimension). Both are functions of NumPy arrays.
      Where `gradient` is left out, `log_density` is a function of a torch tensor in float64, and torch takes
      the gradient. `log_density` may be left out without `metropolis`; the log density of the samples is then
      not known.
    - `start`: a vector for all `chains` (4, unless given), or one for each chain, (chains, dimension).
    - `method` with the stepsize `h` (0.1, unless given), or a `Partition` of one part, which has its own. The
      word is run as it is written, by `Reference`. Its `weight_decay` adds a Gaussian prior to the density,
      and a method that draws no noise only climbs it.
    - `burn_in`: so many of the `steps` come before the first sample (half of them, unless given); then every
      `thin`-th is one.
    - `metropolis`: every step is accepted or refused, so that the law has no error from the stepsize. It is
      for Langevin with a palindromic word, constant coefficients and τ > 0. One step from (θ, p) has the
      error Δ = ΔU + Δ(p·p/2) - Q with U = -log_density, where Q is what the letters O have changed p·p/2 by:
      it is accepted with probability min(1, exp(-Δ/τ)), and otherwise θ stays and p turns round. This is
      exact, as O leaves the law of p as it is, and A and B are reversible and keep volumes (for any function
      `gradient`; a wrong one is accepted less often). A step to where the density is 0 or not a number is
      refused.
    - `momenta`: at the start, "thermal" for N(0, τ), or "zero".

    A chain that is no longer finite is an error. The result is the same for the same seed.

    >>> import heatbath as hb
    >>> result = hb.sample(
    ...     log_density=lambda theta: -(theta**4).sum(axis=1),
    ...     gradient=lambda theta: -4 * theta**3,
    ...     start=[0.0, 0.0], h=0.3, steps=2000, metropolis=True,
    ... )
    >>> result
    Sampled(4 chains x 1000 draws x 2 dimensions, acceptance 0.9..., R-hat at most 1.0..., ESS at least ...)
    """
    partition = _partition(method, h)
    if not isinstance(metropolis, bool):
        raise TypeError(f"metropolis must be True or False, got {metropolis!r}")
    choice("momenta", momenta, ("thermal", "zero"))
    if metropolis:
        _check_exact(partition, log_density)
    _check_partition(partition)
    theta = _start(start, chains)
    steps = whole("steps", steps, low=1, high=MOST_STEPS)
    burn_in = steps // 2 if burn_in is None else whole("burn_in", burn_in, low=0)
    thin = whole("thin", thin, low=1)
    kept = np.arange(burn_in + thin, steps + 1, thin)
    if not kept.size:
        raise ValueError(f"there would be no sample: steps={steps}, burn_in={burn_in}, thin={thin}")
    density = _Density(log_density, gradient)
    noise = _Noise(seed, *theta.shape)
    reference = Reference(
        lambda theta, batch: -density.gradient(theta), theta, partition,
        rotated=False, momenta=momenta, seed=seed, noise=noise,
    )  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is refused, or an error
        density.check_start(theta)
        chain = _Adjusted(density, reference, noise) if metropolis else _Unadjusted(density, reference)
        samples, values = np.empty((len(theta), len(kept), theta.shape[1])), np.empty((len(theta), len(kept)))
        accepted = np.zeros(len(theta))
        for step in range(1, steps + 1):
            accepted += chain.advance() * (step > burn_in)
            place, due = divmod(step - burn_in - thin, thin)
            if place >= 0 and not due:
                samples[:, place] = chain.theta
                if density.known:
                    values[:, place] = chain.log_density(step)
    return Sampled(
        samples, kept, values if density.known else None, accepted / (steps - burn_in) if metropolis else None
    )


class _Unadjusted:
    """Chains as the reference steps them."""

    def __init__(self, density: _Density, reference: Reference) -> None:
        self.density, self.reference = density, reference

    @property
    def theta(self) -> Array:
        return self.reference.state.theta

    def advance(self) -> bool:
        self.reference.advance(1)
        _check_finite("theta", self.theta, self.reference.state.step)
        return True

    def log_density(self, step: int) -> Array:
        values = self.density.value(self.theta)
        _check_finite("log_density(theta)", values[:, None], step)
        return values


class _Adjusted:
    """Chains with a Metropolis test of every step of the word; U has the prior in it."""

    def __init__(self, density: _Density, reference: Reference, noise: _Noise) -> None:
        (part,) = reference.members
        method: Any = part.part.method
        self.density, self.noise, self.word, self.step = density, noise, method.substeps, 0
        self.h, self.gamma, self.tau, self.prior = (
            at(value, 0) for value in (reference.partition.h, method.gamma, method.tau, method.prior)
        )
        self.theta, self.p = reference.state.theta, reference.state.p
        self.value = density.value(self.theta)
        self.U = self._potential(self.theta, self.value)
        self.G: Array | None = density.gradient(self.theta)

    def advance(self) -> NDArray[np.bool_]:
        """Propose a step to every chain; which have accepted it."""
        theta, p, G, heat = self.theta, self.p, self.G, np.zeros(len(self.theta))
        for substep in self.word:
            t = float(substep.fraction) * self.h
            if substep.letter == "A":
                theta, G = A(theta, p, t), None
            elif substep.letter == "B":
                G = self.density.gradient(theta) if G is None else G
                p = B(p, G - self.prior * theta, t)
            else:
                before, R = _kinetic(p), self.noise(self.step, substep.slot)
                p = O(p, R, t, self.gamma, self.tau)
                heat += _kinetic(p) - before
        value = self.density.value(theta)
        U = self._potential(theta, value)
        error = U - self.U + _kinetic(p) - _kinetic(self.p) - heat
        accepted = np.isfinite(error) & np.isfinite(theta).all(axis=1) & np.isfinite(value)
        accepted &= np.log(self.noise.chance(self.step)) < -error / self.tau
        self.U, self.value = np.where(accepted, U, self.U), np.where(accepted, value, self.value)
        moved = accepted[:, None]
        self.theta, self.p = np.where(moved, theta, self.theta), np.where(moved, p, -self.p)
        self.G = None if G is None or self.G is None else np.where(moved, G, self.G)
        self.step += 1
        return accepted

    def log_density(self, step: int) -> Array:
        return self.value

    def _potential(self, theta: Array, value: Array) -> Array:
        return np.asarray(self.prior / 2 * np.sum(theta**2, axis=1) - value)


def _kinetic(p: Array) -> Array:
    return np.asarray(np.sum(p**2, axis=1) / 2)


class _Noise:
    """The normal numbers of `Reference` and the uniform ones of the test, of many steps at a time."""

    def __init__(self, seed: int, chains: int, size: int) -> None:
        self.seed, self.chains, self.size = seed, np.arange(chains), size
        self.ahead = max(1, AHEAD // (chains * max(size, 1)))
        self.drawn: dict[tuple[int, int], tuple[int, Array]] = {}

    def __call__(self, step: int, slot: int) -> Array:
        return self._at(numbers.normals, numbers.NOISE, slot, step, self.size)

    def chance(self, step: int) -> Array:
        return self._at(numbers.uniforms, numbers.METROPOLIS, 0, step, 1)[:, 0]

    def _at(self, draw: Callable[..., Array], stream: int, slot: int, step: int, size: int) -> Array:
        number, place = divmod(step, self.ahead)
        if self.drawn.get((stream, slot), (-1,))[0] != number:
            first = number * self.ahead
            steps = np.arange(first, min(first + self.ahead, MOST_STEPS))[:, None]
            self.drawn[stream, slot] = number, draw(self.seed, stream, slot, self.chains, steps, 0, size)
        return np.asarray(self.drawn[stream, slot][1][place])


class _Density:
    """The functions of the user, with what they return checked."""

    def __init__(self, log_density: Function | None, gradient: Function | None) -> None:
        for name, given in (("log_density", log_density), ("gradient", gradient)):
            if given is not None and not callable(given):
                raise TypeError(f"{name} must be a function of theta, (chains, dimension), got {given!r}")
        if log_density is None and gradient is None:
            raise TypeError("sample needs log_density, gradient or both, got neither")
        self._log_density, self._gradient = log_density, gradient
        self.known = log_density is not None
        self._last: tuple[Array, Array] | None = None  # θ and log density where torch took the last gradient

    def check_start(self, theta: Array) -> None:
        """Refuse a start from which nothing can go."""
        if self.known:
            _check_finite("log_density(theta)", self.value(theta)[:, None], 0)
        _check_finite("gradient(theta)", self.gradient(theta), 0)

    def value(self, theta: Array) -> Array:
        """The log density of each chain."""
        assert self._log_density is not None
        if self._gradient is None:
            if self._last is None or not np.array_equal(self._last[0], theta):
                self.gradient(theta)
            assert self._last is not None
            return self._last[1]
        return _returned("log_density(theta)", self._log_density(theta.copy()), theta.shape[:1])

    def gradient(self, theta: Array) -> Array:
        """The gradient of the log density."""
        if self._gradient is not None:
            return _returned("gradient(theta)", self._gradient(theta.copy()), theta.shape)
        value, gradient = self._by_torch(theta)
        self._last = theta.copy(), value
        return gradient

    def _by_torch(self, theta: Array) -> tuple[Array, Array]:
        try:
            import torch
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "without gradient= it is taken by PyTorch, an extra: pip install 'heatbath[torch]', or give "
                f"the gradient of the log density ({error})"
            ) from None
        assert self._log_density is not None
        with torch.enable_grad():
            point = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
            value = self._log_density(point)
            if not isinstance(value, torch.Tensor) or not value.requires_grad:
                raise TypeError(
                    "without gradient= log_density must be made of torch operations on theta, a tensor, and "
                    f"return a tensor that depends on it; got {_described(value)}. Or give the gradient"
                )
            values = _returned("log_density(theta)", value.detach().cpu().numpy(), theta.shape[:1])
            (gradient,) = torch.autograd.grad(value.sum(), point)
        return values, np.asarray(gradient.numpy(), dtype=np.float64)


def _returned(name: str, given: object, shape: tuple[int, ...]) -> Array:
    """What a function has returned, if it is an array of real numbers of this shape."""
    array = np.asarray(given)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be an array of real numbers, got {_described(given)}")
    if array.shape != shape:
        meaning = "one number for each chain" if len(shape) == 1 else "theta's shape"
        raise ValueError(f"{name} must be of shape {shape}, {meaning}; got {array.shape}")
    return array.astype(np.float64)


def _described(given: object) -> str:
    kind = getattr(given, "dtype", None)
    return f"{type(given).__name__}" + (f" of {kind}" if kind is not None else "")


def _check_finite(name: str, values: Array, step: int) -> None:
    """Refuse to go on where a chain is not finite; `values` are (chains, numbers)."""
    lost = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if not lost.size:
        return
    row = values[lost[0]]
    place = int(np.argmin(np.isfinite(row)))
    where = f" in coordinate {place}" if len(row) > 1 else ""
    others = f" (and so in {len(lost) - 1} more)" if len(lost) > 1 else ""
    text = f"chain {lost[0]} at step {step}: {name} is not finite, got {row[place]}{where}{others}"
    if step == 0:
        raise ValueError(f"{text}. Choose a start where log density and gradient are finite")
    raise FloatingPointError(
        f"{text}. Take a smaller h, or metropolis=True; and see that gradient is that of the log density, "
        "not of its negative"
    )


def _start(start: ArrayLike | None, chains: int | None) -> Array:
    """θ of every chain at the start."""
    if start is None:
        raise TypeError("sample needs start, a vector or an array (chains, dimension), got none")
    try:
        theta = np.asarray(start)
    except ValueError as error:
        raise ValueError(f"start must be a vector or an array (chains, dimension): {error}") from None
    if theta.dtype.kind not in "iuf":
        raise TypeError(f"start must be an array of real numbers, got {_described(theta)}")
    if theta.ndim not in (1, 2) or not theta.size:
        raise ValueError(f"start must be a vector or an array (chains, dimension), got shape {theta.shape}")
    if chains is not None:
        chains = whole("chains", chains, low=1, high=2**32)
    if theta.ndim == 1:
        theta = np.tile(theta, (CHAINS if chains is None else chains, 1))
    elif chains not in (None, len(theta)):
        raise ValueError(f"start has {len(theta)} rows, one for each chain, and chains={chains}")
    if not np.isfinite(theta).all():
        raise ValueError("start must be finite, got inf or NaN")
    return theta.astype(np.float64)


def _partition(method: object, h: Coefficient | None) -> Partition:
    """The method and its stepsize."""
    if isinstance(method, Partition):
        if h is not None:
            raise ValueError(f"the partition has its own stepsize, h={method.h}: leave out h, got {h!r}")
        return method
    if not isinstance(method, Method):
        raise TypeError(
            f"method must be a method such as Langevin(gamma=1.0, tau=1.0), or a Partition, got {method!r}"
        )
    if method.needs_temperature:
        raise ValueError(f"{method!r}: say {method.thermal}; tau=1 samples exp(log_density)")
    return Partition(method, STEPSIZE if h is None else h)


def _check_partition(partition: Partition) -> None:
    """Refuse what a density has no use for."""
    wrong = []
    if len(partition.methods) > 1:
        wrong.append(f"θ is one part, and it has {len(partition.methods)}")
    if partition.posterior is not None:
        wrong.append("the density is given, so leave out the posterior")
    if partition.tempering is not None:
        wrong.append("with simulated tempering the samples would be of all temperatures together")
    if not all(method.moves for method in partition.methods.values()):
        wrong.append("it moves nothing")
    if axes := partition.axes():
        wrong.append(f"{', '.join(axes)}: a list is an axis of a sweep, and one value is needed here")
    if wrong:
        raise ValueError(f"{partition!r} cannot sample a density: {'; '.join(wrong)}")


def _check_exact(partition: Partition, log_density: Function | None) -> None:
    """Refuse whatever the Metropolis test is not exact for."""
    wrong = []
    if log_density is None:
        wrong.append("it needs log_density")
    if len(partition.methods) > 1:
        wrong.append(f"it needs one part, and there are {len(partition.methods)}")
    if not isinstance(partition.h, (float, Constant)):
        wrong.append(f"h must be constant, got {partition.h!r}")
    for method in partition.methods.values():
        if not method.adjustable:
            wrong.append(f"it needs Langevin, with the letters A, B and O, got {method!r}")
            continue
        if method.word != method.word[::-1]:
            wrong.append(f"the word must be a palindrome such as 'BAOAB', got {method.word!r}")
        for name in ("gamma", "tau", "weight_decay"):
            value = getattr(method, name)
            if not isinstance(value, (float, Constant, type(None))):
                wrong.append(f"{name} must be constant, got {value!r}")
            elif name == "tau" and (value is None or at(value, 0) == 0):
                wrong.append(f"tau must be > 0, got {value!r}")
    if wrong:
        raise ValueError(f"metropolis=True would not be exact: {'; '.join(wrong)}")
