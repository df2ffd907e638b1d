"""Many chains of any module in one process: stacked parameters, and one forward pass for all chains."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from heatbath._internal.checks import shown, whole
from heatbath._internal.warnings import warn
from heatbath.torch.optim.param_groups import NewGroup, listed, tensor_of
from heatbath.torch.optim.sharding import SHARDED_CHAINS, is_sharded
from heatbath.torch.prediction.states import select_tensors

_all_chains: weakref.WeakSet[Chains] = weakref.WeakSet()  # see `with_chains`

Start = Literal["fresh", "same"] | Callable[[int], nn.Module]
ONE_BY_ONE = "one after the other"  # values of `manner`
AT_ONCE = "called at once"
MOST_IN_MESSAGE = 5  # names in a message
LENGTH_OF_REASON = 200  # characters of an error that a warning quotes


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
        """Stack the parameters and buffers of `count` modules that start as `start` says."""
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
        if not [*model.parameters(), *model.buffers()]:
            raise ValueError("Chains: the module has no parameters")
        self._stacked_names: dict[str, str] = {}  # names in this module, by names in the module of a chain
        self._register_stacked(modules)

        self.train(model.training)
        _all_chains.add(self)

    @torch.no_grad()
    def _register_stacked(self, modules: list[nn.Module]) -> None:
        """Stack the parameters and buffers of the modules of all chains, and register them in this module."""
        for name, stacked in _stack(modules, "named_parameters"):
            requires_grad = self.model.get_parameter(name).requires_grad
            self.register_parameter(self._new_name(name), nn.Parameter(stacked, requires_grad))
        for name, stacked in _stack(modules, "named_buffers"):
            self.register_buffer(self._new_name(name), stacked)

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        _all_chains.add(self)

    def place(self, name: str) -> str:
        """Return the name of a stacked tensor in this module, given its name in the module of one chain."""
        return self._stacked_names[name]

    def _new_name(self, name: str) -> str:
        """Choose and remember the name of a stacked tensor: without dots, and unlike any attribute."""
        stacked_name = name.replace(".", "/")
        while hasattr(self, stacked_name):
            stacked_name = f"/{stacked_name}"
        self._stacked_names[name] = stacked_name
        return stacked_name

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
        arguments = ModuleArguments(inputs, keywords, each)
        if each:
            self._check_first_axis(arguments)
        tensors = {name: getattr(self, stacked_name) for name, stacked_name in self._stacked_names.items()}
        if self.manner == ONE_BY_ONE:
            return self._call_one_by_one(tensors, arguments)
        if self.training in self._modes_at_once:
            return self._call_at_once(tensors, arguments)
        return self._call_in_new_mode(tensors, arguments)

    def _call_in_new_mode(self, tensors: dict[str, Tensor], arguments: ModuleArguments) -> object:
        """Call the chains for the first time in this mode (training or evaluation), and settle the manner.

        If `torch.func.vmap` cannot call them at once, they are called one by one from now on, with a warning.

        Parameters
        ----------
        tensors : dict of str to Tensor
            Stacked parameters and buffers, (chains, ...), by their names in the module of one chain.
        arguments : ModuleArguments
            Arguments of the call.

        Returns
        -------
        object
            What the module returns, with the chain as the first axis of its tensors.
        """
        snapshot = self._take_snapshot()
        try:
            outputs = self._call_at_once(tensors, arguments)
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            self._restore(snapshot)
            reason = " ".join(str(error).split())[:LENGTH_OF_REASON]
        else:
            self.manner = AT_ONCE
            self._modes_at_once.add(self.training)
            return outputs

        outputs = self._call_one_by_one(tensors, arguments)
        self.manner = ONE_BY_ONE
        warn(
            f"the chains of {type(self.model).__name__} are called one after the other: torch.func.vmap "
            f"cannot call them at once, {reason}"
        )
        return outputs

    def _check_first_axis(self, arguments: ModuleArguments) -> None:
        """Refuse tensors without the chain as their first axis."""
        for leaf in tree_leaves((arguments.inputs, arguments.keywords)):
            if isinstance(leaf, Tensor) and leaf.shape[:1] != (self.count,):
                raise ValueError(
                    f"each: inputs must be (chains, ...) of {self.count} chains, got {shown(leaf)}"
                )

    def _take_snapshot(self) -> ModeSnapshot:
        """Copy what a call of the chains may change: buffers and the states of random generators."""
        devices = sorted({p.device.index or 0 for p in self.parameters() if p.is_cuda})
        cuda_states = {device: torch.cuda.get_rng_state(device) for device in devices}
        return ModeSnapshot([buffer.clone() for buffer in self.buffers()], torch.get_rng_state(), cuda_states)

    @torch.no_grad()
    def _restore(self, snapshot: ModeSnapshot) -> None:
        """Restore buffers and generators after a call that failed, so that it doesn't count twice."""
        for buffer, saved in zip(self.buffers(), snapshot.buffers, strict=True):
            buffer.copy_(saved)
        torch.set_rng_state(snapshot.cpu_state)
        for device, state in snapshot.cuda_states.items():
            torch.cuda.set_rng_state(state, device)

    def _call_at_once(self, tensors: dict[str, Tensor], arguments: ModuleArguments) -> object:
        """Call all chains in one pass, by `torch.func.vmap` over their first axis.

        `tensors` are the stacked parameters and buffers by their names in the module of one chain. In the
        result, which is that of the module, the chain is the first axis of each tensor.
        """
        inputs, keywords, are_stacked = arguments
        axes = (None, None)
        has_tensors = any(isinstance(leaf, Tensor) for leaf in tree_leaves((inputs, keywords)))
        if are_stacked and has_tensors:  # vmap refuses arguments of which none has an axis to map over
            axes = tree_map(lambda leaf: 0 if isinstance(leaf, Tensor) else None, (inputs, keywords))
        call_chain = partial(torch.func.functional_call, self.model)
        call_chains = torch.func.vmap(call_chain, in_dims=(0, *axes), randomness="different")
        return call_chains(tensors, inputs, keywords)

    def _call_one_by_one(self, tensors: dict[str, Tensor], arguments: ModuleArguments) -> object:
        """Call the chains one after the other, and stack their outputs along a first axis.

        `tensors` are the stacked parameters and buffers by their names in the module of one chain. Outputs
        that are not tensors are those of the first chain.
        """
        outputs = []
        for k in range(self.count):
            tensors_of_chain = {name: tensor[k] for name, tensor in tensors.items()}
            inputs, keywords = arguments.inputs, arguments.keywords
            if arguments.are_stacked:
                select_chain = partial(_select_chain, k=k)
                inputs, keywords = tree_map(select_chain, (inputs, keywords))
            outputs.append(torch.func.functional_call(self.model, tensors_of_chain, inputs, keywords))
        return tree_map(_stack_leaves, *outputs)

    def each(self, function: Callable[..., Tensor], outputs: object, *targets: object) -> Tensor:
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
        """Return which chains have finite parameters and buffers.

        Elements that are not finite in a buffer of the module itself, such as a mask of -inf, don't count.

        Parameters
        ----------
        state : mapping, optional
            A state of the chains, as `Samples` has them; without it the present one.

        Returns
        -------
        Tensor of bool, (chains,)
            True for a chain that is finite.
        """
        tensors = self.state_dict() if state is None else state
        ignored_elements = {name: ~buffer.isfinite() for name, buffer in self.model.named_buffers()}
        finite_chains = []
        for name, stacked_name in self._stacked_names.items():
            if stacked_name not in tensors:
                continue
            is_finite = tensors[stacked_name].detach().isfinite()
            if name in ignored_elements:
                is_finite = is_finite | ignored_elements[name].to(is_finite.device)
            finite_chains.append(is_finite.reshape(self.count, -1).all(dim=1))
        return torch.stack(finite_chains).all(dim=0)

    def states(self, state: Mapping[str, Any] | None = None) -> Iterator[dict[str, Tensor]]:
        """Yield the state of the module in each chain.

        Parameters
        ----------
        state : mapping, optional
            A state of the chains, as `Samples` has them; without it their state now.
        """
        stacked_state = self.state_dict() if state is None else state
        missing = [name for name in self._stacked_names.values() if name not in stacked_state]
        if missing:
            missing_names = ", ".join(missing[:MOST_IN_MESSAGE])
            raise ValueError(f"this is not a state of these chains: it has no {missing_names}")

        names_of_tensors = select_tensors(self.model.state_dict(keep_vars=True))
        stacked_names = self._stacked_names | self._tied_names()
        for k in range(self.count):
            yield {name: stacked_state[stacked_names[name]][k] for name in names_of_tensors}

    def load_into(self, model: nn.Module, chain: int) -> None:
        """Load the parameters and buffers of a chain into a module of the same architecture."""
        whole("chain", chain, low=0, high=self.count)
        state = list(self.states())[chain]
        different = sorted(select_tensors(model.state_dict()).keys() ^ state.keys())
        if different:
            raise ValueError(
                "load_into: a module of the architecture of the chains is needed; only one of the two has "
                f"{', '.join(different[:MOST_IN_MESSAGE])}"
            )
        model.load_state_dict(state, strict=False)  # all but extra state

    def _tied_names(self) -> dict[str, str]:
        """Return the names of stacked tensors by every name that the module has for them, shared ones too."""
        tensors = [
            *self.model.named_parameters(remove_duplicate=False),
            *self.model.named_buffers(remove_duplicate=False),
        ]
        names = self._stacked_names
        stacked_names_by_id = {id(tensor): names[name] for name, tensor in tensors if name in names}
        tied_tensors = [(name, id(tensor)) for name, tensor in tensors if id(tensor) in stacked_names_by_id]
        return {name: stacked_names_by_id[tensor_id] for name, tensor_id in tied_tensors}

    def of(self, parameter: Tensor) -> nn.Parameter:
        """Return the stacked parameter that belongs to a parameter of the module."""
        for name, parameter_of_model in self.model.named_parameters():
            if parameter_of_model is parameter:
                return self.get_parameter(self._stacked_names[name])
        raise ValueError(
            "a parameter is not one of the module of the chains: give those of chains.model, and chains "
            'beside them, as in {"params": chains.model[0].parameters(), "chains": chains, ...}'
        )


