"""Pieces of the engine as Python can call them: compiled code does with pointers, in a layout."""

import numba
import numpy as np

from heatbath.engine import losses
from heatbath.engine.dense import activate, multiply_by_slope
from heatbath.engine.layouts import Alone, LaneGroup
from heatbath.engine.random import fill_normals, fill_words
from heatbath.engine.simd import lane_count, pointer_to
from heatbath.reference.random import TILE


@numba.njit
def _normals(layout, z, numbers, seed, use, step, tile, low, high):
    fill_normals(layout, pointer_to(z), pointer_to(numbers), seed, use, step, tile, low, high)


@numba.njit
def _words(layout, z, words, numbers, seed, use, step, tile, count):
    fill_words(layout, pointer_to(z), pointer_to(words), pointer_to(numbers), seed, use, step, tile, count)


def layouts(kind):
    """Return both layouts for numbers of a type, each with the number of chains it holds."""
    return (Alone(), LaneGroup(lane_count(kind)))


def numbers_of(layout, chain):
    """Return the numbers of chains as compiled code takes them: one alone, or those from it on."""
    chains = np.arange(chain, chain + layout.lanes).astype(np.uint64)
    return np.concatenate([chains[::2], chains[1::2]]) if layout.lanes == 16 else chains


def normals(layout, kind, seed, use, chain, step, tile, low=0, high=TILE):
    """Return the normal numbers of a tile, (element, chain)."""
    z = np.full(TILE * layout.lanes, np.nan, kind)
    _normals(layout, z, numbers_of(layout, chain), np.uint64(seed), use, step, tile, low, high)
    return z.reshape(TILE, -1)


def words(layout, kind, seed, use, chain, step, tile, count=TILE):
    """Return the random words of a tile, (element, chain)."""
    made = np.zeros(TILE * layout.lanes, np.uint32)
    z = np.empty(0, kind)
    _words(layout, z, made, numbers_of(layout, chain), np.uint64(seed), use, step, tile, count)
    return made.reshape(TILE, -1)


def _flat(layout, values, capacity):
    """Return (datum, output) as (output, datum), or as (output, datum, lane) with equal lanes."""
    count, out = values.shape
    rows = np.zeros((out, capacity), values.dtype)
    rows[:, :count] = values.T
    return np.repeat(rows.ravel(), layout.lanes)


def _shaped(layout, flat, count, out, capacity):
    rows = flat.reshape(out, capacity, layout.lanes)[:, :count]
    np.testing.assert_array_equal(rows, np.broadcast_to(rows[..., :1], rows.shape))  # NaN is like NaN
    return rows[..., 0].T


@numba.njit
def _losses(layout, loss, logits, targets, results, checks, capacity, count, out, scale, weights):
    deltas, values, is_right = results
    target_weights, tail_weights = weights
    rows = losses.LossRows(pointer_to(logits), pointer_to(targets), capacity, capacity, 0, count, out)
    losses.compute_losses(layout, loss, rows, pointer_to(values), pointer_to(is_right))
    losses.differentiate_loss(
        layout, loss, rows, scale, pointer_to(deltas), pointer_to(target_weights), pointer_to(tail_weights),
        pointer_to(checks),
    )  # fmt: skip


def loss_and_derivatives(layout, loss, outputs, targets):
    """Return the mean loss, its derivatives by the outputs, the share of right answers, and the checks."""
    count, out = outputs.shape
    kind = outputs.dtype
    capacity = -(-count // 16) * 16
    logits, labels = _flat(layout, outputs, capacity), _flat(layout, targets.astype(kind), capacity)
    deltas, values, is_right = np.zeros_like(logits), np.zeros_like(logits), np.zeros_like(logits)
    checks = np.zeros(lane_count(kind), kind)
    equal_weights = np.ones(out * lane_count(kind), kind), np.zeros(out * lane_count(kind), kind)
    _losses(
        layout, loss, logits, labels, (deltas, values, is_right), checks, capacity, count, out,
        kind.type(1 / count), equal_weights,
    )  # fmt: skip
    values, is_right = (
        _shaped(layout, flat[: capacity * layout.lanes], count, 1, capacity) for flat in (values, is_right)
    )
    return values.mean(), -_shaped(layout, deltas, count, out, capacity), is_right.mean(), checks


@numba.njit
def _predictions(layout, loss, logits, capacity, count, out):
    losses.decode_logits(layout, loss, pointer_to(logits), capacity, count, out)


def predictions(layout, loss, outputs):
    """Return the predictions that outputs stand for."""
    count, out = outputs.shape
    capacity = -(-count // 16) * 16
    logits = _flat(layout, outputs, capacity)
    _predictions(layout, loss, logits, capacity, count, out)
    return _shaped(layout, logits, count, out, capacity)


@numba.njit
def _activation(values, slopes, activation):
    activate(pointer_to(values), values.shape[0], activation)
    multiply_by_slope(pointer_to(slopes), pointer_to(values), values.shape[0], activation)


def activation_and_slope(values, activation):
    """Return the values of an activation and its derivatives there."""
    room = np.zeros(-(-len(values) // 16) * 16, values.dtype)
    room[: len(values)] = values
    slopes = np.ones_like(room)
    _activation(room, slopes, activation)
    return room[: len(values)], slopes[: len(values)]
