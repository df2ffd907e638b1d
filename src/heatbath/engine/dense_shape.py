"""Where the numbers of a dense network lie: layers, strides, buffers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from heatbath.engine.compile import compiled
from heatbath.engine.layouts import LaneGroup, Layout, chains_in, place
from heatbath.engine.pointers import row_reader
from heatbath.engine.simd import (
    lanes_of,
    pointer,
)
from heatbath.models.dense import ACTIVATIONS

RELU, TANH = ACTIVATIONS["relu"].number, ACTIVATIONS["tanh"].number
ROWS, COLUMNS, WIDE, BLAS = range(4)
NARROW = 16  # up to here a side of a layer is narrow
VAST = 2**14  # weights of a layer from which on BLAS is faster


class DenseLayerRow(NamedTuple):
    """A row of the table that compiled code reads: where a layer's numbers are.

    Strides are in numbers. `before` and `after` are those of the data at its inputs and outputs, and `level`
    is where its outputs begin. Weights times vectors of outputs begin at `columns` (`column_vector` from one
    vector to the next, `column_input` from one input to the next), those times vectors of inputs at `rows`
    (`row_output` from one output to the next), biases at `bias`. The gradient has its sums at `sums`, with
    the strides `sum_vector` and `sum_number`, and at `bias_sums`. `weight` and `shift` are where the
    parameters are.
    """

    width: int
    out: int
    way: int
    before: int
    after: int
    inputs: int
    outputs: int
    level: int
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
    weight: int
    shift: int


layer_of = row_reader(DenseLayerRow)


class Network(NamedTuple):
    """A network in numbers, for one layout: its layers, what else decides the way, and the room it needs.

    In compiled code `layers` is a pointer to the rows of the table.
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
    flat: int
    copies: int


@compiled
def by_pointer(network):
    """The same with a pointer to the rows of the table; whoever takes it keeps the table."""
    return Network(
        pointer(network.layers), network.depth, network.stride, network.out, network.activation, network.loss,
        network.degrees, network.shallow, network.chunk, network.values, network.widest, network.flat,
        network.copies,
    )  # fmt: skip


class Room(NamedTuple):
    """Pointers to buffers. Those of data have the layout's form; `weights` and `sums` are the copies of one
    alone, and the parameters and the gradient of a group; `shares` are those of the targets in the loss of a
    regression, and `tails` what its derivative is divided by (see `derivatives`), both (target, lane)."""

    inputs: Any
    targets: Any
    values: Any
    logits: Any
    deltas: Any
    previous: Any
    shares: Any
    tails: Any
    masks: Any
    weights: Any
    sums: Any
    checks: Any
    flat: Any
    other: Any
    chosen: Any


