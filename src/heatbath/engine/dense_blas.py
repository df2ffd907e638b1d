"""Layers so wide that BLAS multiplies them."""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from heatbath.engine.compile import compiled
from heatbath.engine.layouts import Wide
from heatbath.engine.pointers import matrix


@compiled
def _flat(x, begin, size, width, stride, room):
    """Rows without padding, for BLAS."""
    if stride == width:
        return matrix(x, begin, size, width)
    rows = matrix(room, 0, size, width)
    for i in range(size):
        for j in range(width):
            rows[i, j] = x[begin + i * stride + j]
    return rows


def blas_forward(layout, theta, layer, size, x, begin, room):
    """The outputs of a layer from a matrix product, in the layout that has them."""
    raise NotImplementedError("only in compiled code")


def blas_backward(layout, theta, G, layer, size, x, begin, d, other, room, deltas):
    """The gradient from a matrix product, and what the layer before gets, if it is asked for."""
    raise NotImplementedError("only in compiled code")


@overload(blas_forward, jit_options={"nogil": True})
def _blas_forward_in(layout, theta, layer, size, x, begin, room):
    if layout.instance_class is Wide:
        return lambda layout, theta, layer, size, x, begin, room: _outputs(theta, layer, size, x, begin, room)
    return lambda layout, theta, layer, size, x, begin, room: None


@overload(blas_backward, jit_options={"nogil": True})
def _blas_backward_in(layout, theta, G, layer, size, x, begin, d, other, room, deltas):
    if layout.instance_class is Wide:
        return lambda layout, theta, G, layer, size, x, begin, d, other, room, deltas: _gradients(
            theta, G, layer, size, x, begin, d, other, room, deltas
        )
    return lambda layout, theta, G, layer, size, x, begin, d, other, room, deltas: None


@compiled(apart=True)
def _outputs(theta, layer, size, x, begin, room):
    width, out, after = layer.width, layer.out, layer.after
    y = matrix(room.other, 0, size, out)
    rows = _flat(x, begin, size, width, layer.before, room.flat)
    np.dot(rows, matrix(theta, layer.weight, out, width).T, y)
    for i in range(size):
        for k in range(out):
            room.values[layer.level + i * after + k] = y[i, k] + theta[layer.shift + k]


@compiled(apart=True)
def _gradients(theta, G, layer, size, x, begin, d, other, room, deltas):
    width, out, after = layer.width, layer.out, layer.after
    flat = matrix(room.other, 0, size, out)
    for i in range(size):
        for k in range(out):
            flat[i, k] = d[i * after + k]
    rows = _flat(x, begin, size, width, layer.before, room.flat)
    np.dot(flat.T, rows, matrix(G, layer.weight, out, width))
    for k in range(out):
        G[layer.shift + k] = d[k]
    for i in range(1, size):
        for k in range(out):
            G[layer.shift + k] += d[i * after + k]
    if deltas:
        e = matrix(room.flat, 0, size, width)
        np.dot(flat, matrix(theta, layer.weight, out, width), e)
        for i in range(size):
            for j in range(width):
                other[i * layer.before + j] = e[i, j]
