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

    x points to its inputs (example, input).
    """
    raise NotImplementedError("only in compiled code")


def blas_backward(layout, theta, G, layer, examples, x, d, previous, room, is_first):
    """Write a layer's part of G by a matrix product; only the layout Wide has code for it.

    `d` are the derivatives by its outputs, (example, output); those by its inputs x go to `previous`
    (example, input), unless the layer is the first.
    """
    raise NotImplementedError("only in compiled code")


@overload(blas_forward, jit_options={"nogil": True})
def _blas_forward_for(layout, theta, layer, examples, x, room):
    if layout.instance_class is not Wide:
        return lambda layout, theta, layer, examples, x, room: None
    return lambda layout, theta, layer, examples, x, room: _forward(theta, layer, examples, x, room)


@overload(blas_backward, jit_options={"nogil": True})
def _blas_backward_for(layout, theta, G, layer, examples, x, d, previous, room, is_first):
    if layout.instance_class is not Wide:
        return lambda layout, theta, G, layer, examples, x, d, previous, room, is_first: None
    return lambda layout, theta, G, layer, examples, x, d, previous, room, is_first: _backward(
        theta, G, layer, examples, x, d, previous, room, is_first
    )


@compiled(apart=True)
def _forward(theta, layer, examples, x, room):
    """Write y = x Wᵀ + b to `room.values` at the layer's outputs."""
    width, out, stride = layer.width, layer.out, layer.output_stride
    y = matrix(room.output_matrix, 0, examples, out)
    inputs = _without_padding(x, examples, width, layer.input_stride, room.input_matrix)
    np.dot(inputs, matrix(theta, layer.weight_parameters, out, width).T, y)
    for i in range(examples):
        for k in range(out):
            room.values[layer.values + i * stride + k] = y[i, k] + theta[layer.bias_parameters + k]


@compiled(apart=True)
def _backward(theta, G, layer, examples, x, d, previous, room, is_first):
    """Write dᵀ x and sums of d over examples to G and, unless the layer is the first, d W to `previous`."""
    width, out, stride = layer.width, layer.out, layer.output_stride
    biases = layer.bias_parameters
    deltas = matrix(room.output_matrix, 0, examples, out)
    for i in range(examples):
        for k in range(out):
            deltas[i, k] = d[i * stride + k]
    inputs = _without_padding(x, examples, width, layer.input_stride, room.input_matrix)
    np.dot(deltas.T, inputs, matrix(G, layer.weight_parameters, out, width))
    for k in range(out):
        G[biases + k] = d[k]
    for i in range(1, examples):
        for k in range(out):
            G[biases + k] += d[i * stride + k]
    if is_first:
        return
    input_deltas = matrix(room.input_matrix, 0, examples, width)
    np.dot(deltas, matrix(theta, layer.weight_parameters, out, width), input_deltas)
    for i in range(examples):
        for j in range(width):
            previous[i * layer.input_stride + j] = input_deltas[i, j]
