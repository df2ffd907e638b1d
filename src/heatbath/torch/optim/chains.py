"""Many chains of any module in one process: stacked parameters, and one forward pass for all chains."""

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

_all_chains: weakref.WeakSet[Chains] = weakref.WeakSet()  # see `with_chains_of_parameters`

Start = Literal["fresh", "same"] | Callable[[int], nn.Module]
ONE_BY_ONE = "one after the other"  # values of `manner`
AT_ONCE = "called at once"
MOST_IN_MESSAGE = 5  # names in a message


class Chains(nn.Module):
    """Chains of a module: every parameter and buffer `count` times, stacked along a first axis.

    Optimisers know the chains: each has its noise, its ξ, its temperature and its rung, and chain k moves as
    the module alone would with the same start, gradients, seed and `chain=k`.

    All are called at once by `torch.func.vmap`, where that is possible, and otherwise one after the other:
    `manner` tells which, after the first call. With dropout every chain drops units of its own, and each has
    the statistics of its own batch norms. Chains that are not finite any more don't affect the others.

    Parameters
    ----------
    model : Module
        What the chains are of. Its parameters are those of the first chain at the start, and don't change
        with it.
    count : int
        Number of chains.
    start : "fresh", "same" or callable, default "fresh"
        "fresh": the module as it is and, for the others, its layers initialised by their
        `reset_parameters`, with torch's generator, except parameters that don't require gradients. "same":
        the module as it is for all. A function returns the module of chain k.

    Raises
    ------
    TypeError
        If a module is needed and something else is given.
    ValueError
        If the module is lazy or without parameters, if a layer cannot be initialised, or if the modules that
        `start` returns differ in their parameters and buffers.
    RuntimeError
        If the module is sharded over processes.

    Examples
    --------
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
    """

    are_chains: ClassVar[bool] = True  # for `predict` and `Samples`, which need not import this class

    def __init__(self, model: nn.Module, count: int, start: Start = "fresh") -> None:
        super().__init__()
        if not isinstance(model, nn.Module) or isinstance(model, Chains):
            raise TypeError(f"Chains: a module is needed, got {shown(model)} of type {type(model).__name__}")
        if is_sharded(model):
            raise RuntimeError(f"Chains: {SHARDED_CHAINS}")
        self.count = whole("Chains: count", count, low=1, high=2**31)
        self.model: nn.Module
        self.__dict__["model"] = model  # not as a submodule, whose parameters would be among the chains'
        self.manner = "not called yet"
        self._modes_at_once: set[bool] = set()  # modes (training or not) in which a call at once has worked
        modules = _modules_at_start(model, self.count, start)
        if not any(True for kind in (model.parameters(), model.buffers()) for _ in kind):
            raise ValueError("Chains: the module has no parameters")
        self._places: dict[str, str] = {}  # names in this module, by names in the module of a chain
        with torch.no_grad():
            for name, stacked in _stack(modules, "named_parameters"):
                requires_grad = model.get_parameter(name).requires_grad
                self.register_parameter(self._new_place(name), nn.Parameter(stacked, requires_grad))
            for name, stacked in _stack(modules, "named_buffers"):
                self.register_buffer(self._new_place(name), stacked)
        self.train(model.training)
        _all_chains.add(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        _all_chains.add(self)

    def place(self, name: str) -> str:
        """Return the name of a stacked tensor in this module, given its name in the module of one chain."""
        return self._places[name]

    def _new_place(self, name: str) -> str:
        """Choose and keep a name for a stacked tensor: without dots, and one that is still free."""
        place = name.replace(".", "/")
        while hasattr(self, place):
            place = f"/{place}"
        self._places[name] = place
        return place

    def extra_repr(self) -> str:
        """Return the number of chains, their module, and how they are called."""
        return f"{self.count} chains of {type(self.model).__name__}, {self.manner}"

    def train(self, mode: bool = True) -> Chains:
        """Switch training on or off, in the module as well; return the chains."""
        super().train(mode)
        self.model.train(mode)
        return self

    def forward(self, *inputs: Any, each: bool = False, **keywords: Any) -> Any:
        """Call the module of every chain.

        Parameters
        ----------
        *inputs, **keywords
            Arguments of the module, the same for all chains.
        each : bool, default False
            If true, tensors among the arguments are (chains, ...), and each chain gets its own.

        Returns
        -------
        object
            What the module returns, with the chain as the first axis of its tensors.
        """
        arguments = Arguments(inputs, keywords, each)
        if each:
            self._check_first_axis(arguments)
        tensors = {name: getattr(self, place) for name, place in self._places.items()}
        if self.manner == ONE_BY_ONE:
            return self._call_one_by_one(tensors, arguments)
        has_worked = self.training in self._modes_at_once
        snapshot = None if has_worked else self._take_snapshot()
        try:
            outputs = self._call_at_once(tensors, arguments)
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            if snapshot is None:
                raise
            self._restore(snapshot)
            reason = " ".join(str(error).split())[:200]
        else:
            self.manner = AT_ONCE
            self._modes_at_once.add(self.training)
            return outputs
        outputs = self._call_one_by_one(tensors, arguments)
        self.manner = ONE_BY_ONE
        warnings.warn(
            f"the chains of {type(self.model).__name__} are called one after the other: torch.func.vmap "
            f"cannot call them at once, {reason}",
            RuntimeWarning,
            stacklevel=2,
        )
        return outputs

    def _check_first_axis(self, arguments: Arguments) -> None:
        """Refuse tensors without the chain as their first axis."""
        for leaf in tree_leaves((arguments.inputs, arguments.keywords)):
            if isinstance(leaf, Tensor) and leaf.shape[:1] != (self.count,):
                raise ValueError(
                    f"each: inputs must be (chains, ...) of {self.count} chains, got {shown(leaf)}"
                )

    def _take_snapshot(self) -> Snapshot:
        """Return a copy of what a call may change."""
        devices = sorted({p.device.index or 0 for p in self.parameters() if p.is_cuda})
        cuda_states = {device: torch.cuda.get_rng_state(device) for device in devices}
        return Snapshot([buffer.clone() for buffer in self.buffers()], torch.get_rng_state(), cuda_states)

    @torch.no_grad()
    def _restore(self, snapshot: Snapshot) -> None:
        """Undo what a call has changed that failed, so that it doesn't count twice."""
        for buffer, saved in zip(self.buffers(), snapshot.buffers, strict=True):
            buffer.copy_(saved)
        torch.set_rng_state(snapshot.cpu_state)
        for device, state in snapshot.cuda_states.items():
            torch.cuda.set_rng_state(state, device)

    def _call_at_once(self, tensors: dict[str, Tensor], arguments: Arguments) -> Any:
        """Call all chains by `torch.func.vmap`; `tensors` are the stacked ones, by names in the module."""

        def call(
            tensors_of_chain: dict[str, Tensor], inputs: tuple[Any, ...], keywords: dict[str, Any]
        ) -> Any:
            return torch.func.functional_call(self.model, tensors_of_chain, inputs, keywords)

        inputs, keywords, each = arguments
        has_tensors = any(isinstance(leaf, Tensor) for leaf in tree_leaves((inputs, keywords)))
        axes = tree_map(lambda leaf: 0 if isinstance(leaf, Tensor) else None, (inputs, keywords))
        in_dims = (0, *axes) if each and has_tensors else (0, None, None)
        return torch.func.vmap(call, in_dims=in_dims, randomness="different")(tensors, inputs, keywords)

    def _call_one_by_one(self, tensors: dict[str, Tensor], arguments: Arguments) -> Any:
        """Call one chain after the other and stack what they return."""
        outputs = []
        for k in range(self.count):
            tensors_of_chain = {name: tensor[k] for name, tensor in tensors.items()}
            inputs, keywords = arguments.inputs, arguments.keywords
            if arguments.each:
                inputs, keywords = tree_map(
                    lambda leaf, k=k: leaf[k] if isinstance(leaf, Tensor) else leaf, (inputs, keywords)
                )
            outputs.append(torch.func.functional_call(self.model, tensors_of_chain, inputs, keywords))

        def stack(*leaves: Any) -> Any:  # what is not a tensor is that of the first chain
            return torch.stack(leaves) if isinstance(leaves[0], Tensor) else leaves[0]

        return tree_map(stack, *outputs)

    def each(self, function: Callable[..., Tensor], outputs: Any, *targets: Any) -> Tensor:
        """Apply a function, such as a loss, to the outputs of each chain.

        Parameters
        ----------
        function : callable
            It is called as `function(outputs of a chain, *targets)`.
        outputs
            What the chains have returned, (chains, ...).
        *targets
            Further arguments, the same for all chains.

        Returns
        -------
        Tensor, (chains, ...)
            The values of all chains.
        """
        axes = (0, *(None for _ in targets))
        return torch.func.vmap(function, in_dims=axes, randomness="different")(outputs, *targets)

    def alive(self, state: Mapping[str, Any] | None = None) -> Tensor:
        """Return which chains are finite, as a tensor of booleans.

        What is not finite in a buffer of the module itself, such as a mask of -inf, is left out.

        Parameters
        ----------
        state : mapping, optional
            A state of the chains, as `Samples` has them; without it their parameters and buffers now.
        """
        masks = {name: ~buffer.isfinite() for name, buffer in self.model.named_buffers()}
        all_finite = []
        for name, place in self._places.items():
            if state is not None and place not in state:
                continue
            tensor = (getattr(self, place) if state is None else state[place]).detach()
            is_finite = tensor.isfinite()
            if name in masks:
                is_finite = is_finite | masks[name].to(is_finite.device)
            all_finite.append(is_finite.reshape(self.count, -1).all(dim=1))
        return torch.stack(all_finite).all(dim=0)

    def states(self, state: Mapping[str, Any] | None = None) -> Iterator[dict[str, Tensor]]:
        """Yield the state of the module in each chain.

        Parameters
        ----------
        state : mapping, optional
            A state of the chains, as `Samples` has them; without it their state now.
        """
        state = self.state_dict() if state is None else state
        missing = [place for place in self._places.values() if place not in state]
        if missing:
            names = ", ".join(missing[:MOST_IN_MESSAGE])
            raise ValueError(f"this is not a state of these chains: it has no {names}")
        names_of_model = self.model.state_dict(keep_vars=True)
        kept = [name for name in names_of_model if not name.endswith("_extra_state")]
        places = {**self._places, **self._tied_places()}
        for k in range(self.count):
            yield {name: state[places[name]][k] for name in kept}

    def load_into(self, model: nn.Module, chain: int) -> None:
        """Load the parameters and buffers of a chain into a module of the same architecture."""
        whole("chain", chain, low=0, high=self.count)
        state = list(self.states())[chain]
        names = {name for name in model.state_dict() if not name.endswith("_extra_state")}
        different = sorted(names ^ state.keys())
        if different:
            raise ValueError(
                "load_into: a module of the architecture of the chains is needed; only one of the two has "
                f"{', '.join(different[:MOST_IN_MESSAGE])}"
            )
        model.load_state_dict(state, strict=False)  # all but extra state

    def _tied_places(self) -> dict[str, str]:
        """Return the places of tensors that have several names, by all of these names."""
        tensors = [
            *self.model.named_parameters(remove_duplicate=False),
            *self.model.named_buffers(remove_duplicate=False),
        ]
        places = {id(tensor): self._places[name] for name, tensor in tensors if name in self._places}
        return {name: places[id(tensor)] for name, tensor in tensors if id(tensor) in places}

    def of(self, parameter: Tensor) -> nn.Parameter:
        """Return the stacked parameter that belongs to a parameter of the module."""
        for name, parameter_of_model in self.model.named_parameters():
            if parameter_of_model is parameter:
                return self.get_parameter(self._places[name])
        raise ValueError(
            "a parameter is not one of the module of the chains: give those of chains.model, and chains "
            'beside them, as in {"params": chains.model[0].parameters(), "chains": chains, ...}'
        )


class Arguments(NamedTuple):
    """Arguments of a call of the chains, and whether each chain has its own."""

    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    each: bool


class Snapshot(NamedTuple):
    """What a call of the chains may change: their buffers, and the states of torch's generators."""

    buffers: list[Tensor]
    cpu_state: Tensor
    cuda_states: dict[int, Tensor]


def _modules_at_start(model: nn.Module, count: int, start: object) -> list[nn.Module]:
    """Return the modules that the chains start as; for `start` see `Chains`."""
    if any(isinstance(p, nn.UninitializedParameter) for p in model.parameters()):
        raise ValueError("Chains: the module is lazy: call it once before you make chains of it")
    if start == "same":
        return [model] * count
    if callable(start):
        return [_checked_start(model, start(k), k) for k in range(count)]
    if start != "fresh":
        raise ValueError(f"Chains: start must be 'fresh', 'same' or a function, got {shown(start)}")
    fixed = [
        name or type(module).__name__
        for name, module in model.named_modules()
        if _has_own_parameters(module) and _initialiser_of(module) is None
    ]
    if fixed and count > 1:
        raise ValueError(
            f"Chains: {', '.join(fixed[:MOST_IN_MESSAGE])} cannot be initialised, having no "
            "reset_parameters: use start='same' for chains that start alike, or start=function, which "
            "returns the module of chain k"
        )
    copies = [deepcopy(model) for _ in range(count - 1)]
    for copied in copies:
        _initialise(copied)
    with torch.no_grad():
        for copied in copies:
            for p, trained in zip(copied.parameters(), model.parameters(), strict=True):
                if not trained.requires_grad:
                    p.copy_(trained)
    return [model, *copies]


def _checked_start(model: nn.Module, module: Any, k: int) -> nn.Module:
    """Return the module that a start function has returned for chain k, refused unless it is like `model`."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"Chains: start({k}) must return a module, got {shown(module)}")
    if _shapes_of(module) != _shapes_of(model):
        raise ValueError(
            f"Chains: start({k}) must return a module with the parameters and buffers of the first"
        )
    return module


def _shapes_of(module: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in module.state_dict().items() if isinstance(tensor, Tensor)}


def _has_own_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters(recurse=False))


def _initialise(model: nn.Module) -> None:
    """Initialise all layers of a module in place."""
    for module in model.modules():
        initialiser = _initialiser_of(module)
        if _has_own_parameters(module) and initialiser is not None:
            initialiser()


def _initialiser_of(module: nn.Module) -> Callable[[], None] | None:
    """Return the method that initialises a layer, None where it has none."""
    return getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)


def _stack(modules: list[nn.Module], kind: str) -> Iterator[tuple[str, Tensor]]:
    """Yield names and stacked tensors of modules; `kind` is "named_parameters" or "named_buffers"."""
    of_modules = [dict(getattr(module, kind)()) for module in modules]
    for name in of_modules[0]:
        yield name, torch.stack([tensors[name].detach() for tensors in of_modules])


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
