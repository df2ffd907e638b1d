# Written by python -m tests.stubs: the classes that classes.py makes, as type checkers see them.
from collections.abc import Iterable
from typing import Any, Literal

from torch import Tensor, nn

from heatbath.methods import Method
from heatbath.schedules import Value
from heatbath.torch.optimizer import Partitioned

def method_class(method: type[Method]) -> type[Partitioned]: ...
def preset_class(name: str) -> type[Partitioned]: ...
def __getattr__(name: str) -> type[Partitioned]: ...

class AdLaLa(Partitioned):
    def __init__(
        self,
        model: nn.Module | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]] | None = None,
        *,
        lr: Value = 0.15,
        tau: Value = 0.0001,
        sigma: Value = 0.01,
        epsilon: Value = 0.1,
        gamma: Value = 0.1,
        tau_output: Value | None = None,
        word: str = 'BACDEDCAB',
        word_output: str = 'BAOAB',
        xi: Value = 0.1,
        friction: Literal['map', 'sde'] = 'map',
        thermostat: Literal['part', 'tensor'] = 'part',
        kinetic: Literal['sum', 'mean'] = 'sum',
        weight_decay: Value = 0.0,
        hidden: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        output: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None: ...

class LOL(Partitioned):
    def __init__(
        self,
        model: nn.Module | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]] | None = None,
        *,
        lr: Value = 0.1,
        gamma: Value = 0.01,
        tau: Value = 0.001,
        tau_output: Value = 0.0,
        word: str = 'BAOAB',
        word_output: str = 'BAOAB',
        weight_decay: Value = 0.0,
        hidden: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        output: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None: ...

class LaLa(Partitioned):
    def __init__(
        self,
        model: nn.Module | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]] | None = None,
        *,
        lr: Value,
        gamma: Value,
        tau: Value,
        gamma_output: Value | None = None,
        tau_output: Value | None = None,
        word: str = 'BAOAB',
        word_output: str = 'BAOAB',
        weight_decay: Value = 0.0,
        hidden: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        output: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None: ...

class AdLAdL(Partitioned):
    def __init__(
        self,
        model: nn.Module | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]] | None = None,
        *,
        lr: Value = 0.15,
        tau: Value = 0.0001,
        sigma: Value = 0.01,
        epsilon: Value = 0.1,
        tau_output: Value | None = None,
        sigma_output: Value | None = None,
        epsilon_output: Value | None = None,
        word: str = 'BACDEDCAB',
        word_output: str = 'BACDEDCAB',
        xi: Value = 0.1,
        friction: Literal['map', 'sde'] = 'map',
        thermostat: Literal['part', 'tensor'] = 'part',
        kinetic: Literal['sum', 'mean'] = 'sum',
        weight_decay: Value = 0.0,
        hidden: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        output: nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None = None,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None: ...

class Langevin(Partitioned):
    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        gamma: Value,
        tau: Value,
        word: str = 'BAOAB',
        weight_decay: Value = 0.0,
        *,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None: ...

class AdaptiveLangevin(Partitioned):
    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        tau: Value = 0.0001,
        sigma: Value = 0.01,
        epsilon: Value = 0.1,
        word: str = 'BACDEDCAB',
        xi: Value = 0.1,
        friction: Literal['map', 'sde'] = 'map',
        thermostat: Literal['part', 'tensor'] = 'part',
        kinetic: Literal['sum', 'mean'] = 'sum',
        weight_decay: Value = 0.0,
        *,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None: ...

class SGLD(Partitioned):
    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        sigma: Value,
        weight_decay: Value = 0.0,
        *,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None: ...

class SGD(Partitioned):
    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        weight_decay: Value = 0.0,
        *,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None: ...

class Momentum(Partitioned):
    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        mu: Value,
        kind: Literal[1, 2] = 1,
        weight_decay: Value = 0.0,
        *,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None: ...

class Adam(Partitioned):
    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        beta1: Value = 0.9,
        beta2: Value = 0.999,
        eps: Value = 1e-08,
        weight_decay: Value = 0.0,
        *,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None: ...

class RMSprop(Partitioned):
    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        alpha: Value = 0.99,
        eps: Value = 1e-08,
        weight_decay: Value = 0.0,
        *,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None: ...

class Frozen(Partitioned):
    def __init__(
        self,
        params: nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: Value,
        *,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None: ...
