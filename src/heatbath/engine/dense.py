"""Dense networks, compiled: loss and gradient of one chain on one mini-batch.

Parameters lie in the order of torch's `parameters_to_vector`: for each layer the weight (out x in, row by
row), then the bias. Each layer is computed in the way that lets its inner loop run over many units:

- narrow output: rows of W, dot products forwards, sums of rows backwards;
- narrow input: columns of W (a transposed copy), sums of columns forwards, dot products backwards;
- wide on both sides: BLAS.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.compile import FASTMATH, compiled

ACTIVATIONS = {"relu": 0, "tanh": 1, "identity": 2}
LOSSES = {"binary": 0, "classes": 1, "regression": 2}
ROWS, COLUMNS, BLAS = range(3)
NARROW = 16  # up to here a side of a layer is narrow
CHUNK = 256  # data in one pass when a loss is taken over all of them


@dataclass(frozen=True)
class Shape:
    """What the compiled code knows of a network: its layers' sizes, activation and loss, as numbers."""

    sizes: tuple[int, ...]
    activation: int
    loss: int

    @property
    def parameters(self) -> int:
        """How many there are."""
        return sum(out * (width + 1) for width, out in pairwise(self.sizes))

    @property
    def layers(self) -> NDArray[np.int64]:
        """For each layer: inputs, outputs, where weight and bias begin, and the way it is computed."""
        rows, begin = [], 0
        for width, out in pairwise(self.sizes):
            way = ROWS if out <= NARROW else COLUMNS if width <= NARROW else BLAS
            rows.append((width, out, begin, begin + width * out, way))
            begin += out * (width + 1)
        return np.array(rows, dtype=np.int64)

    def room(self, batch: int) -> tuple[int, int, int]:
        """The sizes of the buffers: all layers' outputs, one layer's deltas, one layer's weight."""
        widest = max(self.sizes)
        weight = max(width * out for width, out in pairwise(self.sizes))
        return batch * sum(self.sizes), batch * widest, weight


@compiled(fastmath=FASTMATH)
def forward(theta, layers, activation, batch, outputs, transposed):
    """Fill `outputs` (the inputs of the batch come first in it) layer by layer; the last are logits.

    Returns where the logits begin.
    """
    begin = 0
    count = layers.shape[0]
    for l in range(count):
        width, out, w, b, way = layers[l]
        end = begin + batch * width
        x = outputs[begin:end].reshape(batch, width)
        y = outputs[end : end + batch * out].reshape(batch, out)
        W, bias = theta[w:b].reshape(out, width), theta[b : b + out]
        if way == ROWS:
            _rows_forward(W, bias, x, y)
        elif way == COLUMNS:
            _columns_forward(W, bias, x, y, transposed[: width * out].reshape(width, out))
        else:
            np.dot(x, W.T, y)
            for i in range(batch):
                for k in range(out):
                    y[i, k] += bias[k]
        if l < count - 1:
            _activate(outputs[end : end + batch * out], activation)
        begin = end
    return begin


@compiled(fastmath=FASTMATH)
def _rows_forward(W, bias, x, y):
    for i in range(x.shape[0]):
        for k in range(W.shape[0]):
            total = bias[k]
            for j in range(W.shape[1]):
                total += x[i, j] * W[k, j]
            y[i, k] = total


@compiled(fastmath=FASTMATH)
def _columns_forward(W, bias, x, y, T):
    """Two columns at a time, the first of them with the bias."""
    width, out = T.shape
    for j in range(width):
        for k in range(out):
            T[j, k] = W[k, j]
    for i in range(x.shape[0]):
        if width == 1:
            first = x[i, 0]
            for k in range(out):
                y[i, k] = bias[k] + first * T[0, k]
            continue
        first, second = x[i, 0], x[i, 1]
        for k in range(out):
            y[i, k] = bias[k] + first * T[0, k] + second * T[1, k]
        for j in range(2, width - 1, 2):
            first, second = x[i, j], x[i, j + 1]
            for k in range(out):
                y[i, k] += first * T[j, k] + second * T[j + 1, k]
        if width % 2:
            first = x[i, width - 1]
            for k in range(out):
                y[i, k] += first * T[width - 1, k]


@compiled(fastmath=FASTMATH)
def _activate(y, activation):
    zero = y.dtype.type(0.0)
    if activation == 0:
        for i in range(y.shape[0]):
            y[i] = max(y[i], zero)
    elif activation == 1:
        for i in range(y.shape[0]):
            y[i] = np.tanh(y[i])


@compiled
def losses(logits, targets, loss, deltas):
    """The mean loss of a batch, and its derivative by the logits in `deltas`.

    Binary cross entropy and cross entropy from logits, never from probabilities; half the squared error.
    """
    batch, out = logits.shape
    total = 0.0
    number = logits.dtype.type
    scale = number(1.0 / batch)
    for i in range(batch):
        if loss == 0:
            for k in range(out):
                z, y = logits[i, k], targets[i, k]
                tail = np.exp(-abs(z))
                total += max(z, number(0.0)) - z * y + np.log1p(tail)
                probability = number(1.0) / (number(1.0) + tail) if z >= 0 else tail / (number(1.0) + tail)
                deltas[i, k] = (probability - y) * scale
        elif loss == 1:
            label = int(targets[i, 0])
            largest = logits[i, 0]
            for k in range(1, out):
                largest = max(largest, logits[i, k])
            normaliser = number(0.0)
            for k in range(out):
                deltas[i, k] = np.exp(logits[i, k] - largest)
                normaliser += deltas[i, k]
            total += np.log(normaliser) - (logits[i, label] - largest)
            for k in range(out):
                deltas[i, k] = deltas[i, k] / normaliser * scale
            deltas[i, label] -= scale
        else:
            for k in range(out):
                difference = logits[i, k] - targets[i, k]
                total += 0.5 * difference * difference
                deltas[i, k] = difference * scale
    return total / batch


