"""Many chains of any module in one process: parameters stacked along a first axis, one pass for all."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from heatbath._internal.checks import shown, whole
from heatbath.torch.optim.param_groups import listed, tensor_of
from heatbath.torch.optim.sharding import SHARDED_CHAINS, is_sharded

_all_chains: weakref.WeakSet[Chains] = weakref.WeakSet()  # all that there are: see `recognised`

Start = Literal["fresh", "same"] | Callable[[int], nn.Module]


class Chains(nn.Module):
    """Chains of a module: every parameter and buffer is there `count` times, stacked along a first axis.

    >>> import torch
    >>> from heatbath.torch import AdLaLa, Chains
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 20), torch.nn.ReLU(), torch.nn.Linear(20, 3))
    >>> chains = Chains(model, 4)
    >>> optimizer = AdLaLa(chains, lr=0.1)
    >>> x, y = torch.randn(64, 2), torch.randint(3, (64,))
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     losses = chains.each(torch.nn.functional.cross_entropy, chains(x), y)
    ...     losses.sum().backward()  # the sum: each chain has the gradient of its own loss
    ...     loss = optimizer.step()
    >>> losses.shape, chains(x).shape
    (torch.Size([4]), torch.Size([4, 64, 3]))

    Optimisers know the chains: each has its noise, its ξ, its temperature and its rung, and chain k moves as
    the module alone would with the same start, gradients, seed and `chain=k`.

    - `start`: "fresh" for the module as it is and, for the others, its layers initialised anew by their
      `reset_parameters`, with torch's generator, but for parameters that do not require gradients; "same" for
      all as it is; or a function that makes the module of chain k.

    All are called at once by `torch.func.vmap`, where that can be, and otherwise one after the other:
    `manner` says which, after the first call. With dropout every chain drops its own, and each has the
    statistics of its own batch norms. Chains that are not finite any more do not touch the others (`alive`).
    """

    are_chains: ClassVar[bool] = True  # as `predict` and `Samples` ask, which need not import this

    def __init__(self, model: nn.Module, count: int, start: Start = "fresh") -> None:
        super().__init__()
        if not isinstance(model, nn.Module) or isinstance(model, Chains):
            raise TypeError(f"Chains: a module is needed, got {shown(model)} of type {type(model).__name__}")
        if is_sharded(model):
            raise RuntimeError(f"Chains: {SHARDED_CHAINS}")
        self.count = whole("Chains: count", count, low=1, high=2**31)
        self.model: nn.Module
        self.__dict__["model"] = model  # its parameters are not among those of the chains
        self.manner = "not called yet"
        self._at_once: set[bool] = set()  # the modes, training or not, in which a call at once has worked
        modules = _started(model, self.count, start)
        if not any(True for kind in (model.parameters(), model.buffers()) for _ in kind):
            raise ValueError("Chains: the module has no parameters")
        self._places: dict[str, str] = {}
        with torch.no_grad():
            for name, values in _joined(modules, "named_parameters"):
                wanted = model.get_parameter(name).requires_grad
                self.register_parameter(self._place(name), nn.Parameter(values, requires_grad=wanted))
            for name, values in _joined(modules, "named_buffers"):
                self.register_buffer(self._place(name), values)
        self.train(model.training)
        _all_chains.add(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        _all_chains.add(self)

    def place(self, name: str) -> str:
        """The name in this module of what has that name in the module alone."""
        return self._places[name]

    def _place(self, name: str) -> str:
        """The name of a stacked tensor in this module, which may have no dots, and is not taken yet."""
        place = name.replace(".", "/")
        while hasattr(self, place):
            place = f"/{place}"
        self._places[name] = place
        return place

    def extra_repr(self) -> str:
        """What is in it."""
        return f"{self.count} chains of {type(self.model).__name__}, {self.manner}"

    def train(self, mode: bool = True) -> Chains:
        """Training or evaluation, of the module too."""
        super().train(mode)
        self.model.train(mode)
        return self

    def forward(self, *inputs: Any, each: bool = False, **named: Any) -> Any:
        """What all chains say of the same inputs, or with `each` of inputs (chains, ...) of their own.

        Tensors that the module returns have the chain as their first axis. Other keywords are the module's.
        """
        every = (x for x in tree_leaves((inputs, named)) if isinstance(x, Tensor))
        if each and (bad := [shown(x) for x in every if x.shape[:1] != (self.count,)]):
            raise ValueError(f"each: inputs must be (chains, ...) of {self.count} chains, got {bad[0]}")
        values = {name: getattr(self, place) for name, place in self._places.items()}
        if self.manner != "one after the other":
            before = None if self.training in self._at_once else self._snapshot()
            try:
                outputs = self._together(values, inputs, named, each)
                self.manner = "called at once"
                self._at_once.add(self.training)
                return outputs
            except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
                if before is None:
                    raise
                self._put_back(before)
                reason = " ".join(str(error).split())[:200]
        outputs = self._in_turn(values, inputs, named, each)
        if self.manner != "one after the other":
            self.manner = "one after the other"
            warnings.warn(
                f"the chains of {type(self.model).__name__} are called one after the other: torch.func.vmap "
                f"cannot call them at once, {reason}",
                RuntimeWarning,
                stacklevel=2,
            )
        return outputs

    def _snapshot(self) -> tuple[list[Tensor], list[Tensor]]:
        """What a call may change: the buffers, and the state of torch's generators."""
        devices = sorted({p.device.index or 0 for p in self.parameters() if p.is_cuda})
        states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices)]
        return [buffer.clone() for buffer in self.buffers()], states

    @torch.no_grad()
    def _put_back(self, before: tuple[list[Tensor], list[Tensor]]) -> None:
        """Undo what an attempt has changed that failed: it would count twice."""
        buffers, (here, *others) = before
        for buffer, value in zip(self.buffers(), buffers, strict=True):
            buffer.copy_(value)
        torch.set_rng_state(here)
        devices = sorted({p.device.index or 0 for p in self.parameters() if p.is_cuda})
        for device, state in zip(devices, others, strict=True):
            torch.cuda.set_rng_state(state, device)

    def _together(
        self, values: dict[str, Tensor], inputs: tuple[Any, ...], named: dict[str, Any], each: bool
    ) -> Any:
        def call(own: dict[str, Tensor], given: tuple[Any, ...], also: dict[str, Any]) -> Any:
            return torch.func.functional_call(self.model, own, given, also)

        own = each and any(isinstance(x, Tensor) for x in tree_leaves((inputs, named)))
        axes = tree_map(lambda x: 0 if isinstance(x, Tensor) else None, (inputs, named))
        dims = (0, *axes) if own else (0, None, None)
        return torch.func.vmap(call, in_dims=dims, randomness="different")(values, inputs, named)

    def _in_turn(
        self, values: dict[str, Tensor], inputs: tuple[Any, ...], named: dict[str, Any], each: bool
    ) -> Any:
        said = []
        for k in range(self.count):
            own = {name: tensor[k] for name, tensor in values.items()}
            given, also = inputs, named
            if each:
                given, also = tree_map(lambda x, k=k: x[k] if isinstance(x, Tensor) else x, (inputs, named))
            said.append(torch.func.functional_call(self.model, own, given, also))

        def joined(*outputs: Any) -> Any:  # a tensor of each, or what is no tensor, which the first has
            return torch.stack(outputs) if isinstance(outputs[0], Tensor) else outputs[0]

        return tree_map(joined, *said)

    def each(self, function: Callable[..., Tensor], outputs: Any, *others: Any) -> Tensor:
        """A function of each chain's outputs, such as a loss: one value of each, (chains, ...).

        `others`, such as targets, are the same for all.
        """
        axes = (0, *(None for _ in others))
        return torch.func.vmap(function, in_dims=axes, randomness="different")(outputs, *others)

    def alive(self, state: Mapping[str, Any] | None = None) -> Tensor:
        """Which chains are finite: now, or in a state of the chains, as `Samples` has them.

        What is not finite in a buffer of the module itself, such as a mask of -inf, is not looked at.
        """
        masks = {name: ~buffer.isfinite() for name, buffer in self.model.named_buffers()}
        finite = []
        for name, place in self._places.items():
            if state is None or place in state:
                tensor = (getattr(self, place) if state is None else state[place]).detach()
                own = tensor.isfinite()
                own = own | masks[name].to(own.device) if name in masks else own
                finite.append(own.reshape(self.count, -1).all(dim=1))
        return torch.stack(finite).all(dim=0)

    def states(self, state: Mapping[str, Any] | None = None) -> Iterator[dict[str, Tensor]]:
        """The state of the module in each chain: now, or in a state of the chains, as `Samples` has them."""
        state = self.state_dict() if state is None else state
        if missing := [place for place in self._places.values() if place not in state]:
            raise ValueError(f"this is not a state of these chains: it lacks {', '.join(missing[:5])}")
        named = [name for name in self.model.state_dict(keep_vars=True) if not name.endswith("_extra_state")]
        known = {**self._places, **self._tied()}
        for k in range(self.count):
            yield {name: state[known[name]][k] for name in named}

    def load_into(self, model: nn.Module, chain: int) -> None:
        """Give a module the parameters and buffers of a chain."""
        whole("chain", chain, low=0, high=self.count)
        state = list(self.states())[chain]
        names = {name for name in model.state_dict() if not name.endswith("_extra_state")}
        if differ := sorted(names ^ state.keys()):
            raise ValueError(
                f"load_into: a module of the architecture of the chains is needed; {', '.join(differ[:5])} "
                "is in one of the two only"
            )
        model.load_state_dict(state, strict=False)  # but for extra state

    def _tied(self) -> dict[str, str]:
        """Names of tensors that have another name as well, with the place of what they are tied to."""
        by_id = {id(p): self._places[name] for name, p in self._own() if name in self._places}
        return {name: by_id[id(p)] for name, p in self._own() if id(p) in by_id}

    def _own(self) -> list[tuple[str, Tensor]]:
        return [
            *self.model.named_parameters(remove_duplicate=False),
            *self.model.named_buffers(remove_duplicate=False),
        ]

    def of(self, parameter: Tensor) -> nn.Parameter:
        """The stacked parameter of one of the module."""
        for name, own in self.model.named_parameters():
            if own is parameter:
                return self.get_parameter(self._places[name])
        raise ValueError(
            "a parameter is not one of the module of the chains: give those of chains.model, and chains "
            'beside them, as in {"params": chains.model[0].parameters(), "chains": chains, ...}'
        )


