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
from heatbath.engine.layouts import chains_in, load_chains, round_up, vector_count
from heatbath.engine.simd import (
    Pointer,
    exp,
    fma,
    lanes_of,
    load,
    log,
    log1p,
    offset_pointer,
    select,
    store,
    traced,
    zero,
)

BINARY, CLASSES, COUNTS = (TASKS[task].number for task in ("binary", "classes", "counts"))


class LossRows(NamedTuple):
    """Pointers to examples: logits (output, chunk) from 0 on, targets (column, capacity) from `first` on.

    `chunk` and `capacity` are the strides of outputs and columns in examples. There are `examples` examples
    with `out` logits each.
    """

    logits: Pointer
    targets: Pointer
    chunk: int
    capacity: int
    first: int
    examples: int
    out: int


class ExampleVector(NamedTuple):
    """A vector of examples: pointers to the logits, targets and results of its first output.

    The strides lead to those of the next output; results have the stride of logits.
    """

    logits: Pointer
    targets: Pointer
    results: Pointer
    out: int
    logit_stride: int
    target_stride: int


def _sigmoid(z: simd.Traced) -> simd.Traced:
    """Compute 1/(1 + exp(-z)), from the side on which nothing overflows."""
    tail = exp(-z.intrinsic("fabs"))
    return select(z >= 0.0, tail.constant(1.0), tail) / (tail + 1.0)


_probability = traced(_sigmoid)
_exp = traced(exp)
_load_factor = traced(load_chains)


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
    """Return the larger of a and b in each lane; a where one of them is NaN."""
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
    """Return scale a/b."""
    return a / b * scale


@traced
def _scaled_difference(y, z, scale):
    """Return scale (y - z)."""
    return (y - z) * scale


@traced
def _is_sign_right(z, y):
    """Return 1 where the sign of the logit z is that of the class y, and 0 elsewhere."""
    is_right = (z > 0.0).equals(y > 0.5)
    return select(is_right, z.constant(1.0), 0.0)


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
def _vector_of_examples(layout, rows, number, results):
    """Return the `ExampleVector` of some number among the vectors of `rows`, with pointers to its results."""
    group_size = chains_in(layout, rows.logits)
    start = number * lanes_of(rows.logits)
    return ExampleVector(
        logits=offset_pointer(rows.logits, start),
        targets=offset_pointer(rows.targets, rows.first * group_size + start),
        results=offset_pointer(results, start),
        out=rows.out,
        logit_stride=rows.chunk * group_size,
        target_stride=rows.capacity * group_size,
    )


@compiled
def _softmax_terms(logits, terms, stride, out):
    """Write exp(z - largest z) of every output to `terms`, and return their sum.

    `logits` and `terms` point to vectors for the first of `out` outputs, and `stride` leads to the next.
    """
    largest = load(logits, 0)
    for k in range(1, out):
        largest = _maximum(largest, load(logits, k * stride))

    normaliser = zero(logits)
    for k in range(out):
        term = _exp(load(logits, k * stride) - largest)
        store(terms, k * stride, term)
        normaliser = normaliser + term
    return normaliser


@compiled
def _clear_remainder(logits, examples, out, chunk):
    """Set the lanes after the last example of a chain alone to zero: what stood there may not be finite."""
    stop = round_up(examples, lanes_of(logits))
    for k in range(out):
        for i in range(examples, stop):
            logits[k * chunk + i] = 0


@compiled
def _differentiate_binary(vector, scale, check):
    """Write the derivatives of the binary cross entropy of a vector of examples; return the check.

    In this and the other `_differentiate_...`, `vector` is an `ExampleVector`, derivatives are those of
    -scale times the loss by the logits, and `check` becomes NaN where a logit or loss isn't finite.
    """
    for k in range(vector.out):
        z = load(vector.logits, k * vector.logit_stride)
        y = load(vector.targets, k * vector.target_stride)
        check = _add_check(check, z)
        store(vector.results, k * vector.logit_stride, _binary_derivative(z, y, scale))
    return check


@compiled
def _differentiate_classes(vector, scale, check):
    """Write the derivatives of the cross entropy of a vector of examples; return the check.

    The arguments are those of `_differentiate_binary`. The results first hold the terms of the softmax.
    """
    label = load(vector.targets, 0)
    for k in range(vector.out):
        check = _add_check(check, load(vector.logits, k * vector.logit_stride))
    normaliser = _softmax_terms(vector.logits, vector.results, vector.logit_stride, vector.out)
    for k in range(vector.out):
        term = load(vector.results, k * vector.logit_stride)
        probability = _scaled_ratio(term, normaliser, scale)
        store(vector.results, k * vector.logit_stride, _is_label(label, k) * scale - probability)
    return check


