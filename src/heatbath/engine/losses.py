"""Losses from logits, compiled, for vectors of examples (a chain alone) or of chains (a group).

Logits, targets and derivatives are (output, example), so for a chain alone, too, a vector holds as many
examples as it has lanes.

Letters: z logits, y targets, v the logarithm of a variance, r residuals; k numbers outputs.
"""

from __future__ import annotations

from typing import NamedTuple

from heatbath.datasets.tasks import LARGEST, STUDENT, TASKS, VARYING
from heatbath.engine import simd
from heatbath.engine.compile import compiled
from heatbath.engine.layouts import chains_in, load_chains, vector_count
from heatbath.engine.simd import Pointer, exp, fma, lanes_of, load, log, log1p, select, store, traced, zero

BINARY, CLASSES, COUNTS = (TASKS[task].number for task in ("binary", "classes", "counts"))


class LossRows(NamedTuple):
    """Pointers to examples: logits (output, chunk) from 0 on, targets (column, capacity) from `first` on."""

    logits: Pointer
    targets: Pointer
    chunk: int
    capacity: int
    first: int
    examples: int
    out: int


def _sigmoid(z: simd.Traced) -> simd.Traced:
    """Compute 1/(1 + exp(-z)), from the side on which nothing overflows."""
    tail = exp(-z.intrinsic("fabs"))
    return select(z >= 0.0, tail.constant(1.0), tail) / (tail + 1.0)


_probability = traced(_sigmoid)
_exp = traced(exp)


@traced
def _binary_derivative(z, y, scale):
    """Return scale (y - sigmoid(z))."""
    return (y - _sigmoid(z)) * scale


@traced
def _binary_loss(z, y):
    """Return the binary cross entropy log(1 + exp(z)) - z y, in a form that doesn't overflow."""
    softened = log1p(exp(-z.intrinsic("fabs")))
    return fma(-z, y, select(z > 0.0, z, 0.0)) + softened


@traced
def _class_loss(normaliser, z_label, largest):
    """Return the cross entropy of the label's logit, with the sum of exp(z - largest) over the classes."""
    return log(normaliser) - (z_label - largest)


@traced
def _maximum(a, b):
    return select(b > a, b, a)


@traced
def _select_label(label, k, if_label, otherwise):
    """Return `if_label` in the lanes whose label is class k, and `otherwise` in the others."""
    return select(label.compare("==", k.convert(label.dtype)), if_label, otherwise)


@traced
def _is_label(label, k):
    """Return 1 in the lanes whose label is class k, and 0 in the others."""
    return select(label.compare("==", k.convert(label.dtype)), label.constant(1.0), 0.0)


@traced
def _add_check(check, value):
    """Return 0 as long as all values were finite, and NaN otherwise."""
    return fma(value, 0.0, check)


@traced
def _scaled_ratio(a, b, scale):
    return a / b * scale


@traced
def _scaled_difference(y, z, scale):
    return (y - z) * scale


@traced
def _is_sign_right(z, y):
    """Return 1 where the sign of the logit z is that of the class y, and 0 elsewhere."""
    is_right = (z > 0.0).equals(y > 0.5)
    return select(is_right, z.constant(1.0), 0.0)


@traced
def _load_factor(layout, factors, index):
    """Return a factor of each chain as a vector."""
    return load_chains(layout, factors, index)


@traced
def _add_half_square(z, y, total):
    """Return total + (z - y)²/2."""
    r = z - y
    return fma(r * 0.5, r, total)


@traced
def _add_count_loss(z, y, total):
    """Return total + exp(z) - y z."""
    return total + fma(-z, y, exp(z))


@traced
def _add_varying_loss(z, v, y, total):
    """Return total + (exp(-v) (z - y)² + v)/2."""
    r = z - y
    return fma(fma(exp(-v) * r, r, v), 0.5, total)


@traced
def _varying_derivative(z, v, y, scale):
    """Return scale exp(-v) (y - z)."""
    return exp(-v) * (y - z) * scale


@traced
def _varying_log_derivative(z, v, y, scale):
    """Return scale (exp(-v) (z - y)² - 1)/2, the negative derivative by v."""
    r = z - y
    return (exp(-v) * r * r - 1.0) * 0.5 * scale


@traced
def _student_derivative(z, y, tail_weight, scale):
    """Return scale r/(1 + tail_weight r²) with r = y - z."""
    r = y - z
    return r / fma(tail_weight * r, r, 1.0) * scale


@traced
def _rate(z):
    """Return exp(z), at most exp(LARGEST)."""
    return exp(select(z > LARGEST, z.constant(LARGEST), z))


