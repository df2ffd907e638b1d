"""Dense networks, compiled: loss and gradient of one chain on one mini-batch.

Parameters lie in the order of torch's `parameters_to_vector`: for each layer the weight (out x in, row by
row), then the bias. Each layer is computed in the way that lets its inner loop run over many units:

- narrow output: rows of W, dot products forwards, sums of rows backwards;
- narrow input: columns of W, sums of columns forwards, dot products backwards;
- wide on both sides: BLAS.

The first two work on a copy of the weights whose rows (or columns) are padded with zeros to a multiple of 32,
as are the hidden units between them: a vectorised loop over 100 units would otherwise do the last few one by
one, which takes longer than the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.compile import FASTMATH, compiled
from heatbath.engine.losses import BINARY, CLASSES, losses, predictions
from heatbath.engine.views import matrix, vector
from heatbath.networks import ACTIVATIONS

RELU, TANH = ACTIVATIONS["relu"].number, ACTIVATIONS["tanh"].number
ROWS, COLUMNS, BLAS = range(3)
NARROW = 16  # up to here a side of a layer is narrow
LANES = 32  # what a vectorised loop takes at a time
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
    def strides(self) -> list[int]:
        """The room for one datum at each level: hidden ones between layers without BLAS are padded."""
        ways = [BLAS, *map(_way, pairwise(self.sizes)), BLAS]  # inputs and outputs are not padded
        return [
            size if BLAS in between else -(-size // LANES) * LANES
            for size, between in zip(self.sizes, pairwise(ways), strict=True)
        ]

    @property
    def layers(self) -> NDArray[np.int64]:
        """For each layer: inputs, outputs, where weight and bias begin, the way it is computed, its strides
        before and after, and where its padded copy begins."""
        rows, begin, copy = [], 0, 0
        for (width, out), (before, after) in zip(pairwise(self.sizes), pairwise(self.strides), strict=True):
            way = _way((width, out))
            rows.append((width, out, begin, begin + width * out, way, before, after, copy))
            begin += out * (width + 1)
            copy += {ROWS: out * before, COLUMNS: (width + 1) * after, BLAS: 0}[way]
        return np.array(rows, dtype=np.int64)

    def room(self, batch: int) -> tuple[int, int, int]:
        """The sizes of the buffers: all levels' outputs, one level's deltas, and all padded copies."""
        width, out, _, _, way, before, after, copy = self.layers[-1].tolist()
        end = copy + {ROWS: out * before, COLUMNS: (width + 1) * after, BLAS: 0}[way]
        return batch * sum(self.strides), batch * max(self.strides), end


def _way(layer: tuple[int, int]) -> int:
    width, out = layer
    return ROWS if out <= NARROW else COLUMNS if width <= NARROW else BLAS


@compiled
def copy_weights(theta, layers, copies):
    """The padded copies of the weights; `copies` starts as zeros, and the padding stays so."""
    for l in range(layers.shape[0]):
        width, out, w, b, way, before, after, at = layers[l]
        W = matrix(theta, w, out, width)
        if way == ROWS:
            rows = matrix(copies, at, out, before)
            for k in range(out):
                for j in range(width):
                    rows[k, j] = W[k, j]
        elif way == COLUMNS:
            columns = matrix(copies, at, width + 1, after)
            bias = vector(theta, b, out)
            for j in range(width):
                for k in range(out):
                    columns[j, k] = W[k, j]
            for k in range(out):
                columns[width, k] = bias[k]


@compiled(fastmath=FASTMATH)
def forward(theta, layers, activation, batch, outputs, copies):
    """Fill `outputs` (the inputs of the batch come first in it) level by level; the last are logits.

    The copies of the weights must be up to date. Returns where the logits begin.
    """
    begin = 0
    count = layers.shape[0]
    for l in range(count):
        width, out, w, b, way, before, after, at = layers[l]
        end = begin + batch * before
        x = matrix(outputs, begin, batch, before)
        y = matrix(outputs, end, batch, after)
        if way == ROWS:
            _rows_forward(matrix(copies, at, out, before), vector(theta, b, out), x, y)
        elif way == COLUMNS:
            _columns_forward(matrix(copies, at, width + 1, after), x, y)
        else:
            np.dot(x, matrix(theta, w, out, width).T, y)
            bias = vector(theta, b, out)
            for i in range(batch):
                for k in range(out):
                    y[i, k] += bias[k]
        if l < count - 1:
            _activate(vector(outputs, end, batch * after), activation)
        begin = end
    return begin


@compiled(fastmath=FASTMATH)
def _rows_forward(rows, bias, x, y):
    for i in range(x.shape[0]):
        for k in range(rows.shape[0]):
            total = bias.dtype.type(0.0)
            for j in range(rows.shape[1]):
                total += x[i, j] * rows[k, j]
            y[i, k] = total + bias[k]
        for k in range(rows.shape[0], y.shape[1]):  # the padding, if this level has any
            y[i, k] = 0


@compiled(fastmath=FASTMATH)
def _columns_forward(columns, x, y):
    """Two columns at a time, the first of them with the bias, which is the last row."""
    width, out = columns.shape[0] - 1, columns.shape[1]
    for i in range(x.shape[0]):
        if width == 1:
            first = x[i, 0]
            for k in range(out):
                y[i, k] = columns[1, k] + first * columns[0, k]
            continue
        first, second = x[i, 0], x[i, 1]
        for k in range(out):
            y[i, k] = columns[width, k] + first * columns[0, k] + second * columns[1, k]
        for j in range(2, width - 1, 2):
            first, second = x[i, j], x[i, j + 1]
            for k in range(out):
                y[i, k] += first * columns[j, k] + second * columns[j + 1, k]
        if width % 2:
            first = x[i, width - 1]
            for k in range(out):
                y[i, k] += first * columns[width - 1, k]


@compiled(fastmath=FASTMATH)
def _activate(y, activation):
    zero = y.dtype.type(0.0)
    if activation == RELU:
        for i in range(y.shape[0]):
            y[i] = max(y[i], zero)
    elif activation == TANH:
        for i in range(y.shape[0]):
            y[i] = np.tanh(y[i])


@compiled(fastmath=FASTMATH)
def negative_gradient(
    theta, G, layers, activation, loss, batch, targets, outputs, deltas, previous, copies, sums
):
    """G = -∇L on the batch whose inputs stand first in `outputs`; returns the loss.

    `sums` is room like `copies`: gradients are summed there, padded, and then put in their places.
    """
    copy_weights(theta, layers, copies)
    begin = forward(theta, layers, activation, batch, outputs, copies)
    out = layers[-1, 1]
    logits = matrix(outputs, begin, batch, out)
    value = losses(logits, targets, loss, matrix(deltas, 0, batch, out))
    for l in range(layers.shape[0] - 1, -1, -1):
        width, out, w, b, way, before, after, at = layers[l]
        begin -= batch * before
        values, x = vector(outputs, begin, batch * before), matrix(outputs, begin, batch, before)
        d = matrix(deltas, 0, batch, after)
        earlier = matrix(previous, 0, batch, before)
        GW, GB = matrix(G, w, out, width), vector(G, b, out)
        if way == ROWS:
            _rows_backward(GW, GB, d, x, matrix(sums, at, out, before))
            if l > 0:
                _rows_deltas(earlier, d, matrix(copies, at, out, before))
        elif way == COLUMNS:
            _columns_backward(GW, GB, d, x, matrix(sums, at, width + 1, after))
            if l > 0:
                columns = matrix(copies, at, width, after)
                _rows_forward(columns, np.zeros(width, theta.dtype), d, earlier)
        else:
            np.dot(d.T, x, GW)
            flat = vector(G, w, width * out)
            for e in range(flat.shape[0]):
                flat[e] = -flat[e]
            for k in range(out):
                GB[k] = -d[0, k]
            for i in range(1, batch):
                for k in range(out):
                    GB[k] -= d[i, k]
            if l > 0:
                np.dot(d, matrix(theta, w, out, width), earlier)
        if l > 0:
            _chain_rule(vector(previous, 0, batch * before), values, activation)
            deltas, previous = previous, deltas
    return value


@compiled(fastmath=FASTMATH)
def _rows_backward(GW, GB, d, x, sums):
    out, width = sums.shape
    for k in range(out):
        for j in range(width):
            sums[k, j] = 0
        total = GB.dtype.type(0.0)
        for i in range(d.shape[0]):
            factor = d[i, k]
            total += factor
            for j in range(width):
                sums[k, j] -= factor * x[i, j]
        GB[k] = -total
        for j in range(GW.shape[1]):
            GW[k, j] = sums[k, j]


@compiled(fastmath=FASTMATH)
def _rows_deltas(earlier, d, rows):
    for i in range(d.shape[0]):
        factor = d[i, 0]
        for j in range(rows.shape[1]):
            earlier[i, j] = factor * rows[0, j]
        for k in range(1, rows.shape[0]):
            factor = d[i, k]
            for j in range(rows.shape[1]):
                earlier[i, j] += factor * rows[k, j]


@compiled(fastmath=FASTMATH)
def _columns_backward(GW, GB, d, x, sums):
    """Four data at a time, so that the sums are fetched and stored less often; the last row is the bias's."""
    width, out = sums.shape[0] - 1, sums.shape[1]
    batch = d.shape[0]
    for j in range(width + 1):
        for k in range(out):
            sums[j, k] = 0
    whole = batch - batch % 4
    for i in range(0, whole, 4):
        for k in range(out):
            sums[width, k] -= (d[i, k] + d[i + 1, k]) + (d[i + 2, k] + d[i + 3, k])
        for j in range(width):
            x0, x1, x2, x3 = x[i, j], x[i + 1, j], x[i + 2, j], x[i + 3, j]
            for k in range(out):
                sums[j, k] -= x0 * d[i, k] + x1 * d[i + 1, k] + (x2 * d[i + 2, k] + x3 * d[i + 3, k])
    for i in range(whole, batch):
        for k in range(out):
            sums[width, k] -= d[i, k]
        for j in range(width):
            factor = x[i, j]
            for k in range(out):
                sums[j, k] -= factor * d[i, k]
    for j in range(width):
        for k in range(GB.shape[0]):
            GW[k, j] = sums[j, k]
    for k in range(GB.shape[0]):
        GB[k] = sums[width, k]