class ModuleArguments(NamedTuple):
    """Arguments of a call of the chains; if they are stacked, tensors among them are (chains, ...)."""

    inputs: tuple[object, ...]
    keywords: dict[str, object]
    are_stacked: bool


class ModeSnapshot(NamedTuple):
    """What a call of the chains may change: their buffers, and the states of torch's generators."""

    buffers: list[Tensor]
    cpu_state: Tensor
    cuda_states: dict[int, Tensor]


def _select_chain(leaf: object, k: int) -> object:
    """Return what chain k gets of an argument: its entry of a stacked tensor, anything else as it is."""
    return leaf[k] if isinstance(leaf, Tensor) else leaf


def _stack_leaves(*leaves: Any) -> object:
    """Stack the outputs of all chains if they are tensors; otherwise return the first chain's."""
    return torch.stack(leaves) if isinstance(leaves[0], Tensor) else leaves[0]


def _modules_at_start(model: nn.Module, count: int, start: object) -> list[nn.Module]:
    """Return the modules that the chains start as.

    Parameters
    ----------
    model : Module
        The module of which chains are made. It is the first chain itself unless `start` is a function.
    count : int
        Number of chains.
    start : "fresh", "same" or callable
        "fresh" initialises copies, "same" repeats the module, and a function returns the module of chain k.

    Returns
    -------
    list of Module
        A module for each chain, which may be the same one several times.
    """
    if any(isinstance(parameter, nn.UninitializedParameter) for parameter in model.parameters()):
        raise ValueError("Chains: the module is lazy: call it once before you make chains of it")
    if start == "same":
        return [model] * count
    if callable(start):
        return [_checked_start(model, start(k), k) for k in range(count)]
    if start != "fresh":
        raise ValueError(f"Chains: start must be 'fresh', 'same' or a function, got {shown(start)}")
    return [model, *_fresh_copies(model, count - 1)]