@dataclass(frozen=True)
class Shape:
    """What the compiled code knows of a network: its layers' sizes, activation and loss, as numbers; and the
    degrees of freedom of the noise of a regression."""

    sizes: tuple[int, ...]
    activation: int
    loss: int
    degrees: float = math.inf

    @property
    def parameters(self) -> int:
        """How many there are."""
        return sum(out * (width + 1) for width, out in pairwise(self.sizes))

    @property
    def ways(self) -> list[int]:
        """The way each layer is computed."""
        return list(map(_way, pairwise(self.sizes)))

    @property
    def uses_blas(self) -> bool:
        """Whether a layer is so wide that every chain is computed alone."""
        return BLAS in self.ways

    def network(self, layout: Layout, count: int, data: int, skip: int = 0) -> Network:
        """For a layout, vectors of `count` lanes, and up to this many data in a chunk; without the layers
        that are skipped, whose outputs are then its inputs."""
        alone = not isinstance(layout, LaneGroup)
        ways, sizes = self.ways[skip:], self.sizes[skip:]

        def padded(size: int) -> int:
            return -(-size // count) * count if alone else size * count

        strides = list(map(padded, sizes))
        if ways[0] == BLAS:
            strides[0] = sizes[0]  # as a matrix
        data = -(-data // count) * count if alone else data
        layers, level, copy = [], 0, 0
        begin = self.parameters - sum(out * (width + 1) for width, out in pairwise(sizes))
        for l, (width, out) in enumerate(pairwise(sizes)):
            way, weight, shift = ways[l], begin, begin + width * out
            begin += out * (width + 1)
            if alone:
                columns, rows = copy, copy + (0 if way in (ROWS, BLAS) else width * padded(out))
                bias = rows + (0 if way in (COLUMNS, BLAS) else out * padded(width))
                at = rows if way == WIDE else copy
                places = (columns, count, padded(out), rows, padded(width), bias)
                sums = (at, count, padded(out) if way == COLUMNS else padded(width), bias)
                copy = bias + (0 if way == BLAS else padded(out))
            else:
                whole, shifted = weight * count, shift * count
                places = (whole, width * count, count, whole, width * count, shifted)
                sums = (
                    (whole, width * count, count, shifted)
                    if way == COLUMNS
                    else (whole, count, width * count, shifted)
                )
            inputs, outputs = (-(-n // count) if alone else n for n in (width, out))
            shape = width, out, way, strides[l], strides[l + 1], inputs, outputs, level
            layers.append(DenseLayerRow(*shape, *places, *sums, weight, shift))
            level += data * strides[l + 1]
        shallow = ways == [COLUMNS, ROWS] and sizes[0] == 2 and sizes[-1] == 1
        return Network(
            np.array(layers, np.int64),
            len(layers),
            strides[0],
            sizes[-1],
            self.activation,
            self.loss,
            self.degrees,
            shallow and self.activation == RELU,
            data,
            level,
            data * max(strides),
            data * max(sizes) if BLAS in ways else 0,
            copy,
        )


def _way(layer: tuple[int, int]) -> int:
    width, out = layer
    if width * out >= VAST:
        return BLAS
    if out <= NARROW and out < width:
        return ROWS
    return COLUMNS if width <= NARROW else WIDE


@compiled(apart=True)
def copy_weights(theta, network, copies):
    """The padded copies of a chain's weights; they start as zeros, and the padding stays so."""
    for l in range(network.depth):
        layer = layer_of(network.layers, l)
        width, out, way = layer.width, layer.out, layer.way
        if way in (ROWS, WIDE):
            for k in range(out):
                for j in range(width):
                    copies[layer.rows + k * layer.row_output + j] = theta[layer.weight + k * width + j]
        if way in (COLUMNS, WIDE):
            for j in range(width):
                for k in range(out):
                    copies[layer.columns + j * layer.column_input + k] = theta[layer.weight + k * width + j]
        if way != BLAS:
            for k in range(out):
                copies[layer.bias + k] = theta[layer.shift + k]


@compiled(apart=True)
def place_gradient(G, network, sums):
    """Put the sums of a chain's gradient where its parameters are."""
    for l in range(network.depth):
        layer = layer_of(network.layers, l)
        width, out, way = layer.width, layer.out, layer.way
        if way in (ROWS, WIDE):
            for k in range(out):
                for j in range(width):
                    G[layer.weight + k * width + j] = sums[layer.sums + k * layer.sum_number + j]
        elif way == COLUMNS:
            for j in range(width):
                for k in range(out):
                    G[layer.weight + k * width + j] = sums[layer.sums + j * layer.sum_number + k]
        if way != BLAS:
            for k in range(out):
                G[layer.shift + k] = sums[layer.bias_sums + k]


@compiled(apart=True)
def make_room(layout, network, like, masks, chosen, batch, capacity, columns, theta, G, address):
    """Buffers for batches of this size and for chunks, from an address on, and the address after them.

    `capacity` is that of the targets of a batch; `theta` and `G` are the parameters and the gradient of a
    group; `masks` and `chosen` are pointers of the types of those buffers.
    """
    lane, L = chains_in(layout, like), lanes_of(like)
    rows = max(batch, network.chunk)
    numbers = max(network.out * network.chunk, rows) * lane + L
    widest = max(network.widest, numbers) + L
    alone = lane == 1
    inputs, address = place(address, rows * network.stride + L, like)
    targets, address = place(address, columns * max(capacity, network.chunk) * lane + L, like)
    values, address = place(address, network.values + L, like)
    logits, address = place(address, numbers, like)
    deltas, address = place(address, widest, like)
    previous, address = place(address, widest, like)
    shares, address = place(address, network.out * L, like)
    tails, address = place(address, network.out * L, like)
    units = layer_of(network.layers, 0).outputs * batch if network.shallow else 0
    active, address = place(address, units, masks)
    weights, address = place(address, network.copies + L if alone else 0, like)
    sums, address = place(address, network.copies + L if alone else 0, like)
    checks, address = place(address, L, like)
    flat, address = place(address, network.flat, like)
    other, address = place(address, network.flat, like)
    indices, address = place(address, rows * lane, chosen)
    room = Room(
        inputs, targets, values, logits, deltas, previous, shares, tails, active,
        weights if alone else theta, sums if alone else G, checks, flat, other, indices,
    )  # fmt: skip
    return room, address


@compiled(apart=True)
def clear(network, room):
    """Forget what a chain that diverged has left: padding is multiplied by 0, and must be finite."""
    for e in range(network.values):
        room.values[e] = 0
    for e in range(network.widest):
        room.deltas[e] = 0
        room.previous[e] = 0