@compiled(fastmath=FASTMATH)
def _chain_rule(earlier, values, activation):
    """Multiply by the derivative of the activation, which is known from its value."""
    zero, one = values.dtype.type(0.0), values.dtype.type(1.0)
    if activation == RELU:
        for e in range(values.shape[0]):
            earlier[e] = earlier[e] if values[e] > zero else zero
    elif activation == TANH:
        for e in range(values.shape[0]):
            earlier[e] *= one - values[e] * values[e]


@compiled
def evaluate(theta, layers, activation, loss, X, Y, outputs, deltas, copies, average, nth):
    """Mean loss and accuracy over all data, CHUNK at a time; the accuracy of a regression is NaN.

    With nth > 0 the outputs are instead taken into a running mean, average[0], and sum of squared deviations
    from it, average[1], as the nth of their kind.
    """
    count, width, out = X.shape[0], X.shape[1], layers[-1, 1]
    total, right = 0.0, 0
    copy_weights(theta, layers, copies)
    for first in range(0, count, CHUNK):
        size = min(CHUNK, count - first)
        for k in range(size):
            for j in range(width):
                outputs[k * width + j] = X[first + k, j]
        end = forward(theta, layers, activation, size, outputs, copies)
        logits = matrix(outputs, end, size, out)
        if nth > 0:
            predictions(logits, loss)
            for k in range(size):
                for j in range(out):
                    value = np.float64(logits[k, j])
                    difference = value - average[0, first + k, j]
                    average[0, first + k, j] += difference / nth
                    average[1, first + k, j] += difference * (value - average[0, first + k, j])
            continue
        targets = Y[first : first + size]
        total += size * losses(logits, targets, loss, matrix(deltas, 0, size, out))
        for k in range(size):
            if loss == BINARY:
                right += (logits[k, 0] > 0) == (targets[k, 0] > 0.5)
            elif loss == CLASSES:
                best = 0
                for j in range(1, out):
                    best = j if logits[k, j] > logits[k, best] else best
                right += best == int(targets[k, 0])
    return total / count, right / count if loss in (BINARY, CLASSES) else np.nan