def _started(model: nn.Module, count: int, start: object) -> list[nn.Module]:
    """The modules that the chains start as."""
    if any(isinstance(p, nn.UninitializedParameter) for p in model.parameters()):
        raise ValueError("Chains: the module is lazy: call it once before")
    if start == "same":
        return [model] * count
    if callable(start):
        made = [start(k) for k in range(count)]
        shapes = {name: p.shape for name, p in model.state_dict().items() if isinstance(p, Tensor)}
        for k, module in enumerate(made):
            if not isinstance(module, nn.Module):
                raise TypeError(f"Chains: start({k}) must be a module, got {shown(module)}")
            own = {name: p.shape for name, p in module.state_dict().items() if isinstance(p, Tensor)}
            if own != shapes:
                raise ValueError(f"Chains: start({k}) must have the parameters and buffers of the module")
        return made
    if start != "fresh":
        raise ValueError(f"Chains: start must be 'fresh', 'same' or a function, got {shown(start)}")
    stuck = [
        name or type(module).__name__
        for name, module in model.named_modules()
        if any(True for _ in module.parameters(recurse=False)) and not _resets(module)
    ]
    if stuck and count > 1:
        raise ValueError(
            f"Chains: {', '.join(stuck[:5])} cannot be initialised anew, having no reset_parameters: say "
            "start='same' for chains that start alike, or start=function, which makes the module of chain k"
        )
    others = [deepcopy(model) for _ in range(count - 1)]
    for module in (module for other in others for module in other.modules()):
        if any(True for _ in module.parameters(recurse=False)):
            _resets(module)()  # type: ignore[misc]
    with torch.no_grad():
        for other in others:
            for p, trained in zip(other.parameters(), model.parameters(), strict=True):
                if not trained.requires_grad:
                    p.copy_(trained)
    return [model, *others]


