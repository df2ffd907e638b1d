"""Sample any density: chains of a method, with or without a Metropolis test of every step.

θ are the positions, p the momenta, G the gradient of the log density, U minus the log density (with the
prior), τ the temperature, γ the friction and h the stepsize. Q, the heat, is the change of p·p/2 by the
letters O.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.arviz import for_arviz
from heatbath._internal.checks import choice, whole
from heatbath._internal.extras import needed
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

STEPSIZE = 0.1  # where no h is given
CHAINS = 4  # where neither chains nor an array of starts is given
MOST_SUMMARISED = 2_000_000  # numbers for which `repr` has R-hat and ESS: for more that would take seconds
AHEAD = 2**14  # normal numbers drawn at a time: a call for one step would take longer than the step
FEWEST_DRAWS = 4  # of each chain for R-hat and ESS
NO_TORCH = (
    "without gradient= it is taken by PyTorch, an extra: pip install 'heatbath[torch]', or give the gradient "
    "of the log density"
)
MOST_CHAINS = 2**32  # so that the number of a chain fits in the address of a random number


@dataclass(frozen=True, eq=False, repr=False)
class Sampled:
    """Samples of a density, as `sample` returns them.

    Attributes
    ----------
    samples : ndarray
        (chain, draw, dimension).
    steps : ndarray
        The step after which each draw was taken, (draw,).
    log_density : ndarray or None
        The value of the user's function for every sample, (chain, draw); None where there is no function.
    acceptance : ndarray or None
        The share of the steps after the burn-in that the Metropolis test accepted, (chain,); None without it.
    """

    samples: Array
    steps: NDArray[np.int64]
    log_density: Array | None
    acceptance: Array | None

    def rhat(self) -> Array:
        """Return R-hat of every coordinate (`statistics.rhat`): 1 if the chains agree. Needs 4 draws."""
        return np.array([mcmc.rhat(trace) for trace in np.moveaxis(self.samples, 2, 0)])

    def ess(self) -> Array:
        """Return the effective sample size for the mean of every coordinate (`statistics.ess`).

        Needs 4 draws.
        """
        return np.array([mcmc.ess(trace) for trace in np.moveaxis(self.samples, 2, 0)])

    def to_arviz(self) -> arviz.InferenceData | xr.DataTree:
        """Return the samples for ArviZ as `theta`, chain x draw x dimension; a known log density is `lp`.

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
        entries = [f"{chains} chains x {draws} draws x {dimension} dimensions"]
        if self.acceptance is not None:
            entries.append(f"acceptance {self.acceptance.mean():.2f}")
        if draws >= FEWEST_DRAWS and self.samples.size <= MOST_SUMMARISED:
            entries.append(f"R-hat at most {self.rhat().max():.2f}, ESS at least {self.ess().min():.0f}")
        return f"Sampled({', '.join(entries)})"


