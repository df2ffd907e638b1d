"""Where the numbers of a dense network lie in memory: layers, strides and buffers.

`lanes` is the number of lanes of a vector, and `group_size` the number of chains in one (see `layouts`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from heatbath.engine.compile import compiled
from heatbath.engine.layouts import LaneGroup, Layout, chains_in, reserve
from heatbath.engine.pointers import row_reader
from heatbath.engine.simd import Pointer, lanes_of
from heatbath.models.dense import ACTIVATIONS

RELU, TANH = ACTIVATIONS["relu"].number, ACTIVATIONS["tanh"].number

ROWS, COLUMNS, WIDE, BLAS = range(4)
"""Schemes by which a layer is computed, see `dense`."""

NARROW = 16  # inputs or outputs of a layer up to which that side is narrow: a vector in float32
VAST = 2**14  # weights of a layer from which on BLAS is faster (measured)


class DenseLayerRow(NamedTuple):
    """A row of the table that compiled code reads: where a layer's numbers are.

    A layer has `width` inputs and `out` outputs, which take `inputs` and `outputs` vectors, and is computed
    by a `scheme`. Strides are in numbers. `input_stride` and `output_stride` lead from one example to the
    next, and the layer's outputs begin at `values`. Weights times vectors of outputs begin at `columns`
    (`column_vector` leads from one vector to the next, `column_input` from one input to the next), those
    times vectors of inputs at `rows` (`row_output` leads from one output to the next), biases at `bias`. The
    gradient has its sums at `sums`, with the strides `sum_vector` and `sum_number`, and at `bias_sums`. The
    layer's parameters have their weights at `weight_parameters` and their biases at `bias_parameters`.
    """

    width: int
    out: int
    scheme: int
    input_stride: int
    output_stride: int
    inputs: int
    outputs: int
    values: int
    columns: int
    column_vector: int
    column_input: int
    rows: int
    row_output: int
    bias: int
    sums: int
    sum_vector: int
    sum_number: int
    bias_sums: int
    weight_parameters: int
    bias_parameters: int


layer_of = row_reader(DenseLayerRow)


class Network(NamedTuple):
    """A network in numbers, for one layout.

    `layers` are rows of `DenseLayerRow`: an array, or a pointer in compiled code. `stride`
    leads from one example's inputs to the next one's, and `chunk` examples are computed at a time. `shallow`
    says that `dense_shallow` computes it. The rest are sizes of buffers, in numbers: all outputs of all
    layers for a chunk (`values`), the widest level (`widest`), matrices for BLAS (`matrix`), and the padded
    copies of the weights (`copies`).
    """

    layers: Any
    depth: int
    stride: int
    out: int
    activation: int
    loss: int
    degrees: float
    shallow: bool
    chunk: int
    values: int
    widest: int
    matrix: int
    copies: int


class Room(NamedTuple):
    """Pointers to the buffers of a network.

    `inputs` (example, input), `values` of all layers (example, unit), `targets` (column, example), `logits`,
    and `deltas` and `previous_deltas`, the derivatives by a layer's outputs and by those of the layer before
    it, have the layout's form. `weights` and `sums` are the padded copies of weights and gradient for a chain
    alone, and the parameters and the gradient themselves for a group. `target_weights` are the factors of the
    targets in the loss of a regression, and `tail_weights` what its derivative is divided by (see
    `losses.differentiate_loss`), both (target, lane). `masks` says which units are active (`dense_shallow`),
    `checks` has a lane that is NaN where a loss isn't finite, `input_matrix` and `output_matrix` are for
    BLAS, `chosen` (example, lane) are the numbers of the examples.
    """

    inputs: Pointer
    targets: Pointer
    values: Pointer
    logits: Pointer
    deltas: Pointer
    previous_deltas: Pointer
    target_weights: Pointer
    tail_weights: Pointer
    masks: Pointer
    weights: Pointer
    sums: Pointer
    checks: Pointer
    input_matrix: Pointer
    output_matrix: Pointer
    chosen: Pointer


@dataclass(frozen=True)
class Shape:
    """What compiled code knows of a network.

    The sizes of its levels from the inputs to the outputs, its activation and loss as numbers, and the
    degrees of freedom of the noise of a regression.
    """

    sizes: tuple[int, ...]
    activation: int
    loss: int
    degrees: float = math.inf

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(out * (width + 1) for width, out in pairwise(self.sizes))

    @property
    def schemes(self) -> list[int]:
        """Schemes by which the layers are computed."""
        return list(map(_scheme_of, pairwise(self.sizes)))

    @property
    def uses_blas(self) -> bool:
        """True if a layer is so wide that every chain is computed alone."""
        return BLAS in self.schemes

    def network(self, layout: Layout, lanes: int, chunk: int, skip: int = 0) -> Network:
        """Return the network for a layout.

        Parameters
        ----------
        layout : Layout
        lanes : int
            Lanes of a vector.
        chunk : int
            Examples computed at a time, at most.
        skip : int
            Layers to leave out at the beginning; their outputs are then the network's inputs.
        """
        alone = not isinstance(layout, LaneGroup)
        schemes, sizes = self.schemes[skip:], self.sizes[skip:]
        strides = [_padded(size, lanes) if alone else size * lanes for size in sizes]
        if schemes[0] == BLAS:
            strides[0] = sizes[0]  # as a matrix
        chunk = _padded(chunk, lanes) if alone else chunk
        layers: list[DenseLayerRow] = []
        values = copies = 0
        first = self.parameters - sum(out * (width + 1) for width, out in pairwise(sizes))
        for l, (width, out) in enumerate(pairwise(sizes)):
            if alone:
                places, copies = _places_alone(schemes[l], width, out, copies, lanes)
            else:
                places = _places_in_group(schemes[l], width, out, first, lanes)
            inputs, outputs = (-(-size // lanes) if alone else size for size in (width, out))
            shape = width, out, schemes[l], strides[l], strides[l + 1], inputs, outputs, values
            layers.append(DenseLayerRow(*shape, *places, first, first + width * out))
            first += out * (width + 1)
            values += chunk * strides[l + 1]
        shallow = schemes == [COLUMNS, ROWS] and sizes[0] == 2 and sizes[-1] == 1
        return Network(
            layers=np.array(layers, np.int64),
            depth=len(layers),
            stride=strides[0],
            out=sizes[-1],
            activation=self.activation,
            loss=self.loss,
            degrees=self.degrees,
            shallow=shallow and self.activation == RELU,
            chunk=chunk,
            values=values,
            widest=chunk * max(strides),
            matrix=chunk * max(sizes) if BLAS in schemes else 0,
            copies=copies,
        )


class _Places(NamedTuple):
    """The fields `columns` to `bias_sums` of a `DenseLayerRow`."""

    columns: int
    column_vector: int
    column_input: int
    rows: int
    row_output: int
    bias: int
    sums: int
    sum_vector: int
    sum_number: int
    bias_sums: int


def _padded(size: int, lanes: int) -> int:
    """Return the next multiple of the number of lanes."""
    return -(-size // lanes) * lanes


def _places_alone(scheme: int, width: int, out: int, start: int, lanes: int) -> tuple[_Places, int]:
    """Return where the padded copies of a layer of a chain alone lie, from `start` on, and where they end."""
    columns = start
    rows = start + (0 if scheme in (ROWS, BLAS) else width * _padded(out, lanes))
    bias = rows + (0 if scheme in (COLUMNS, BLAS) else out * _padded(width, lanes))
    sums = rows if scheme == WIDE else start
    sum_number = _padded(out if scheme == COLUMNS else width, lanes)
    places = _Places(
        columns, lanes, _padded(out, lanes), rows, _padded(width, lanes), bias, sums, lanes, sum_number, bias
    )
    return places, bias + (0 if scheme == BLAS else _padded(out, lanes))


def _places_in_group(scheme: int, width: int, out: int, first: int, lanes: int) -> _Places:
    """Return where weights and gradient of a layer lie in a group: at its parameters, from `first` on."""
    weights, biases, row = first * lanes, (first + width * out) * lanes, width * lanes
    sum_vector, sum_number = (row, lanes) if scheme == COLUMNS else (lanes, row)
    return _Places(weights, row, lanes, weights, row, biases, weights, sum_vector, sum_number, biases)


def _scheme_of(layer: tuple[int, int]) -> int:
    """Return the scheme for a layer (inputs, outputs)."""
    width, out = layer
    if width * out >= VAST:
        return BLAS
    if out <= NARROW and out < width:
        return ROWS
    return COLUMNS if width <= NARROW else WIDE


@compiled(apart=True)
def copy_weights(theta, network, copies):
    """Copy a chain's weights from `theta` to padded places in `copies`.

    The copies must start as zeros; the padding stays zero.
    """
    for l in range(network.depth):
        layer = layer_of(network.layers, l)
        width, out, scheme = layer.width, layer.out, layer.scheme
        weights = layer.weight_parameters
        if scheme in (ROWS, WIDE):
            for k in range(out):
                for j in range(width):
                    copies[layer.rows + k * layer.row_output + j] = theta[weights + k * width + j]
        if scheme in (COLUMNS, WIDE):
            for j in range(width):
                for k in range(out):
                    copies[layer.columns + j * layer.column_input + k] = theta[weights + k * width + j]
        if scheme != BLAS:
            for k in range(out):
                copies[layer.bias + k] = theta[layer.bias_parameters + k]


@compiled(apart=True)
def place_gradient(G, network, sums):
    """Copy the padded sums of a chain's gradient to G, in the order of the parameters."""
    for l in range(network.depth):
        layer = layer_of(network.layers, l)
        width, out, scheme = layer.width, layer.out, layer.scheme
        weights = layer.weight_parameters
        if scheme in (ROWS, WIDE):
            for k in range(out):
                for j in range(width):
                    G[weights + k * width + j] = sums[layer.sums + k * layer.sum_number + j]
        elif scheme == COLUMNS:
            for j in range(width):
                for k in range(out):
                    G[weights + k * width + j] = sums[layer.sums + j * layer.sum_number + k]
        if scheme != BLAS:
            for k in range(out):
                G[layer.bias_parameters + k] = sums[layer.bias_sums + k]


