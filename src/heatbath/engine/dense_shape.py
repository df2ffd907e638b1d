"""Where the numbers of a dense network lie in memory: layers, strides and buffers.

`lanes` is the number of lanes of a vector, and `group_size` the number of chains in one (see `layouts`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from heatbath.engine.compile import compiled
from heatbath.engine.layouts import LaneGroup, Layout, chains_in, reserve
from heatbath.engine.pointers import row_reader
from heatbath.engine.simd import Pointer, lanes_of, offset_pointer
from heatbath.models.dense import ACTIVATIONS

RELU, TANH = ACTIVATIONS["relu"].number, ACTIVATIONS["tanh"].number

ROWS, COLUMNS, WIDE, BLAS = range(4)
"""Schemes by which a layer is computed, see `dense`."""

NARROW = 16  # inputs or outputs of a layer up to which that side is narrow: a vector in float32
VAST = 2**14  # weights of a layer from which on BLAS is faster (measured)


class DenseLayerRow(NamedTuple):
    """A row of the table that compiled code reads: where a layer's numbers are.

    Strides and positions count numbers, not bytes.

    Attributes
    ----------
    width, out : int
        Inputs and outputs.
    scheme : int
        How the layer is computed: ROWS, COLUMNS, WIDE or BLAS.
    input_stride, output_stride : int
        Strides from one example to the next in the inputs and in the outputs.
    inputs, outputs : int
        Vectors that the inputs and the outputs of an example take.
    values : int
        Where the outputs begin in `Room.values`.
    columns, column_vector, column_input : int
        Where vectors of weights for several outputs begin, with the strides of vectors and inputs.
    rows, row_output : int
        Where vectors of weights for several inputs begin, with the stride of outputs.
    bias : int
        Where the biases begin.
    sums, sum_vector, sum_number : int
        Where the gradient by the weights begins in `Room.sums`, with the strides of vectors and numbers.
    bias_sums : int
        Where the gradient by the biases begins in `Room.sums`.
    weight_parameters, bias_parameters : int
        Where weights and biases begin among all parameters.
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


class StridedMatrix(NamedTuple):
    """A matrix in memory: a pointer to its first number, and the strides of rows and of columns."""

    first: Pointer
    row_stride: int
    column_stride: int


