"""Networks with two inputs, one hidden layer with ReLU and one output, in one pass.

The backward pass needs sums over the examples only, since the outputs of an active unit are w · x + b.

Letters: x0 and x1 the two inputs, y a unit's output, δ the negative derivative of the loss by the logit.
"""

from __future__ import annotations

from typing import Any

from heatbath.engine.compile import compiled
from heatbath.engine.dense_products import store_with_bias, sum_numbers_over_examples, sum_over_vectors
from heatbath.engine.dense_shape import layer_of
from heatbath.engine.layouts import LaneGroup, chains_in, load_chains
from heatbath.engine.simd import LoopVariables, fma, loop, select, traced


def _input_weights(W: Any, hidden: Any, v: Any) -> tuple[Any, Any]:
    """Return the weights of the two inputs of the hidden units in vector v."""
    start = hidden.columns + v * hidden.column_vector
    return W.load(start), W.load(start + hidden.column_input)


def _make_forward(examples: int) -> Any:
    """Return a compiled function that computes the logits of a number of examples."""

    @traced
    def forward_tile(layout, first, batch, room, hidden, last):
        """Write the logits of examples from `first` on to `room.logits`, and which units are active to masks.

        `room.masks` (vector of units, example) has an integer for each vector, with `batch` examples in a
        row.
        """
        x, W, masks = room.inputs, room.weights, room.masks
        group_size = W.lanes if isinstance(layout, LaneGroup) else 1
        offsets = [hidden.input_stride * (first + i) for i in range(examples)]
        x0 = [load_chains(layout, x, offset) for offset in offsets]
        x1 = [load_chains(layout, x, offset + group_size) for offset in offsets]

        def add(logits, v):
            w0, w1 = _input_weights(W, hidden, v)
            bias, output_weight = W.load(hidden.bias + v * W.lanes), W.load(last.rows + v * W.lanes)
            results = []
            for i, logit in enumerate(logits):
                y = fma(w1, x1[i], fma(w0, x0[i], bias))
                active = y.greater_or_nan(0.0)
                masks.store_number(v * batch + first + i, active.mask_to_integer(masks.dtype))
                results.append(fma(output_weight, select(active, y, 0.0), logit))
            return results

        logits = sum_over_vectors(layout, W.lanes, hidden.outputs, examples, W, add)
        store_with_bias(
            layout, logits, W, lambda load: load(last.bias), room.logits, first * group_size, group_size
        )

    return forward_tile


_forward4, _forward1 = _make_forward(4), _make_forward(1)


@compiled(apart=True)
def shallow_forward(layout, network, batch, room):
    """Write the logits of a mini-batch to `room.logits`, and which units are active to `room.masks`."""
    hidden, last = layer_of(network.layers, 0), layer_of(network.layers, 1)
    i = 0
    while i < batch:
        if batch - i >= 4:
            _forward4(layout, i, batch, room, hidden, last)
            i += 4
        else:
            _forward1(layout, i, batch, room, hidden, last)
            i += 1


def _make_backward(vectors: int) -> Any:
    """Return a compiled function that sums the gradient of a number of vectors of hidden units."""

    @traced
    def backward_tile(layout, first, batch, room, hidden, last):
        """Write the gradient of the hidden units in vectors from `first` on to `room.sums`.

        It follows from sums of δ, δ x0 and δ x1 over the examples at which a unit is active.
        """
        W, sums = room.weights, room.sums
        group_size = W.lanes if isinstance(layout, LaneGroup) else 1
        totals = LoopVariables([W.zero()] * (3 * vectors))
        with loop(batch) as i:
            delta = load_chains(layout, room.deltas, i * group_size)
            x0, x1 = (
                load_chains(layout, room.inputs, i * hidden.input_stride + group_size * j) for j in range(2)
            )
            values = totals.get()
            for u in range(vectors):
                active = room.masks.load_number((first + u) * batch + i).integer_to_mask(W.lanes)
                d, d0, d1 = values[3 * u : 3 * u + 3]
                added = d + delta, fma(delta, x0, d0), fma(delta, x1, d1)
                values[3 * u : 3 * u + 3] = [
                    select(active, new, old) for new, old in zip(added, (d, d0, d1), strict=True)
                ]
            totals.set(values)
        values = totals.get()
        for u in range(vectors):
            d, d0, d1 = values[3 * u : 3 * u + 3]
            v = first + u
            output_weight = W.load(last.rows + v * W.lanes)
            offset, shift = hidden.sums + v * hidden.sum_vector, v * W.lanes
            sums.store(offset, output_weight * d0)
            sums.store(offset + hidden.sum_number, output_weight * d1)
            sums.store(hidden.bias_sums + shift, output_weight * d)
            w0, w1 = _input_weights(W, hidden, v)
            # Σ δ y, since y = w · x + b where the unit is active
            sums.store(last.sums + shift, fma(w1, d1, fma(w0, d0, d * W.load(hidden.bias + shift))))

    return backward_tile


_backward4, _backward1 = _make_backward(4), _make_backward(1)


@compiled(apart=True)
def shallow_backward(layout, network, batch, room):
    """Write -∇L to `room.sums`, after `shallow_forward`, from the δ in `room.deltas`."""
    hidden, last = layer_of(network.layers, 0), layer_of(network.layers, 1)
    group_size = chains_in(layout, room.weights)
    sum_numbers_over_examples(
        layout, batch, room.deltas, group_size, 0, 1, room.sums, last.bias_sums, False
    )  # fmt: skip
    v = 0
    while v < hidden.outputs:
        if hidden.outputs - v >= 4:
            _backward4(layout, v, batch, room, hidden, last)
            v += 4
        else:
            _backward1(layout, v, batch, room, hidden, last)
            v += 1