@compiled
def _differentiate_counts(vector, scale, check):
    """Write the derivatives of the Poisson loss of a vector of examples; return the check.

    The arguments are those of `_differentiate_binary`.
    """
    for k in range(vector.out):
        z = load(vector.logits, k * vector.logit_stride)
        y = load(vector.targets, k * vector.target_stride)
        check = _add_check(check, _add_count_loss(z, y, zero(vector.logits)))
        store(vector.results, k * vector.logit_stride, _scaled_difference(y, _exp(z), scale))
    return check


@compiled
def _differentiate_varying(vector, scale, check):
    """Write the derivatives of a Gaussian loss whose log variances are outputs, too; return the check.

    The arguments are those of `_differentiate_binary`. The log variances are the second half of the outputs.
    """
    half = vector.out // 2
    for k in range(half):
        value_offset, variance_offset = k * vector.logit_stride, (half + k) * vector.logit_stride
        z = load(vector.logits, value_offset)
        v = load(vector.logits, variance_offset)
        y = load(vector.targets, k * vector.target_stride)
        check = _add_check(check, _add_varying_loss(z, v, y, zero(vector.logits)))
        store(vector.results, value_offset, _varying_derivative(z, v, y, scale))
        store(vector.results, variance_offset, _varying_log_derivative(z, v, y, scale))
    return check


@compiled
def _differentiate_squares(layout, loss, vector, scale, target_weights, tail_weights, check):
    """Write the derivatives of a squared error, or of Student's loss, of a vector; return the check.

    `target_weights` and `tail_weights` are as in `differentiate_loss`, the others as in
    `_differentiate_binary`.
    """
    lanes = lanes_of(vector.logits)
    for k in range(vector.out):
        z = load(vector.logits, k * vector.logit_stride)
        y = load(vector.targets, k * vector.target_stride)
        check = _add_check(check, _add_half_square(z, y, zero(vector.logits)))
        if loss == STUDENT:
            tail_weight = _load_factor(layout, tail_weights, k * lanes)
            derivative = _student_derivative(z, y, tail_weight, scale)
        else:
            derivative = _scaled_difference(y, z, scale)
        weight = _load_factor(layout, target_weights, k * lanes)
        store(vector.results, k * vector.logit_stride, derivative * weight)
    return check


@compiled(apart=True)
def differentiate_loss(layout, loss, rows, scale, deltas, target_weights, tail_weights, checks):
    """Write the negative derivatives of the mean loss by the logits of some examples to `deltas`.

    Parameters
    ----------
    layout : Layout
    loss : int
        Number of the loss, such as BINARY.
    rows : LossRows
        The examples. For a chain alone, logits after the last example are set to 0.
    scale : 1/batch, in the precision of the chains
    deltas : pointer to (output, chunk)
    target_weights : pointer to (target, lane)
        Factors of the targets in the loss of a regression.
    tail_weights : pointer to (target, lane)
        Student's law divides the derivative by 1 + tail_weight r².
    checks : pointer to a vector
        Becomes NaN in lanes where a loss isn't finite.
    """
    if chains_in(layout, rows.logits) == 1:
        _clear_remainder(rows.logits, rows.examples, rows.out, rows.chunk)

    check = load(checks, 0)
    for number in range(vector_count(layout, rows.examples, rows.logits)):
        vector = _vector_of_examples(layout, rows, number, deltas)
        if loss == BINARY:
            check = _differentiate_binary(vector, scale, check)
        elif loss == CLASSES:
            check = _differentiate_classes(vector, scale, check)
        elif loss == COUNTS:
            check = _differentiate_counts(vector, scale, check)
        elif loss == VARYING:
            check = _differentiate_varying(vector, scale, check)
        else:  # a regression, perhaps with Student's law
            check = _differentiate_squares(layout, loss, vector, scale, target_weights, tail_weights, check)
    store(checks, 0, check)