class Network(NamedTuple):
    """A network as numbers, for one layout.

    Attributes
    ----------
    layers : array or, in compiled code, pointer
        A `DenseLayerRow` for each layer.
    depth : int
        Number of layers.
    stride : int
        Stride from one example's inputs to the next one's.
    out : int
        Outputs of the last layer.
    activation, loss, degrees : int, int, float
        As in `Shape`.
    shallow : bool
        True if `dense_shallow` computes it.
    chunk : int
        Examples that are computed at a time.
    values, widest, matrix, copies : int
        Sizes of buffers, in numbers: all outputs of all layers for a chunk, the widest level for a chunk,
        matrices for BLAS, and the padded copies of the weights.
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

    Attributes
    ----------
    inputs : (example, input)
    targets : (column, example)
    values : (example, unit)
        Outputs of all layers, one layer after the other.
    logits : (output, example)
    deltas, previous_deltas
        Derivatives of the loss by a layer's outputs, and by those of the layer before it.
    target_weights, tail_weights : (target, lane)
        Factors of a regression's loss, and what divides its derivative (see `losses.differentiate_loss`).
    masks : (vector of units, example)
        Which units are active (`dense_shallow`).
    weights, sums
        Padded copies of weights and gradient for a chain alone; the parameters and the gradient of a group.
    checks : a vector
        NaN in lanes where a loss isn't finite.
    input_matrix, output_matrix
        Matrices for BLAS.
    chosen : (example, lane)
        The numbers of the examples in the mini-batch.
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

    Attributes
    ----------
    sizes : tuple of int
        Sizes of its levels, from the inputs to the outputs.
    activation, loss : int
        Numbers of its activation and its loss.
    degrees : float
        Degrees of freedom of the noise of a regression; infinite for normal noise.
    """

    sizes: tuple[int, ...]
    activation: int
    loss: int
    degrees: float = math.inf

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return _count_parameters(self.sizes)

    @property
    def schemes(self) -> list[int]:
        """Schemes by which the layers are computed."""
        return list(map(_scheme_of, pairwise(self.sizes)))

    @property
    def uses_blas(self) -> bool:
        """True if a layer is so wide that every chain is computed alone."""
        return BLAS in self.schemes

    def network(self, layout: Layout, lanes: int, chunk: int, skip: int = 0) -> Network:
        """Return the table of layers and the sizes of buffers that compiled code needs for a layout.

        Parameters
        ----------
        layout : Layout
        lanes : int
            Lanes of a vector.
        chunk : int
            Examples computed at a time, at most; a chain alone rounds it up to full vectors.
        skip : int
            Layers to leave out at the beginning; their outputs are then the network's inputs.
        """
        schemes = self.schemes[skip:]
        sizes = self.sizes[skip:]
        is_alone = not isinstance(layout, LaneGroup)
        if is_alone:
            chunk = _padded(chunk, lanes)
            strides = [_padded(size, lanes) for size in sizes]
        else:
            strides = [size * lanes for size in sizes]
        if schemes[0] == BLAS:
            strides[0] = sizes[0]  # BLAS reads the inputs as a matrix
        starts = [chunk * stride_sum for stride_sum in accumulate(strides[1:], initial=0)]
        rows, copies = self._layer_rows(strides, starts, lanes, is_alone)

        is_shallow = schemes == [COLUMNS, ROWS] and sizes[0] == 2 and sizes[-1] == 1
        matrix_size = chunk * max(sizes) if BLAS in schemes else 0
        return Network(
            layers=np.array(rows, np.int64),
            depth=len(rows),
            stride=strides[0],
            out=sizes[-1],
            activation=self.activation,
            loss=self.loss,
            degrees=self.degrees,
            shallow=is_shallow and self.activation == RELU,
            chunk=chunk,
            values=starts[-1],
            widest=chunk * max(strides),
            matrix=matrix_size,
            copies=copies,
        )

    def _layer_rows(
        self, strides: Sequence[int], starts: Sequence[int], lanes: int, is_alone: bool
    ) -> tuple[list[DenseLayerRow], int]:
        """Return the rows of the last layers, and the size of the padded copies of their weights.

        Parameters
        ----------
        strides : sequence of int
            Strides of examples, for the inputs of these layers and for the outputs of each.
        starts : sequence of int
            Where the outputs of each layer begin in `Room.values`.
        lanes : int
            Lanes of a vector.
        is_alone : bool
            True for a chain alone, which has padded copies.
        """
        numbers_per_vector = lanes if is_alone else 1
        sizes = self.sizes[-len(strides) :]
        first = self.parameters - _count_parameters(sizes)
        rows: list[DenseLayerRow] = []
        copies = 0
        for l, (width, out) in enumerate(pairwise(sizes)):
            scheme = _scheme_of((width, out))
            if is_alone:
                places, copies = _places_alone(scheme, width, out, copies, lanes)
            else:
                places = _places_in_group(scheme, width, out, first, lanes)
            row = DenseLayerRow(
                width=width,
                out=out,
                scheme=scheme,
                input_stride=strides[l],
                output_stride=strides[l + 1],
                inputs=math.ceil(width / numbers_per_vector),
                outputs=math.ceil(out / numbers_per_vector),
                values=starts[l],
                **places,
                weight_parameters=first,
                bias_parameters=first + width * out,
            )
            rows.append(row)
            first += out * (width + 1)
        return rows, copies


def _count_parameters(sizes: Sequence[int]) -> int:
    """Return how many weights and biases the layers between levels of these sizes have."""
    return sum(out * (width + 1) for width, out in pairwise(sizes))


