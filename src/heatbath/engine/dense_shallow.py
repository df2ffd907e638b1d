"""Networks with two inputs, one hidden layer with ReLU and one output, in one pass.

The backward pass needs sums over the examples only, since the outputs of an active unit are w · x + b.

Letters: x0 and x1 the two inputs, w0 and w1 their weights, y a unit's output, δ the negative derivative of
the loss by the logit, v a vector of hidden units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heatbath.engine.compile import compiled
from heatbath.engine.dense_products import (
    SIDE,
    Level,
    load_per_chain,
    store_per_chain,
    sum_numbers_over_examples,
    sum_over_vectors,
    tile_size,
)
from heatbath.engine.dense_shape import layer_of
from heatbath.engine.layouts import LaneGroup, chains_in, load_chains
from heatbath.engine.simd import LoopVariables, fma, loop, offset_pointer, select, traced

SUMS = 3  # over the examples, for each vector of units: Σ δ, Σ δ x0 and Σ δ x1


def _input_weights(W: Any, hidden: Any, v: Any) -> tuple[Any, Any]:
    """Return the weights of the two inputs of the hidden units in vector v."""
    start = hidden.columns + v * hidden.column_vector
    return W.load(start), W.load(start + hidden.column_input)


def _load_inputs(layout: Any, x: Any, offset: Any, group_size: int) -> tuple[Any, Any]:
    """Return the two inputs of the example whose inputs begin at x[offset], for each chain."""
    return load_chains(layout, x, offset), load_chains(layout, x, offset + group_size)


def _over_tiles(make: Any) -> Any:
    """Return a compiled function that goes over examples, or vectors, in tiles of SIDE and then of 1.

    For a tile it calls what `make(size)` returns.
    """
    large_tile, small_tile = make(SIDE), make(1)

    @compiled
    def apply(layout, count, batch, room, hidden, last):
        """Go over `count` examples, or vectors; the other arguments are those of a tile."""
        first = 0
        while first < count:
            size = tile_size(count - first)
            if size == SIDE:
                large_tile(layout, first, batch, room, hidden, last)
            else:
                small_tile(layout, first, batch, room, hidden, last)
            first += size

    return apply


def _make_forward(examples: int) -> Any:
    """Return a compiled function that computes the logits of a number of examples.

    The weights of a vector of units are loaded once for all of them.
    """

    @traced
    def forward_tile(layout, first, batch, room, hidden, last):
        """Write the logits of some examples to `room.logits`, and which units are active to `room.masks`.

        Parameters
        ----------
        layout : Layout
        first, batch : int
            The first of the examples, and how many the mini-batch has.
        room : Room
            `masks` (vector of units, example) has a bit for each unit.
        hidden, last : DenseLayerRow
            The two layers.
        """
        W, masks = room.weights, room.masks
        group_size = W.lanes if isinstance(layout, LaneGroup) else 1
        starts = [hidden.input_stride * (first + i) for i in range(examples)]
        inputs = [_load_inputs(layout, room.inputs, start, group_size) for start in starts]

        def add_units(logits, v):
            """Return the logits with the units of vector v added; write which of them are active."""
            w0, w1 = _input_weights(W, hidden, v)
            bias = W.load(hidden.bias + v * W.lanes)
            output_weight = W.load(last.rows + v * W.lanes)
            results = []
            for i, ((x0, x1), logit) in enumerate(zip(inputs, logits, strict=True)):
                y = fma(w1, x1, fma(w0, x0, bias))
                active = y.greater_or_nan(0.0)
                masks.store_number(v * batch + first + i, active.mask_to_integer(masks.dtype))
                results.append(fma(output_weight, select(active, y, 0.0), logit))
            return results

        logits = sum_over_vectors(layout, W.lanes, hidden.outputs, examples, W, add_units)
        for i, logit in enumerate(logits):
            offset = first * group_size + group_size * i
            store_per_chain(layout, room.logits, offset, logit + load_per_chain(layout, W, last.bias))

    return forward_tile


_compute_logits = _over_tiles(_make_forward)


@compiled(apart=True)
def shallow_forward(layout, network, batch, room):
    """Write the logits of a mini-batch to `room.logits`, and which units are active to `room.masks`."""
    hidden, last = layer_of(network.layers, 0), layer_of(network.layers, 1)
    _compute_logits(layout, batch, batch, room, hidden, last)


def _store_unit_gradient(room: Any, hidden: Any, last: Any, v: Any, sums: Sequence[Any]) -> None:
    """Write the gradient by the weights of the hidden units in vector v to `room.sums`.

    Parameters
    ----------
    room : Room
    hidden, last : DenseLayerRow
        The two layers.
    v : Traced
        The vector of units.
    sums : sequence of Traced
        Σ δ, Σ δ x0 and Σ δ x1 over the examples at which each unit is active.
    """
    W, gradient = room.weights, room.sums
    delta_sum, delta_x0_sum, delta_x1_sum = sums
    w0, w1 = _input_weights(W, hidden, v)
    units = v * W.lanes  # offset of the vector among the hidden units
    output_weight = W.load(last.rows + units)
    bias = W.load(hidden.bias + units)

    input_weights = hidden.sums + v * hidden.sum_vector
    gradient.store(input_weights, output_weight * delta_x0_sum)
    gradient.store(input_weights + hidden.sum_number, output_weight * delta_x1_sum)
    gradient.store(hidden.bias_sums + units, output_weight * delta_sum)
    # Σ δ y, since y = w · x + b where the unit is active
    gradient.store(last.sums + units, fma(w1, delta_x1_sum, fma(w0, delta_x0_sum, delta_sum * bias)))


def _sums_by_vector(sums: Sequence[Any]) -> list[Sequence[Any]]:
    """Return Σ δ, Σ δ x0 and Σ δ x1 of each vector of units, from the sums of all one after the other."""
    return [sums[start : start + SUMS] for start in range(0, len(sums), SUMS)]


def _make_backward(vectors: int) -> Any:
    """Return a compiled function that sums the gradient of a number of vectors of hidden units.

    An example is loaded once for all of them.
    """

    @traced
    def backward_tile(layout, first, batch, room, hidden, last):
        """Write the gradient of the hidden units in vectors from `first` on to `room.sums`.

        Parameters
        ----------
        layout : Layout
        first, batch : int
            The first vector of units, and how many examples the mini-batch has.
        room : Room
            `deltas` has δ of each example, and `masks` which units are active.
        hidden, last : DenseLayerRow
            The two layers.
        """
        W = room.weights
        group_size = W.lanes if isinstance(layout, LaneGroup) else 1
        sums = LoopVariables([W.zero()] * (SUMS * vectors))

        with loop(batch) as i:
            delta = load_chains(layout, room.deltas, i * group_size)
            x0, x1 = _load_inputs(layout, room.inputs, i * hidden.input_stride, group_size)
            new_sums = []
            for u, old_sums in enumerate(_sums_by_vector(sums.get())):
                delta_sum, delta_x0_sum, delta_x1_sum = old_sums
                active = room.masks.load_number((first + u) * batch + i).integer_to_mask(W.lanes)
                if_active = delta_sum + delta, fma(delta, x0, delta_x0_sum), fma(delta, x1, delta_x1_sum)
                new_sums += [select(active, new, old) for new, old in zip(if_active, old_sums, strict=True)]
            sums.set(new_sums)

        for u, unit_sums in enumerate(_sums_by_vector(sums.get())):
            _store_unit_gradient(room, hidden, last, first + u, unit_sums)

    return backward_tile


_sum_gradients = _over_tiles(_make_backward)


@compiled(apart=True)
def shallow_backward(layout, network, batch, room):
    """Write -∇L to `room.sums`, after `shallow_forward`, from the δ in `room.deltas`.

    Parameters
    ----------
    layout : Layout
    network : Network
        Table of the two layers.
    batch : int
        Examples of the mini-batch.
    room : Room
        Buffers.
    """
    hidden, last = layer_of(network.layers, 0), layer_of(network.layers, 1)
    deltas = Level(room.deltas, chains_in(layout, room.weights), 0)
    output_bias = offset_pointer(room.sums, last.bias_sums)
    sum_numbers_over_examples(layout, batch, 1, deltas, output_bias, False)
    _sum_gradients(layout, hidden.outputs, batch, room, hidden, last)