@compiled(apart=True)
def multiply_by_weights(layout, weights, start, values, chunk, examples, out):
    """Multiply values (output, chunk) in place by the weights of the examples, from weights[start] on."""
    group_size = chains_in(layout, values)
    first_weight = start * group_size
    stride = chunk * group_size
    for number in range(vector_count(layout, examples, values)):
        position = number * lanes_of(values)
        weight = load(weights, first_weight + position)
        for k in range(out):
            index = k * stride + position
            store(values, index, load(values, index) * weight)


@compiled
def _classify(vector, is_right):
    """Write the cross entropy of an `ExampleVector`, and 1 or 0 to `is_right` for whether its class is right.

    The class with the largest logit is the prediction.
    """
    label = load(vector.targets, 0)
    largest = load(vector.logits, 0)
    best_class = zero(vector.logits)
    for k in range(1, vector.out):
        z = load(vector.logits, k * vector.logit_stride)
        best_class = _better_class(best_class, largest, z, k)
        largest = _maximum(largest, z)

    normaliser, z_label = zero(vector.logits), zero(vector.logits)
    for k in range(vector.out):
        z = load(vector.logits, k * vector.logit_stride)
        normaliser = normaliser + _exp(z - largest)
        z_label = _select_label(label, k, z, z_label)
    store(vector.results, 0, _class_loss(normaliser, z_label, largest))
    store(is_right, 0, _is_equal(best_class, label))


@compiled
def _sum_losses(loss, vector, is_right):
    """Return the losses of an `ExampleVector`, each a sum over the targets of an example.

    `loss` is the number of any loss but CLASSES. For BINARY, 1 or 0 is written to `is_right` for whether the
    class of the first target is right.
    """
    targets = vector.out // 2 if loss == VARYING else vector.out
    total = zero(vector.logits)
    for k in range(targets):
        z = load(vector.logits, k * vector.logit_stride)
        y = load(vector.targets, k * vector.target_stride)
        if loss == BINARY:
            total = total + _binary_loss(z, y)
            if k == 0:
                store(is_right, 0, _is_sign_right(z, y))
        elif loss == COUNTS:
            total = _add_count_loss(z, y, total)
        elif loss == VARYING:
            v = load(vector.logits, (targets + k) * vector.logit_stride)
            total = _add_varying_loss(z, v, y, total)
        else:  # a regression
            total = _add_half_square(z, y, total)
    return total


@compiled(apart=True)
def compute_losses(layout, loss, rows, losses, is_right):
    """Write the loss of every example to `losses`, and 1 or 0 for whether its class is right to `is_right`.

    Parameters
    ----------
    layout : Layout
    loss : int
        Number of the loss, such as BINARY.
    rows : LossRows
        The examples.
    losses, is_right : pointers to (example) for a chain alone, or (example, lane) for a group
        Where the results go. In a regression `is_right` is left as it is.
    """
    for number in range(vector_count(layout, rows.examples, rows.logits)):
        vector = _vector_of_examples(layout, rows, number, losses)
        right_of_vector = offset_pointer(is_right, number * lanes_of(rows.logits))
        if loss == CLASSES:
            _classify(vector, right_of_vector)
        else:
            store(vector.results, 0, _sum_losses(loss, vector, right_of_vector))


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
    """Replace logits in place by predictions.

    These are the probability of class 1 (BINARY) or of each class, the values of a regression, rates of
    counts, or values and then their variances (VARYING).

    Parameters
    ----------
    layout : Layout
    loss : int
        Number of the loss, such as BINARY.
    logits : pointer to (output, chunk)
    chunk, examples, out : int
        Stride of the outputs in examples, number of examples, number of outputs.
    """
    stride = chunk * chains_in(layout, logits)
    for number in range(vector_count(layout, examples, logits)):
        _decode_vector(loss, offset_pointer(logits, number * lanes_of(logits)), stride, out)


@compiled
def _decode_vector(loss, logits, stride, out):
    """Replace the logits of a vector of examples in place by predictions, as `decode_logits` does.

    `logits` points to the vector for the first of `out` outputs, and `stride` leads to the next.
    """
    if loss == BINARY:
        for k in range(out):
            store(logits, k * stride, _probability(load(logits, k * stride)))
    elif loss == CLASSES:
        normaliser = _softmax_terms(logits, logits, stride, out)
        for k in range(out):
            store(logits, k * stride, load(logits, k * stride) / normaliser)
    elif loss in (COUNTS, VARYING):
        first_exponent = out // 2 if loss == VARYING else 0  # a regression's values stay
        for k in range(first_exponent, out):
            store(logits, k * stride, _rate(load(logits, k * stride)))