def _padded(size: int, lanes: int) -> int:
    """Return the next multiple of the number of lanes."""
    return -(-size // lanes) * lanes


def _places_alone(scheme: int, width: int, out: int, start: int, lanes: int) -> tuple[dict[str, int], int]:
    """Return where the padded copies of a layer of a chain alone lie, and where they end.

    From `start` on come the weights as (input, padded output) and as (output, padded input), as far as the
    scheme needs them, and then the biases.
    """
    padded_width = _padded(width, lanes)
    padded_out = _padded(out, lanes)
    columns_size = width * padded_out if scheme in (COLUMNS, WIDE) else 0
    rows_size = out * padded_width if scheme in (ROWS, WIDE) else 0
    bias_size = 0 if scheme == BLAS else padded_out
    rows = start + columns_size
    bias = rows + rows_size
    places = dict(
        columns=start,
        column_vector=lanes,
        column_input=padded_out,
        rows=rows,
        row_output=padded_width,
        bias=bias,
        sums=rows if scheme == WIDE else start,
        sum_vector=lanes,
        sum_number=padded_out if scheme == COLUMNS else padded_width,
        bias_sums=bias,
    )
    return places, bias + bias_size


def _places_in_group(scheme: int, width: int, out: int, first: int, lanes: int) -> dict[str, int]:
    """Return where weights and gradient of a layer lie in a group: at its parameters, from `first` on.

    Parameters are (parameter, lane), so one number of each chain is a vector. Weights are (output, input).
    """
    weights = first * lanes
    biases = (first + width * out) * lanes
    row = width * lanes  # from one output's weights to the next one's
    return dict(
        columns=weights,
        column_vector=row,
        column_input=lanes,
        rows=weights,
        row_output=row,
        bias=biases,
        sums=weights,
        sum_vector=row if scheme == COLUMNS else lanes,
        sum_number=lanes if scheme == COLUMNS else row,
        bias_sums=biases,
    )


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
    """Copy the weights and biases of a chain alone from `theta` to padded places in `copies`.

    Weights are copied as rows, (output, padded input), as columns, (input, padded output), or as both,
    whatever the layer's scheme reads. `copies` must start as zeros; the padding stays zero. `network` is a
    `Network`.
    """
    for l in range(network.depth):
        layer = layer_of(network.layers, l)
        out, width = layer.out, layer.width
        weights = offset_pointer(theta, layer.weight_parameters)
        if layer.scheme in (ROWS, WIDE):
            copied_rows = StridedMatrix(offset_pointer(copies, layer.rows), layer.row_output, 1)
            _copy_matrix(StridedMatrix(weights, width, 1), copied_rows, out, width)
        if layer.scheme in (COLUMNS, WIDE):
            copied_columns = StridedMatrix(offset_pointer(copies, layer.columns), layer.column_input, 1)
            _copy_matrix(StridedMatrix(weights, 1, width), copied_columns, width, out)
        if layer.scheme != BLAS:
            for k in range(out):
                copies[layer.bias + k] = theta[layer.bias_parameters + k]


@compiled
def _copy_matrix(source, target, rows, columns):
    """Copy a matrix of so many rows and columns from one `StridedMatrix` to another."""
    for i in range(rows):
        for j in range(columns):
            number = source.first[i * source.row_stride + j * source.column_stride]
            target.first[i * target.row_stride + j * target.column_stride] = number


@compiled(apart=True)
def place_gradient(G, network, sums):
    """Copy the padded sums of the gradient of a chain alone to G, in the order of the parameters.

    The sums are (output, padded input), or (input, padded output) with the scheme COLUMNS. BLAS layers have
    written to G themselves. `network` is a `Network`.
    """
    for l in range(network.depth):
        layer = layer_of(network.layers, l)
        out, width = layer.out, layer.width
        weights = offset_pointer(G, layer.weight_parameters)
        weight_sums = StridedMatrix(offset_pointer(sums, layer.sums), layer.sum_number, 1)
        if layer.scheme in (ROWS, WIDE):
            _copy_matrix(weight_sums, StridedMatrix(weights, width, 1), out, width)
        elif layer.scheme == COLUMNS:
            _copy_matrix(weight_sums, StridedMatrix(weights, 1, width), width, out)
        if layer.scheme != BLAS:
            for k in range(out):
                G[layer.bias_parameters + k] = sums[layer.bias_sums + k]


@compiled(apart=True)
def reserve_room(layout, types, network, batch, capacity, columns, theta, G, address):
    """Reserve memory for the buffers of a network; return its `Room`, and the next free address.

    Most buffers have a vector to spare, since the last vector of a row may reach beyond its end.

    Parameters
    ----------
    layout : Layout
    types : PointerTypes
    network : Network
    batch : int
        Examples of a mini-batch.
    capacity : int
        Examples that each column of the targets has room for.
    columns : int
        Targets and weights of an example.
    theta, G : pointers
        Parameters and gradient, which a group uses where they are.
    address : int
        Where the memory begins.
    """
    like = types.parameter
    lanes = lanes_of(like)
    group_size = chains_in(layout, like)
    is_alone = group_size == 1
    examples = max(batch, network.chunk)
    target_count = columns * max(capacity, network.chunk) * group_size + lanes
    logit_count = max(network.out * network.chunk, examples) * group_size + lanes
    delta_count = max(network.widest, logit_count) + lanes
    copy_count = network.copies + lanes if is_alone else 0
    mask_count = layer_of(network.layers, 0).outputs * batch if network.shallow else 0

    inputs, address = reserve(address, examples * network.stride + lanes, like)
    targets, address = reserve(address, target_count, like)
    values, address = reserve(address, network.values + lanes, like)
    logits, address = reserve(address, logit_count, like)
    deltas, address = reserve(address, delta_count, like)
    previous_deltas, address = reserve(address, delta_count, like)
    target_weights, address = reserve(address, network.out * lanes, like)
    tail_weights, address = reserve(address, network.out * lanes, like)
    masks, address = reserve(address, mask_count, types.uint16)
    weights, address = reserve(address, copy_count, like)
    sums, address = reserve(address, copy_count, like)
    checks, address = reserve(address, lanes, like)
    input_matrix, address = reserve(address, network.matrix, like)
    output_matrix, address = reserve(address, network.matrix, like)
    chosen, address = reserve(address, examples * group_size, types.uint32)

    if not is_alone:
        weights = theta
        sums = G
    room = Room(
        inputs, targets, values, logits, deltas, previous_deltas, target_weights, tail_weights, masks,
        weights, sums, checks, input_matrix, output_matrix, chosen,
    )  # fmt: skip
    return room, address


@compiled(apart=True)
def clear_room(network, room):
    """Set values and deltas to zero after a chain has diverged: their padding must be finite."""
    for index in range(network.values):
        room.values[index] = 0
    for index in range(network.widest):
        room.deltas[index] = 0
        room.previous_deltas[index] = 0