@compiled
def _softmax_terms(logits, terms, start, stride, out):
    """Write exp(z - largest z) of every output to `terms`, and return their sum.

    The logits of the outputs begin at logits[start], `stride` numbers apart, and so do the terms.
    """
    largest = load(logits, start)
    for k in range(1, out):
        largest = _maximum(largest, load(logits, start + k * stride))
    normaliser = zero(logits)
    for k in range(out):
        term = _exp(load(logits, start + k * stride) - largest)
        store(terms, start + k * stride, term)
        normaliser = normaliser + term
    return normaliser


@compiled
def _clear_remainder(logits, examples, out, chunk):
    """Set the lanes after the last example of a chain alone to zero: what stood there may not be finite."""
    lanes = lanes_of(logits)
    for k in range(out):
        for index in range(k * chunk + examples, k * chunk + -(-examples // lanes) * lanes):
            logits[index] = 0


@compiled
def _differentiate_binary(rows, logit, target, logit_stride, target_stride, scale, deltas, check):
    """Write the derivatives of the binary cross entropy of a vector of examples; return the check.

    The vector's first logit is rows.logits[logit], its first target rows.targets[target], and the strides
    lead from one output to the next. This holds for all `_differentiate_...`.
    """
    for k in range(rows.out):
        z = load(rows.logits, logit + k * logit_stride)
        y = load(rows.targets, target + k * target_stride)
        check = _add_check(check, z)
        store(deltas, logit + k * logit_stride, _binary_derivative(z, y, scale))
    return check


@compiled
def _differentiate_classes(rows, logit, target, logit_stride, scale, deltas, check):
    """Write the derivatives of the cross entropy of a vector of examples; return the check."""
    label = load(rows.targets, target)
    for k in range(rows.out):
        check = _add_check(check, load(rows.logits, logit + k * logit_stride))
    normaliser = _softmax_terms(rows.logits, deltas, logit, logit_stride, rows.out)
    for k in range(rows.out):
        term = load(deltas, logit + k * logit_stride)
        probability = _scaled_ratio(term, normaliser, scale)
        store(deltas, logit + k * logit_stride, _is_label(label, k) * scale - probability)
    return check


@compiled
def _differentiate_counts(rows, logit, target, logit_stride, target_stride, scale, deltas, check):
    """Write the derivatives of the Poisson loss of a vector of examples; return the check."""
    for k in range(rows.out):
        z = load(rows.logits, logit + k * logit_stride)
        y = load(rows.targets, target + k * target_stride)
        check = _add_check(check, _add_count_loss(z, y, zero(rows.logits)))
        store(deltas, logit + k * logit_stride, _scaled_difference(y, _exp(z), scale))
    return check


@compiled
def _differentiate_varying(rows, logit, target, logit_stride, target_stride, scale, deltas, check):
    """Write the derivatives of a Gaussian loss whose log variances are outputs, too; return the check."""
    half = rows.out // 2
    for k in range(half):
        z = load(rows.logits, logit + k * logit_stride)
        v = load(rows.logits, logit + (half + k) * logit_stride)
        y = load(rows.targets, target + k * target_stride)
        check = _add_check(check, _add_varying_loss(z, v, y, zero(rows.logits)))
        store(deltas, logit + k * logit_stride, _varying_derivative(z, v, y, scale))
        store(deltas, logit + (half + k) * logit_stride, _varying_log_derivative(z, v, y, scale))
    return check


@compiled(apart=True)
def differentiate_loss(layout, loss, rows, scale, deltas, target_weights, tail_weights, checks):
    """Write the negative derivatives of the mean loss by the logits of some examples to `deltas`.

    Parameters
    ----------
    loss : number of the loss, such as BINARY
    rows : `LossRows`
    scale : 1/batch, in the precision of the chains
    deltas : pointer to (output, chunk)
    target_weights : pointer to (target, lane), the factors of the targets in the loss of a regression
    tail_weights : pointer to (target, lane); Student's law divides the derivative by 1 + tail_weight r²
    checks : pointer to a vector, to which what isn't finite is added, so that it becomes NaN
    """
    logits = rows.logits
    if chains_in(layout, logits) == 1:
        _clear_remainder(logits, rows.examples, rows.out, rows.chunk)
    lanes, group_size = lanes_of(logits), chains_in(layout, logits)
    logit_stride, target_stride = rows.chunk * group_size, rows.capacity * group_size
    check = load(checks, 0)
    for vector in range(vector_count(layout, rows.examples, logits)):
        logit, target = vector * lanes, rows.first * group_size + vector * lanes
        if loss == BINARY:
            check = _differentiate_binary(
                rows, logit, target, logit_stride, target_stride, scale, deltas, check
            )  # fmt: skip
        elif loss == CLASSES:
            check = _differentiate_classes(rows, logit, target, logit_stride, scale, deltas, check)
        elif loss == COUNTS:
            check = _differentiate_counts(
                rows, logit, target, logit_stride, target_stride, scale, deltas, check
            )  # fmt: skip
        elif loss == VARYING:
            check = _differentiate_varying(
                rows, logit, target, logit_stride, target_stride, scale, deltas, check
            )  # fmt: skip
        else:
            for k in range(rows.out):
                z = load(logits, logit + k * logit_stride)
                y = load(rows.targets, target + k * target_stride)
                check = _add_check(check, _add_half_square(z, y, zero(logits)))
                if loss == STUDENT:
                    tail_weight = _load_factor(layout, tail_weights, k * lanes)
                    derivative = _student_derivative(z, y, tail_weight, scale)
                else:
                    derivative = _scaled_difference(y, z, scale)
                weight = _load_factor(layout, target_weights, k * lanes)
                store(deltas, logit + k * logit_stride, derivative * weight)
    store(checks, 0, check)


@compiled(apart=True)
def multiply_by_weights(layout, weights, start, values, chunk, examples, out):
    """Multiply values (output, chunk) in place by the weights of the examples, from weights[start] on."""
    lanes, group_size = lanes_of(values), chains_in(layout, values)
    for vector in range(vector_count(layout, examples, values)):
        weight = load(weights, start * group_size + vector * lanes)
        for k in range(out):
            index = vector * lanes + k * chunk * group_size
            store(values, index, load(values, index) * weight)


@compiled
def _classify(rows, logit, target, logit_stride, losses, is_right):
    """Write the cross entropy of a vector of examples, and 1 or 0 for whether the class is right."""
    label = load(rows.targets, target)
    largest = load(rows.logits, logit)
    best_class = zero(rows.logits)
    for k in range(1, rows.out):
        z = load(rows.logits, logit + k * logit_stride)
        best_class = _better_class(best_class, largest, z, k)
        largest = _maximum(largest, z)
    normaliser, z_label = zero(rows.logits), zero(rows.logits)
    for k in range(rows.out):
        z = load(rows.logits, logit + k * logit_stride)
        normaliser = normaliser + _exp(z - largest)
        z_label = _select_label(label, k, z, z_label)
    store(losses, logit, _class_loss(normaliser, z_label, largest))
    store(is_right, logit, _is_equal(best_class, label))


@compiled(apart=True)
def compute_losses(layout, loss, rows, losses, is_right):
    """Write the loss of every example to `losses`, and 1 or 0 for whether its class is right to `is_right`.

    `rows` are `LossRows`. The results are (example) for a chain alone and (example, lane) for a group. In a
    regression `is_right` is left as it is.
    """
    logits = rows.logits
    lanes, group_size = lanes_of(logits), chains_in(layout, logits)
    logit_stride, target_stride = rows.chunk * group_size, rows.capacity * group_size
    targets = rows.out // 2 if loss == VARYING else rows.out
    for vector in range(vector_count(layout, rows.examples, logits)):
        logit, target = vector * lanes, rows.first * group_size + vector * lanes
        if loss == CLASSES:
            _classify(rows, logit, target, logit_stride, losses, is_right)
            continue
        total = zero(logits)
        for k in range(targets):
            z = load(logits, logit + k * logit_stride)
            y = load(rows.targets, target + k * target_stride)
            if loss == BINARY:
                total = total + _binary_loss(z, y)
                if k == 0:
                    store(is_right, logit, _is_sign_right(z, y))
            elif loss == COUNTS:
                total = _add_count_loss(z, y, total)
            elif loss == VARYING:
                v = load(logits, logit + (targets + k) * logit_stride)
                total = _add_varying_loss(z, v, y, total)
            else:
                total = _add_half_square(z, y, total)
        store(losses, logit, total)


@traced
def _better_class(best_class, largest, z, k):
    """Return class k in the lanes where its logit z is above the largest, and the best class elsewhere."""
    return select(z > largest, k.convert(best_class.dtype).splat(best_class.lanes), best_class)


@traced
def _is_equal(a, b):
    """Return 1 in the lanes where a equals b, and 0 in the others."""
    return select(a.compare("==", b), a.constant(1.0), 0.0)


@compiled(apart=True)
def decode_logits(layout, loss, logits, chunk, examples, out):
    """Replace logits (output, chunk) in place by predictions.

    These are the probability of class 1 or of each class, the values of a regression, rates of counts, or
    values and then their variances.
    """
    lanes, stride = lanes_of(logits), chunk * chains_in(layout, logits)
    for vector in range(vector_count(layout, examples, logits)):
        start = vector * lanes
        if loss == BINARY:
            for k in range(out):
                store(logits, start + k * stride, _probability(load(logits, start + k * stride)))
        elif loss == CLASSES:
            normaliser = _softmax_terms(logits, logits, start, stride, out)
            for k in range(out):
                store(logits, start + k * stride, load(logits, start + k * stride) / normaliser)
        elif loss in (COUNTS, VARYING):
            for k in range(out // 2 if loss == VARYING else 0, out):
                store(logits, start + k * stride, _rate(load(logits, start + k * stride)))