@compiled(apart=True)
def reserve_room(layout, types, network, batch, capacity, columns, theta, G, address):
    """Reserve memory at an address for a network's `Room`; returns it and the next free address.

    Parameters
    ----------
    types : PointerTypes
    batch : examples of a mini-batch
    capacity : examples that the targets have room for
    columns : targets and weights of an example
    theta, G : pointers to the parameters and the gradient of a group
    """
    like = types.parameter
    group_size, lanes = chains_in(layout, like), lanes_of(like)
    alone = group_size == 1
    examples = max(batch, network.chunk)
    logit_count = max(network.out * network.chunk, examples) * group_size + lanes
    widest = max(network.widest, logit_count) + lanes
    copies = network.copies + lanes if alone else 0
    active = layer_of(network.layers, 0).outputs * batch if network.shallow else 0
    inputs, address = reserve(address, examples * network.stride + lanes, like)
    targets, address = reserve(
        address, columns * max(capacity, network.chunk) * group_size + lanes, like
    )  # fmt: skip
    values, address = reserve(address, network.values + lanes, like)
    logits, address = reserve(address, logit_count, like)
    deltas, address = reserve(address, widest, like)
    previous_deltas, address = reserve(address, widest, like)
    target_weights, address = reserve(address, network.out * lanes, like)
    tail_weights, address = reserve(address, network.out * lanes, like)
    masks, address = reserve(address, active, types.uint16)
    weights, address = reserve(address, copies, like)
    sums, address = reserve(address, copies, like)
    checks, address = reserve(address, lanes, like)
    input_matrix, address = reserve(address, network.matrix, like)
    output_matrix, address = reserve(address, network.matrix, like)
    chosen, address = reserve(address, examples * group_size, types.uint32)
    room = Room(
        inputs, targets, values, logits, deltas, previous_deltas, target_weights, tail_weights, masks,
        weights if alone else theta, sums if alone else G, checks, input_matrix, output_matrix, chosen,
    )  # fmt: skip
    return room, address


@compiled(apart=True)
def clear_room(network, room):
    """Set the buffers to zero after a chain has diverged: padding is multiplied by 0, and must be finite."""
    for e in range(network.values):
        room.values[e] = 0
    for e in range(network.widest):
        room.deltas[e] = 0
        room.previous_deltas[e] = 0