def _resets(module: nn.Module) -> Callable[[], None] | None:
    return getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)


def _joined(modules: list[nn.Module], kind: str) -> Iterator[tuple[str, Tensor]]:
    """The parameters or buffers of modules, stacked."""
    every = [dict(getattr(module, kind)()) for module in modules]
    for name in every[0]:
        yield name, torch.stack([own[name].detach() for own in every])


def with_chains_of_parameters(groups: Iterable[Any]) -> list[Any]:
    """Return new groups in which stacked parameters are replaced by their module's, with "chains" beside.

    Taken for one long parameter, those of all chains would share one ξ and one temperature. Groups without
    stacked parameters, and groups with "chains", are returned as they are.
    """
    return [_with_chains(group) for group in groups]


def _with_chains(group: Any) -> Any:
    """Return one group as `with_chains_of_parameters` does."""
    params = group.get("params") if isinstance(group, dict) and group.get("chains") is None else None
    if params is None or isinstance(params, set):  # torch refuses a set
        return group
    params = listed(params)
    stacks = [_find_stack(tensor_of(entry)) for entry in params]
    group = group | {"params": params}
    all_chains = {id(stack.chains): stack.chains for stack in stacks if stack is not None}
    if not all_chains:
        return group
    if None in stacks or len(all_chains) > 1:
        raise ValueError("a group has parameters of chains beside others: give each Chains groups of its own")
    (chains,) = all_chains.values()
    return group | {"params": [stack.parameter for stack in stacks if stack is not None], "chains": chains}


class Stack(NamedTuple):
    """The chains that a stacked parameter belongs to, and the parameter of their module that is stacked."""

    chains: Chains
    parameter: nn.Parameter


def _find_stack(parameter: object) -> Stack | None:
    """Return what a stacked parameter belongs to, None for any other parameter."""
    for chains in list(_all_chains):
        for name, stacked_name in chains._places.items():
            if chains._parameters.get(stacked_name) is parameter:
                return Stack(chains, chains.model.get_parameter(name))
    return None


def with_stacked_parameters(groups: Iterable[Any]) -> list[Any]:
    """Return new groups in which parameters of the module of "chains" are replaced by the stacked ones.

    The value of "chains" becomes the number of chains. Groups without "chains" are returned as they are.
    """
    stacked_groups = []
    for group in groups:
        chains = group.get("chains") if isinstance(group, dict) else None
        if isinstance(chains, Chains):
            params = [chains.of(tensor_of(entry)) for entry in listed(group["params"])]
            group = group | {"params": params, "chains": chains.count}
        elif chains is not None and not isinstance(chains, int):
            raise TypeError(f"chains must be a Chains, got {shown(chains)}")
        stacked_groups.append(group)
    return stacked_groups