@compiled(fastmath=FASTMATH)
def negative_gradient(
    theta, G, layers, activation, loss, batch, targets, outputs, deltas, previous, transposed
):
    """G = -∇L on the batch whose inputs stand first in `outputs`; returns the loss."""
    begin = forward(theta, layers, activation, batch, outputs, transposed)
    out = layers[-1, 1]
    logits = outputs[begin : begin + batch * out].reshape(batch, out)
    value = losses(logits, targets, loss, deltas[: batch * out].reshape(batch, out))
    for l in range(layers.shape[0] - 1, -1, -1):
        width, out, w, b, way = layers[l]
        begin -= batch * width
        values = outputs[begin : begin + batch * width]
        x = values.reshape(batch, width)
        d = deltas[: batch * out].reshape(batch, out)
        W, GW, GB = theta[w:b].reshape(out, width), G[w:b].reshape(out, width), G[b : b + out]
        _bias_backward(GB, d)
        if way == ROWS:
            _rows_backward(GW, d, x)
        elif way == COLUMNS:
            _columns_backward(GW, d, x, transposed[: width * out].reshape(width, out))
        else:
            np.dot(d.T, x, GW)
            flat = G[w:b]
            for e in range(flat.shape[0]):
                flat[e] = -flat[e]
        if l > 0:
            before = previous[: batch * width]
            if way == ROWS:
                _rows_deltas(before.reshape(batch, width), d, W)
            else:
                np.dot(d, W, before.reshape(batch, width))
            _chain_rule(before, values, activation)
            deltas, previous = previous, deltas
    return value


@compiled(fastmath=FASTMATH)
def _bias_backward(GB, d):
    for k in range(GB.shape[0]):
        GB[k] = -d[0, k]
    for i in range(1, d.shape[0]):
        for k in range(GB.shape[0]):
            GB[k] -= d[i, k]


@compiled(fastmath=FASTMATH)
def _rows_backward(GW, d, x):
    for k in range(GW.shape[0]):
        for j in range(GW.shape[1]):
            GW[k, j] = 0
        for i in range(d.shape[0]):
            factor = d[i, k]
            for j in range(GW.shape[1]):
                GW[k, j] -= factor * x[i, j]


@compiled(fastmath=FASTMATH)
def _rows_deltas(before, d, W):
    for i in range(d.shape[0]):
        factor = d[i, 0]
        for j in range(W.shape[1]):
            before[i, j] = factor * W[0, j]
        for k in range(1, W.shape[0]):
            factor = d[i, k]
            for j in range(W.shape[1]):
                before[i, j] += factor * W[k, j]


@compiled(fastmath=FASTMATH)
def _columns_backward(GW, d, x, T):
    """Two columns at a time."""
    width, out = T.shape
    T[:] = 0
    for i in range(d.shape[0]):
        for j in range(0, width - 1, 2):
            first, second = x[i, j], x[i, j + 1]
            for k in range(out):
                T[j, k] -= first * d[i, k]
                T[j + 1, k] -= second * d[i, k]
        if width % 2:
            first = x[i, width - 1]
            for k in range(out):
                T[width - 1, k] -= first * d[i, k]
    for j in range(width):
        for k in range(out):
            GW[k, j] = T[j, k]


@compiled(fastmath=FASTMATH)
def _chain_rule(before, values, activation):
    """Multiply by the derivative of the activation, which is known from its value."""
    zero, one = values.dtype.type(0.0), values.dtype.type(1.0)
    if activation == 0:
        for e in range(values.shape[0]):
            before[e] = before[e] if values[e] > zero else zero
    elif activation == 1:
        for e in range(values.shape[0]):
            before[e] *= one - values[e] * values[e]


@compiled
def evaluate(theta, layers, activation, loss, X, Y, outputs, deltas, transposed):
    """Mean loss and accuracy over all data, CHUNK at a time; the accuracy of a regression is NaN."""
    count, width, out = X.shape[0], X.shape[1], layers[-1, 1]
    total, right = 0.0, 0
    for first in range(0, count, CHUNK):
        size = min(CHUNK, count - first)
        for k in range(size):
            for j in range(width):
                outputs[k * width + j] = X[first + k, j]
        end = forward(theta, layers, activation, size, outputs, transposed)
        logits = outputs[end : end + size * out].reshape(size, out)
        targets = Y[first : first + size]
        total += size * losses(logits, targets, loss, deltas[: size * out].reshape(size, out))
        for k in range(size):
            if loss == 0:
                right += (logits[k, 0] > 0) == (targets[k, 0] > 0.5)
            elif loss == 1:
                right += np.argmax(logits[k]) == int(targets[k, 0])
    return total / count, right / count if loss < 2 else np.nan
