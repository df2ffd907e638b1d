"""Layers so wide that BLAS multiplies them; every chain is then computed alone.

Letters: x inputs of the layer, W weights, b biases, y outputs, d derivatives by them.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from heatbath.engine.compile import compiled
from heatbath.engine.layouts import Wide
from heatbath.engine.pointers import matrix


@compiled
def _without_padding(x, examples, width, stride, buffer):
    """Return x as a matrix (examples, width): a view, or a copy in `buffer` if its rows are padded."""
    if stride == width:
        return matrix(x, 0, examples, width)
    rows = matrix(buffer, 0, examples, width)
    for i in range(examples):
        for j in range(width):
            rows[i, j] = x[i * stride + j]
    return rows


def blas_forward(layout, theta, layer, examples, x, room):
    """Write a layer's outputs to `room.values` by a matrix product; only the layout Wide has code for it.

    Parameters
    ----------
    layout : Layout
    theta : pointer to the parameters
    layer : DenseLayerRow
    examples : int
    x : pointer to the layer's inputs, (example, input)
    room : Room
    """
    raise NotImplementedError("blas_forward can only be called in compiled code")


def blas_backward(layout, theta, G, layer, examples, x, d, previous, room, is_first):
    """Write a layer's part of G by a matrix product; only the layout Wide has code for it.

    Parameters
    ----------
    layout : Layout
    theta, G : pointers to the parameters and to the negative gradient
    layer : DenseLayerRow
    examples : int
    x : pointer to the layer's inputs, (example, input)
    d : pointer to the derivatives by its outputs, (example, output)
    previous : pointer to (example, input)
        Where the derivatives by its inputs go, unless the layer is the first.
    room : Room
    is_first : bool
    """
    raise NotImplementedError("blas_backward can only be called in compiled code")


@overload(blas_forward, jit_options={"nogil": True})
def _blas_forward_for(layout, theta, layer, examples, x, room):
    """Return the code of `blas_forward` for a layout: nothing but for Wide, so that it compiles sooner."""
    if layout.instance_class is not Wide:
        return lambda layout, theta, layer, examples, x, room: None
    return lambda layout, theta, layer, examples, x, room: _forward(theta, layer, examples, x, room)


@overload(blas_backward, jit_options={"nogil": True})
def _blas_backward_for(layout, theta, G, layer, examples, x, d, previous, room, is_first):
    """Return the code of `blas_backward` for a layout: nothing but for Wide, so that it compiles sooner."""
    if layout.instance_class is not Wide:
        return lambda layout, theta, G, layer, examples, x, d, previous, room, is_first: None
    return lambda layout, theta, G, layer, examples, x, d, previous, room, is_first: _backward(
        theta, G, layer, examples, x, d, previous, room, is_first
    )


@compiled(apart=True)
def _forward(theta, layer, examples, x, room):
    """Write y = x Wᵀ + b to `room.values` at the layer's outputs; the arguments are as in `blas_forward`."""
    width, out, stride = layer.width, layer.out, layer.output_stride
    y = matrix(room.output_matrix, 0, examples, out)
    inputs = _without_padding(x, examples, width, layer.input_stride, room.input_matrix)
    np.dot(inputs, matrix(theta, layer.weight_parameters, out, width).T, y)
    for i in range(examples):
        for k in range(out):
            room.values[layer.values + i * stride + k] = y[i, k] + theta[layer.bias_parameters + k]


@compiled
def _sum_over_examples(d, examples, count, stride, totals, start):
    """Write Σ_i d[i, k] to totals[start + k] for each k < count; `stride` leads from i to i + 1."""
    for k in range(count):
        totals[start + k] = d[k]
    for i in range(1, examples):
        for k in range(count):
            totals[start + k] += d[i * stride + k]


@compiled(apart=True)
def _backward(theta, G, layer, examples, x, d, previous, room, is_first):
    """Write dᵀ x and sums of d over examples to G and, unless the layer is the first, d W to `previous`.

    The arguments are as in `blas_backward`.
    """
    width, out, stride = layer.width, layer.out, layer.output_stride
    deltas = matrix(room.output_matrix, 0, examples, out)
    for i in range(examples):
        for k in range(out):
            deltas[i, k] = d[i * stride + k]

    inputs = _without_padding(x, examples, width, layer.input_stride, room.input_matrix)
    np.dot(deltas.T, inputs, matrix(G, layer.weight_parameters, out, width))
    _sum_over_examples(d, examples, out, stride, G, layer.bias_parameters)
    if is_first:
        return

    input_deltas = matrix(room.input_matrix, 0, examples, width)  # the inputs are no longer needed
    np.dot(deltas, matrix(theta, layer.weight_parameters, out, width), input_deltas)
    for i in range(examples):
        for j in range(width):
            previous[i * layer.input_stride + j] = input_deltas[i, j]