def _fresh_copies(model: nn.Module, count: int) -> list[nn.Module]:
    """Return copies of a module with newly initialised layers; parameters without gradients stay equal."""
    if count:
        _initialisers(model)  # raises an error if a layer has none, before anything is copied
    copies = [deepcopy(model) for _ in range(count)]
    for copied in copies:
        for initialise in _initialisers(copied):
            initialise()
        for parameter, original in zip(copied.parameters(), model.parameters(), strict=True):
            if not original.requires_grad:
                parameter.detach().copy_(original)
    return copies


def _initialisers(model: nn.Module) -> list[Callable[[], None]]:
    """Return the methods that initialise a module's layers; refuse one that has parameters and no method."""
    initialisers = []
    fixed = []
    for name, module in model.named_modules():
        if not any(True for _ in module.parameters(recurse=False)):
            continue
        initialiser = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if initialiser is None:
            fixed.append(name or type(module).__name__)
        else:
            initialisers.append(initialiser)
    if fixed:
        raise ValueError(
            f"Chains: {', '.join(fixed[:MOST_IN_MESSAGE])} cannot be initialised, having no "
            "reset_parameters: use start='same' for chains that start alike, or start=function, which "
            "returns the module of chain k"
        )
    return initialisers


def _checked_start(model: nn.Module, module: object, k: int) -> nn.Module:
    """Return the module that a start function made for chain k; refuse it unless its shapes are `model`'s."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"Chains: start({k}) must return a module, got {shown(module)}")
    if _shapes_of(module) != _shapes_of(model):
        raise ValueError(
            f"Chains: start({k}) must return a module with the parameters and buffers of the first"
        )
    return module


def _shapes_of(module: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in select_tensors(module.state_dict()).items()}


def _stack(modules: list[nn.Module], kind: str) -> Iterator[tuple[str, Tensor]]:
    """Yield names and stacked tensors of modules; `kind` is "named_parameters" or "named_buffers"."""
    tensors_of_modules = [dict(getattr(module, kind)()) for module in modules]
    for name in tensors_of_modules[0]:
        yield name, torch.stack([tensors[name].detach() for tensors in tensors_of_modules])


def with_chains(group: NewGroup) -> NewGroup:
    """Return a group in which stacked parameters are replaced by those of their module, and "chains" added.

    Taken for one long parameter, those of all chains would share one ξ and one temperature.

    Parameters
    ----------
    group : dict
        A group as a user gives it, whose "params" may be stacked parameters of one `Chains`.

    Returns
    -------
    dict
        A new group. One without stacked parameters, or with "chains" already, is returned as it is.
    """
    if not isinstance(group, dict) or group.get("params") is None or group.get("chains") is not None:
        return group
    if isinstance(group["params"], set):  # torch refuses it later, as a set has no order
        return group

    entries = listed(group["params"])  # once, as it may be an iterator
    matches = [_find_stack(tensor_of(entry)) for entry in entries]
    stacks = [stack for stack in matches if stack is not None]
    if not stacks:
        return group | {"params": entries}
    chains = stacks[0].chains
    if len(stacks) < len(matches) or any(stack.chains is not chains for stack in stacks):
        raise ValueError(
            "a group mixes the parameters of a Chains with other parameters: give each Chains its own groups"
        )
    return group | {"params": [stack.parameter for stack in stacks], "chains": chains}


class Stack(NamedTuple):
    """The chains that a stacked parameter belongs to, and the parameter of their module that is stacked."""

    chains: Chains
    parameter: nn.Parameter


def _find_stack(parameter: object) -> Stack | None:
    """Return what a stacked parameter belongs to, None for any other parameter."""
    for chains in list(_all_chains):
        for name, stacked_name in chains._stacked_names.items():
            if chains._parameters.get(stacked_name) is parameter:
                return Stack(chains, chains.model.get_parameter(name))
    return None


def with_stacked_parameters(group: NewGroup) -> NewGroup:
    """Return a group in which parameters of the module of "chains" are replaced by the stacked ones.

    The value of "chains" becomes the number of chains. A group without "chains" is returned as it is.
    """
    chains = group.get("chains") if isinstance(group, dict) else None
    if isinstance(chains, Chains):
        params = [chains.of(tensor_of(entry)) for entry in listed(group["params"])]
        return group | {"params": params, "chains": chains.count}
    if chains is not None and not isinstance(chains, int):
        raise TypeError(f"chains must be a Chains, got {shown(chains)}")
    return group
