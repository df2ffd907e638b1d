# Written by python -m tests.stubs: the classes that classes.py makes, as type checkers see them.
from collections.abc import Iterable
from typing import Any, Literal

from torch import Tensor, nn

from heatbath.methods import Method
from heatbath.methods.schedules import Value
from heatbath.torch.optim.optimizer import Partitioned
from heatbath.torch.optim.posterior import LossPosterior

def method_class(method: type[Method]) -> type[Partitioned]: ...
def preset_class(name: str) -> type[Partitioned]: ...
def __getattr__(name: str) -> type[Partitioned]: ...

class AdLaLa(Partitioned):
    """Use Adaptive Langevin dynamics in hidden layers and Langevin dynamics in the output layer.

    See `heatbath.AdLaLa`.
    """

    def __init__(
        self,
        model: nn.Module | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]] | None = None,
        *,
        lr: Value = 0.15,
        tau: Value = 0.0001,
        sigma: Value = 0.01,
        epsilon: Value = 0.03,
        gamma: Value = 0.1,
        tau_output: Value | None = None,
        word: str = 'BACDEDCAB',
        word_output: str = 'BAOAB',
        xi: Value = 0.1,
        friction: Literal['map', 'sde'] = 'map',
        thermostat: Literal['part', 'tensor'] = 'part',
        kinetic: Literal['sum', 'mean'] = 'sum',
        frequency: Value = 0.0,
        damping: Value = 0.0,
        weight_decay: Value = 0.0,
        hidden: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        output: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        parts: Literal["layers", "blocks"] = 'layers',
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None: ...

class LOL(Partitioned):
    """Use Langevin dynamics in hidden layers and overdamped Langevin dynamics in the output layer.

    See `heatbath.LOL`.
    """

    def __init__(
        self,
        model: nn.Module | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]] | None = None,
        *,
        lr: Value = 0.2,
        gamma: Value = 0.3,
        tau: Value | None = 1e-05,
        tau_output: Value | None = 0.0,
        word: str = 'BAOAB',
        word_output: str = 'BAOAB',
        weight_decay: Value = 0.0,
        hidden: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        output: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        parts: Literal["layers", "blocks"] = 'layers',
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None: ...

class LaLa(Partitioned):
    """Use Langevin dynamics with separate friction and temperature in hidden and output layers.

    See `heatbath.LaLa`.
    """

    def __init__(
        self,
        model: nn.Module | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]] | None = None,
        *,
        lr: Value,
        gamma: Value,
        tau: Value | None = None,
        gamma_output: Value | None = None,
        tau_output: Value | None = None,
        word: str = 'BAOAB',
        word_output: str = 'BAOAB',
        weight_decay: Value = 0.0,
        hidden: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        output: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        parts: Literal["layers", "blocks"] = 'layers',
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None: ...

class AdLAdL(Partitioned):
    """Use Adaptive Langevin dynamics in all layers, with a separate ξ for each layer.

    See `heatbath.AdLAdL`.
    """

    def __init__(
        self,
        model: nn.Module | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]] | None = None,
        *,
        lr: Value = 0.15,
        tau: Value = 0.0001,
        sigma: Value = 0.01,
        epsilon: Value = 0.03,
        tau_output: Value | None = None,
        sigma_output: Value | None = None,
        epsilon_output: Value | None = None,
        word: str = 'BACDEDCAB',
        word_output: str = 'BACDEDCAB',
        xi: Value = 0.1,
        friction: Literal['map', 'sde'] = 'map',
        thermostat: Literal['part', 'tensor'] = 'part',
        kinetic: Literal['sum', 'mean'] = 'sum',
        frequency: Value = 0.0,
        damping: Value = 0.0,
        weight_decay: Value = 0.0,
        hidden: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        output: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        parts: Literal["layers", "blocks"] = 'layers',
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None: ...

class Langevin(Partitioned):
    """Langevin dynamics: dθ = p dt, dp = G dt - γ p dt + sqrt(2γτ) dW.

    See `heatbath.Langevin`.
    """

    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        gamma: Value,
        tau: Value | None = None,
        word: str = 'BAOAB',
        weight_decay: Value = 0.0,
        *,
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None: ...

class AdaptiveLangevin(Partitioned):
    """Langevin dynamics with adaptive friction: dp = G dt - ξ p dt + σ dW, dξ = ε (p·p - Nτ) dt.

    See `heatbath.AdaptiveLangevin`.
    """

    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        tau: Value = 0.0001,
        sigma: Value = 0.01,
        epsilon: Value = 0.03,
        word: str = 'BACDEDCAB',
        xi: Value = 0.1,
        friction: Literal['map', 'sde'] = 'map',
        thermostat: Literal['part', 'tensor'] = 'part',
        kinetic: Literal['sum', 'mean'] = 'sum',
        weight_decay: Value = 0.0,
        frequency: Value = 0.0,
        damping: Value = 0.0,
        *,
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None: ...

class SGLD(Partitioned):
    """Stochastic gradient Langevin dynamics: θ += h G + σ sqrt(h) R.

    See `heatbath.SGLD`.
    """

    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        sigma: Value | None = None,
        weight_decay: Value = 0.0,
        *,
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None: ...

class SGD(Partitioned):
    """Gradient descent: θ += h G.

    See `heatbath.SGD`.
    """

    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        weight_decay: Value = 0.0,
        *,
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None: ...

class Momentum(Partitioned):
    """Gradient descent with momentum; v starts at 0. Algorithm 2 of the paper.

    See `heatbath.Momentum`.
    """

    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        mu: Value,
        kind: Literal[1, 2] = 1,
        weight_decay: Value = 0.0,
        *,
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None: ...

class Adam(Partitioned):
    """Adam as in torch, with the Gaussian prior outside the moments, which torch calls AdamW.

    See `heatbath.Adam`.
    """

    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        beta1: Value = 0.9,
        beta2: Value = 0.999,
        eps: Value = 1e-08,
        weight_decay: Value = 0.0,
        *,
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None: ...

class RMSprop(Partitioned):
    """RMSprop as in torch, with the Gaussian prior outside the mean of squares.

    See `heatbath.RMSprop`.
    """

    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        alpha: Value = 0.99,
        eps: Value = 1e-08,
        weight_decay: Value = 0.0,
        *,
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None: ...

class Frozen(Partitioned):
    """Keep the parameters fixed. It has no coefficients.

    See `heatbath.Frozen`.
    """

    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        *,
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None: ...