def sample(  # noqa: PLR0913 # options by keyword
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
    """Sample the law with density exp(log_density(θ)/τ): at τ = 1, that of the log density itself.

    With `metropolis`, one step from (θ, p) has the error Δ = ΔU + Δ(p·p/2) - Q with U = -log_density, where Q
    is the change of p·p/2 by the letters O. It is accepted with probability min(1, exp(-Δ/τ)); otherwise θ
    stays and p is reversed. This is exact, as O leaves the law of p as it is, and A and B are reversible and
    keep volumes (for any function `gradient`; a wrong one is accepted less often). A step to where the
    density is 0 or not a number is refused.

    Parameters
    ----------
    log_density
        A function of θ (chains, dimension) that returns a number for each chain, up to a constant. It may be
        left out without `metropolis`; then the log density of the samples is not known.
    gradient
        A function of θ that returns the gradient of the log density, (chains, dimension). Both are functions
        of NumPy arrays. Without `gradient`, `log_density` is a function of a torch tensor in float64, and
        torch takes the gradient.
    start
        A vector for all chains, or one for each chain, (chains, dimension).
    method
        A method, or a `Partition` of one part, which has its own stepsize. The word is run as it is written,
        by `Reference`. A `weight_decay` adds a Gaussian prior to the density. A method that draws no noise
        only climbs the density.
    h
        The stepsize, 0.1 by default.
    steps
        The number of steps, those of the burn-in included.
    chains
        The number of chains from a single start, 4 by default.
    burn_in
        The number of steps before the first sample, by default half of all.
    thin
        Every `thin`-th step after the burn-in is a sample.
    seed
        The result is the same for the same seed.
    metropolis
        True to accept or refuse every step, so that the law has no error from the stepsize. It is for
        Langevin with a palindromic word, constant coefficients and τ > 0.
    momenta
        At the start: "thermal" for N(0, τ), or "zero".

    Returns
    -------
    Sampled
        The samples, with their log densities and the acceptance.

    Raises
    ------
    FloatingPointError
        If a chain is no longer finite.
    TypeError, ValueError
        If an argument is wrong, or the method cannot sample a density.

    Examples
    --------
    >>> import heatbath as hb
    >>> result = hb.sample(
    ...     log_density=lambda theta: -(theta**4).sum(axis=1),
    ...     gradient=lambda theta: -4 * theta**3,
    ...     start=[0.0, 0.0], h=0.3, steps=2000, metropolis=True,
    ... )
    >>> result
    Sampled(4 chains x 1000 draws x 2 dimensions, acceptance 0.9..., R-hat at most 1.0..., ESS at least ...)
    """
    partition = _checked_partition(method, h)
    if not isinstance(metropolis, bool):
        raise TypeError(f"metropolis must be True or False, got {metropolis!r}")
    choice("momenta", momenta, ("thermal", "zero"))
    if metropolis:
        _check_exact(partition, log_density)
    _check_can_sample(partition)
    theta = _checked_start(start, chains)

    steps = whole("steps", steps, low=1, high=MOST_STEPS)
    if burn_in is None:
        burn_in = steps // 2
    burn_in = whole("burn_in", burn_in, low=0)
    sample_steps = _sample_steps(steps, burn_in, whole("thin", thin, low=1))

    density = _Density(log_density, gradient)
    noise = _Noise(seed, *theta.shape)
    reference = Reference(
        lambda theta, batch: -density.gradient(theta), theta, partition,
        rotated=False, momenta=momenta, seed=seed, noise=noise,
    )  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused, or an error
        density.check_start(theta)
        walk = _MetropolisWalk(density, reference, noise) if metropolis else _Walk(density, reference)
        return _run(walk, sample_steps, burn_in, steps)


def _sample_steps(steps: int, burn_in: int, thin: int) -> NDArray[np.int64]:
    """Return the steps after which samples are taken, or raise if there are none."""
    sample_steps = np.arange(burn_in + thin, steps + 1, thin)
    if not sample_steps.size:
        raise ValueError(
            f"there would be no sample: steps={steps}, burn_in={burn_in}, thin={thin}; take "
            f"{burn_in + thin} steps or more"
        )
    return sample_steps


def _run(walk: _Walk | _MetropolisWalk, sample_steps: NDArray[np.int64], burn_in: int, steps: int) -> Sampled:
    """Advance all chains by `steps` steps, and return the samples.

    Parameters
    ----------
    walk
        The chains at their start.
    sample_steps
        The steps after which samples are taken, in order.
    burn_in
        The number of first steps that do not count for the acceptance.
    steps
        The number of all steps.
    """
    chains, dimension = walk.theta.shape
    sample_count = len(sample_steps)
    samples = np.empty((chains, sample_count, dimension))
    log_densities = np.empty((chains, sample_count)) if walk.density.is_known else None
    accepted_steps = np.zeros(chains)

    taken = 0
    for step in range(1, steps + 1):
        is_accepted = walk.advance()
        if step > burn_in:
            accepted_steps[is_accepted] += 1
        if taken == sample_count or step < sample_steps[taken]:
            continue
        samples[:, taken] = walk.theta
        if log_densities is not None:
            log_densities[:, taken] = walk.log_density(step)
        taken += 1

    acceptance = None
    if isinstance(walk, _MetropolisWalk):
        acceptance = accepted_steps / (steps - burn_in)
    return Sampled(samples, sample_steps, log_densities, acceptance)


class _Walk:
    """Chains that the reference steps."""

    def __init__(self, density: _Density, reference: Reference) -> None:
        self.density = density
        self.reference = reference

    @property
    def theta(self) -> Array:
        """Positions, (chain, dimension)."""
        return self.reference.state.theta

    def advance(self) -> NDArray[np.bool_]:
        """Make a step, and return True for each chain, (chain,), as every step is accepted."""
        self.reference.advance(1)
        _check_finite("theta", self.theta, self.reference.state.step)
        return np.ones(len(self.theta), dtype=bool)

    def log_density(self, step: int) -> Array:
        """Return the log density of each chain, which stands at `step`."""
        log_densities = self.density.value(self.theta)
        _check_finite("log_density(theta)", log_densities[:, None], step)
        return log_densities


class _MetropolisWalk:
    """Chains with a Metropolis test of every step of the word; U includes the prior."""

    def __init__(self, density: _Density, reference: Reference, noise: _Noise) -> None:
        (member,) = reference.members
        method: Any = member.part.method
        self.density = density
        self.noise = noise
        self.word = method.substeps
        self.h = at(reference.partition.h, 0)
        self.gamma = at(method.gamma, 0)
        self.tau = at(method.tau, 0)
        self.prior = at(method.prior, 0)

        self.step = 0
        self.theta = reference.state.theta
        self.p = reference.state.p
        self.log_densities = density.value(self.theta)
        self.U = self._potential(self.theta, self.log_densities)
        self.G: Array | None = density.gradient(self.theta)

    def advance(self) -> NDArray[np.bool_]:
        """Propose a step to every chain, move those that accept it, and return which they are, (chain,).

        A step with the energy error Δ = ΔU + Δ(p·p/2) - Q is accepted with probability min(1, exp(-Δ/τ)).
        Otherwise the chain stays and its momentum is reversed. A proposal that is not finite is refused.
        """
        theta, p, G, Q = self._proposal()
        log_densities = self.density.value(theta)
        U = self._potential(theta, log_densities)
        error = U - self.U + _kinetic_energy(p) - _kinetic_energy(self.p) - Q

        is_finite = np.isfinite(error) & np.isfinite(theta).all(axis=1) & np.isfinite(log_densities)
        is_accepted = is_finite & (np.log(self.noise.uniforms(self.step)) < -error / self.tau)

        self.U = np.where(is_accepted, U, self.U)
        self.log_densities = np.where(is_accepted, log_densities, self.log_densities)
        is_row_accepted = is_accepted[:, None]
        self.theta = np.where(is_row_accepted, theta, self.theta)
        self.p = np.where(is_row_accepted, p, -self.p)
        if G is None or self.G is None:
            self.G = None
        else:
            self.G = np.where(is_row_accepted, G, self.G)
        self.step += 1
        return is_accepted

    def _proposal(self) -> _Proposal:
        """Return the end of a step from the present state, which applies the letters of the word in order.

        A drifts for a time t, B kicks by the gradient G - prior·θ, and O exchanges heat with the bath. G is
        None while it is not known at θ, and computed by the next B.
        """
        theta = self.theta
        p = self.p
        G = self.G
        Q = np.zeros(len(theta))
        for substep in self.word:
            t = float(substep.fraction) * self.h
            if substep.letter == "A":
                theta = A(theta, p, t)
                G = None
            elif substep.letter == "B":
                if G is None:
                    G = self.density.gradient(theta)
                p = B(p, G - self.prior * theta, t)
            else:  # "O": `_check_exact` accepts no other letters
                energy_before = _kinetic_energy(p)
                p = O(p, self.noise(self.step, substep.slot), t, self.gamma, self.tau)
                Q += _kinetic_energy(p) - energy_before
        return _Proposal(theta, p, G, Q)

    def log_density(self, step: int) -> Array:
        """Return the log density of each chain, which stands at `step`."""
        return self.log_densities

    def _potential(self, theta: Array, log_densities: Array) -> Array:
        """Return U of each chain: minus the log density, and the prior."""
        return np.asarray(self.prior / 2 * np.sum(theta**2, axis=1) - log_densities)


class _Proposal(NamedTuple):
    """The end of a step: θ, p, the gradient there (None if it is not known), and the heat Q of each chain."""

    theta: Array
    p: Array
    G: Array | None
    Q: Array


def _kinetic_energy(p: Array) -> Array:
    """Return p·p/2 of each chain."""
    return np.asarray(np.sum(p**2, axis=1) / 2)


class _DrawnSteps(NamedTuple):
    """Random numbers of a group of consecutive steps: the group's number, and a row for each step."""

    group: int
    values: Array


class _Noise:
    """The normal numbers of `Reference` and the uniform ones of the test, drawn for many steps at a time."""

    def __init__(self, seed: int, chains: int, size: int) -> None:
        self.seed = seed
        self.chains = np.arange(chains)
        self.size = size
        self.steps_ahead = max(1, AHEAD // (chains * max(size, 1)))
        self.drawn: dict[tuple[int, int], _DrawnSteps] = {}  # by stream and slot

    def __call__(self, step: int, slot: int) -> Array:
        """Return the normal numbers (chain, dimension) of a letter O, whose number in the word is `slot`."""
        return self._at(numbers.normals, numbers.NOISE, slot, step, self.size)

    def uniforms(self, step: int) -> Array:
        """Return the uniform numbers (chain,) of the test of a step."""
        return self._at(numbers.uniforms, numbers.METROPOLIS, 0, step, 1)[:, 0]

    def _at(self, draw: Callable[..., Array], stream: int, slot: int, step: int, size: int) -> Array:
        """Return the numbers (chain, size) at an address, drawn by `draw` for many steps at a time."""
        group, index = divmod(step, self.steps_ahead)
        drawn = self.drawn.get((stream, slot))
        if drawn is None or drawn.group != group:
            first_step = group * self.steps_ahead
            steps = np.arange(first_step, min(first_step + self.steps_ahead, MOST_STEPS))[:, None]
            drawn = _DrawnSteps(group, draw(self.seed, stream, slot, self.chains, steps, 0, size))
            self.drawn[stream, slot] = drawn
        return np.asarray(drawn.values[index])


class _ValueByTorch(NamedTuple):
    """The log density of each chain, and θ, where torch took the latest gradient."""

    theta: Array
    log_densities: Array


class _Density:
    """The user's functions, whose results are checked."""

    def __init__(self, log_density: Function | None, gradient: Function | None) -> None:
        for name, function in (("log_density", log_density), ("gradient", gradient)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function of theta, (chains, dimension), got {function!r}")
        if log_density is None and gradient is None:
            raise TypeError("sample needs log_density, gradient or both, got neither")
        self._log_density = log_density
        self._gradient = gradient
        self.is_known = log_density is not None
        self._latest: _ValueByTorch | None = None

    def check_start(self, theta: Array) -> None:
        """Raise if log density or gradient is not finite at the start."""
        if self.is_known:
            _check_finite("log_density(theta)", self.value(theta)[:, None], 0)
        _check_finite("gradient(theta)", self.gradient(theta), 0)

    def value(self, theta: Array) -> Array:
        """Return the log density of each chain."""
        assert self._log_density is not None
        if self._gradient is None:
            return self._value_by_torch(theta)
        return _checked_result("log_density(theta)", self._log_density(theta.copy()), theta.shape[:1])

    def _value_by_torch(self, theta: Array) -> Array:
        """Return the log density of each chain, which is known where torch has just taken the gradient."""
        if self._latest is None or not np.array_equal(self._latest.theta, theta):
            self.gradient(theta)
        assert self._latest is not None
        return self._latest.log_densities

    def gradient(self, theta: Array) -> Array:
        """Return the gradient of the log density, (chain, dimension)."""
        if self._gradient is not None:
            return _checked_result("gradient(theta)", self._gradient(theta.copy()), theta.shape)
        log_densities, gradient = self._by_torch(theta)
        self._latest = _ValueByTorch(theta.copy(), log_densities)
        return gradient

    def _by_torch(self, theta: Array) -> tuple[Array, Array]:
        """Return the log density of each chain, (chain,), and its gradient, (chain, dimension), from torch.

        Raises ModuleNotFoundError without torch, and TypeError if the user's function does not return a
        tensor that depends on θ.
        """
        with needed(NO_TORCH):
            import torch
        assert self._log_density is not None
        with torch.enable_grad():
            point = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
            result = self._log_density(point)
            if not isinstance(result, torch.Tensor) or not result.requires_grad:
                raise TypeError(
                    "without gradient= log_density must be made of torch operations on theta, a tensor, and "
                    f"return a tensor that depends on it; got {_type_name(result)}. Or give the gradient"
                )
            array = result.detach().cpu().numpy()
            log_densities = _checked_result("log_density(theta)", array, theta.shape[:1])
            (gradient,) = torch.autograd.grad(result.sum(), point)
        return log_densities, np.asarray(gradient.numpy(), dtype=np.float64)


def _checked_result(name: str, result: object, shape: tuple[int, ...]) -> Array:
    """Return the result of a user's function as an array, or raise unless its shape and numbers are right."""
    array = np.asarray(result)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be an array of real numbers, got {_type_name(result)}")
    if array.shape != shape:
        meaning = "one number for each chain" if len(shape) == 1 else "theta's shape"
        raise ValueError(f"{name} must be of shape {shape}, {meaning}; got {array.shape}")
    return array.astype(np.float64)


def _type_name(value: object) -> str:
    """Return the name of a value's type, and of its numbers if it is an array."""
    type_name = type(value).__name__
    dtype = getattr(value, "dtype", None)
    return type_name if dtype is None else f"{type_name} of {dtype}"


def _check_finite(name: str, values: Array, step: int) -> None:
    """Raise if a value of a chain is not finite; `values` are (chain, number) at this step.

    The error describes the first such value of the first such chain. It is a ValueError at step 0, where the
    user's start is wrong, and a FloatingPointError later on. `name` is what the error calls the values.
    """
    bad_chains = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if not bad_chains.size:
        return

    chain = bad_chains[0]
    coordinate = int(np.argmin(np.isfinite(values[chain])))
    text = f"chain {chain} at step {step}: {name} is not finite, got {values[chain, coordinate]}"
    if values.shape[1] > 1:
        text += f" in coordinate {coordinate}"
    if len(bad_chains) > 1:
        text += f" (and so in {len(bad_chains) - 1} more)"
    if step == 0:
        raise ValueError(f"{text}. Choose a start where log density and gradient are finite")
    raise FloatingPointError(
        f"{text}. Take a smaller h, or metropolis=True; and check that gradient is that of the log density, "
        "not of its negative"
    )


def _checked_start(start: ArrayLike | None, chains: int | None) -> Array:
    """Return θ of every chain at the start, (chain, dimension), in float64.

    Parameters
    ----------
    start
        A vector for all chains, or an array with a row for each chain.
    chains
        The number of chains; None for 4 from a single vector, or for the number of rows.

    Raises
    ------
    TypeError, ValueError
        If `start` is missing, not real, not finite or of another shape, or does not have `chains` rows.
    """
    if start is None:
        raise TypeError("sample needs start, a vector or an array (chains, dimension), got none")
    theta = _real_start(start)
    if chains is not None:
        chains = whole("chains", chains, low=1, high=MOST_CHAINS)

    if theta.ndim == 1:
        row_count = CHAINS if chains is None else chains
        return np.tile(theta, (row_count, 1)).astype(np.float64)
    if chains not in (None, len(theta)):
        raise ValueError(f"start has {len(theta)} rows, one for each chain, and chains={chains}")
    return theta.astype(np.float64)


def _real_start(start: ArrayLike) -> NDArray[Any]:
    """Return the start as a vector or a matrix, or raise unless its numbers are real and finite."""
    try:
        theta = np.asarray(start)
    except ValueError as error:
        raise ValueError(f"start must be a vector or an array (chains, dimension): {error}") from None
    if theta.dtype.kind not in "iuf":
        raise TypeError(f"start must be an array of real numbers, got {_type_name(theta)}")
    if theta.ndim not in (1, 2) or not theta.size:
        raise ValueError(f"start must be a vector or an array (chains, dimension), got shape {theta.shape}")
    if not np.isfinite(theta).all():
        raise ValueError("start must be finite, got inf or NaN")
    return theta


def _checked_partition(method: object, h: Coefficient | None) -> Partition:
    """Return a partition as it is, or the partition of a single method with the stepsize h.

    Raises TypeError for anything else, and ValueError if h is passed beside a partition, which has its own
    stepsize, or if the method has no temperature.
    """
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
    stepsize = STEPSIZE if h is None else h
    return Partition(method, stepsize)


def _check_can_sample(partition: Partition) -> None:
    """Raise ValueError unless a partition can sample a density; the error lists all reasons against it.

    It must have a single part, a method that moves it, and one value of every coefficient, and neither a
    posterior nor simulated tempering.
    """
    reasons = []
    if len(partition.methods) > 1:
        reasons.append(f"θ is one part, and it has {len(partition.methods)}")
    if partition.posterior is not None:
        reasons.append("the density is given, so leave out the posterior")
    if partition.tempering is not None:
        reasons.append("with simulated tempering the samples would be of all temperatures together")
    if not all(method.moves for method in partition.methods.values()):
        reasons.append("it moves nothing")
    axes = partition.axes()
    if axes:
        reasons.append(f"{', '.join(axes)}: a list is an axis of a sweep, and one value is needed here")
    if reasons:
        raise ValueError(f"{partition!r} cannot sample a density: {'; '.join(reasons)}")


def _check_exact(partition: Partition, log_density: Function | None) -> None:
    """Raise ValueError unless the Metropolis test is exact for a partition; the error lists all reasons.

    The test needs the log density, a single method with a palindromic word, and constant coefficients.
    """
    reasons = []
    if log_density is None:
        reasons.append("it needs log_density")
    if len(partition.methods) > 1:
        reasons.append(f"it needs one part, and there are {len(partition.methods)}")
    if not isinstance(partition.h, (float, Constant)):
        reasons.append(f"h must be constant, got {partition.h!r}")
    for method in partition.methods.values():
        reasons += _reasons_against_metropolis(method)
    if reasons:
        raise ValueError(f"metropolis=True would not be exact: {'; '.join(reasons)}")


def _reasons_against_metropolis(method: Method) -> list[str]:
    """Return the reasons why the Metropolis test would not be exact for a method; empty if it is.

    The proposal must be reversible and keep volumes, so the letters are A, B and O in a palindrome, and
    coefficients do not change from step to step.
    """
    if not method.adjustable:
        return [f"it needs Langevin, with the letters A, B and O, got {method!r}"]

    reasons = []
    if method.word != method.word[::-1]:
        reasons.append(f"the word must be a palindrome such as 'BAOAB', got {method.word!r}")
    for name in ("gamma", "tau", "weight_decay"):
        coefficient = getattr(method, name)
        if not isinstance(coefficient, (float, Constant, type(None))):
            reasons.append(f"{name} must be constant, got {coefficient!r}")
        elif name == "tau" and (coefficient is None or at(coefficient, 0) == 0):
            reasons.append(f"tau must be > 0, got {coefficient!r}")
    return reasons
