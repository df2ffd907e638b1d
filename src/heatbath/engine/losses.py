"""Losses from logits, compiled, for vectors of data (alone) or of chains (in a group).

Logits, targets and derivatives are (output, datum): so alone, too, a vector holds as many data as it has
lanes.
"""

from __future__ import annotations

from heatbath.datasets.tasks import LARGEST, STUDENT, TASKS, VARYING
from heatbath.engine import simd
from heatbath.engine.compile import compiled
from heatbath.engine.layouts import chains_in, each, vectors
from heatbath.engine.simd import choose, exp, fma, lanes_of, load, log, log1p, store, traced, zero

BINARY, CLASSES, COUNTS = (TASKS[task].number for task in ("binary", "classes", "counts"))


def _probability(z: simd.Traced) -> simd.Traced:
    """1/(1 + exp(-z)), from the side on which nothing overflows."""
    tail = exp(-z.call("fabs"))
    return choose(z >= 0.0, tail.constant(1.0), tail) / (tail + 1.0)


probability = traced(_probability)
_exp = traced(exp)


@traced
def _binary_delta(z, y, scale):
    return (y - _probability(z)) * scale


@traced
def _binary_loss(z, y):
    softened = log1p(exp(-z.call("fabs")))
    return fma(-z, y, choose(z > 0.0, z, 0.0)) + softened


@traced
def _class_loss(normaliser, chosen, largest):
    return log(normaliser) - (chosen - largest)


@traced
def _larger(a, b):
    return choose(b > a, b, a)


@traced
def _is(label, k, yes, no):
    """`yes` where the label is k."""
    return choose(label.compare("==", k.to(label.dtype)), yes, no)


@traced
def _one_if(label, k):
    return choose(label.compare("==", k.to(label.dtype)), label.constant(1.0), 0.0)


@traced
def _check(check, z):
    """Stays 0 as long as everything is finite."""
    return fma(z, 0.0, check)


@traced
def _divided(a, b, scale):
    return a / b * scale


@traced
def _difference(y, z, scale):
    return (y - z) * scale


@traced
def _right(z, y):
    """1 where the sign of the logit says the class."""
    yes = (z > 0.0).equal(y > 0.5)
    return choose(yes, z.constant(1.0), 0.0)


@traced
def _share(layout, shares, at):
    return each(layout, shares, at)


@traced
def _half_square(z, y, sum_):
    d = z - y
    return fma(d * 0.5, d, sum_)


@traced
def _count_loss(z, y, sum_):
    return sum_ + fma(-z, y, exp(z))


@traced
def _varying_loss(z, v, y, sum_):
    d = z - y
    return fma(fma(exp(-v) * d, d, v), 0.5, sum_)


@traced
def _varying_delta(z, v, y, scale):
    return exp(-v) * (y - z) * scale


@traced
def _varying_log_delta(z, v, y, scale):
    d = z - y
    return (exp(-v) * d * d - 1.0) * 0.5 * scale


@traced
def _student_delta(z, y, tail, scale):
    r = y - z
    return r / fma(tail * r, r, 1.0) * scale


@traced
def _rate(z):
    return exp(choose(z > LARGEST, z.constant(LARGEST), z))


@compiled
def _exponentials(logits, made, at, stride, out):
    """exp(z - the largest z) of every output, into `made`, and their sum."""
    largest = load(logits, at)
    for k in range(1, out):
        largest = _larger(largest, load(logits, at + k * stride))
    normaliser = zero(logits)
    for k in range(out):
        e = _exp(load(logits, at + k * stride) - largest)
        store(made, at + k * stride, e)
        normaliser = normaliser + e
    return normaliser


@compiled
def _clear(layout, logits, size, out, chunk):
    """Zeros in the lanes after the last datum of one alone: what stood there may not be finite."""
    lanes = lanes_of(logits)
    for k in range(out):
        for at in range(k * chunk + size, k * chunk + -(-size // lanes) * lanes):
            logits[at] = 0


@compiled(apart=True)
def derivatives(
    layout, loss, logits, targets, deltas, chunk, capacity, first, size, out, scale, shares, tails, checks
):
    """The negative derivatives of the mean loss by the logits, of data from `first` on.

    `scale` is 1/batch; in a regression the loss of target k has the factor shares[k] (target, lane), and
    where its noise has Student's law the derivative the divisor 1 + tails[k] r².

    What is not finite is added up in `checks`, which then is NaN.
    """
    if chains_in(layout, logits) == 1:
        _clear(layout, logits, size, out, chunk)
    lanes, lane = lanes_of(logits), chains_in(layout, logits)
    check = load(checks, 0)
    for v in range(vectors(layout, size, logits)):
        at, target = v * lanes, first * lane + v * lanes
        if loss == BINARY:
            for k in range(out):
                z = load(logits, at + k * chunk * lane)
                y = load(targets, target + k * capacity * lane)
                check = _check(check, z)
                store(deltas, at + k * chunk * lane, _binary_delta(z, y, scale))
        elif loss == CLASSES:
            label = load(targets, target)
            for k in range(out):
                check = _check(check, load(logits, at + k * chunk * lane))
            normaliser = _exponentials(logits, deltas, at, chunk * lane, out)
            for k in range(out):
                e = load(deltas, at + k * chunk * lane)
                share = _divided(e, normaliser, scale)
                wanted = _one_if(label, k) * scale
                store(deltas, at + k * chunk * lane, wanted - share)
        elif loss == COUNTS:
            for k in range(out):
                z = load(logits, at + k * chunk * lane)
                y = load(targets, target + k * capacity * lane)
                check = _check(check, _count_loss(z, y, zero(logits)))
                store(deltas, at + k * chunk * lane, _difference(y, _exp(z), scale))
        elif loss == VARYING:
            half = out // 2
            for k in range(half):
                z = load(logits, at + k * chunk * lane)
                v = load(logits, at + (half + k) * chunk * lane)
                y = load(targets, target + k * capacity * lane)
                check = _check(check, _varying_loss(z, v, y, zero(logits)))
                store(deltas, at + k * chunk * lane, _varying_delta(z, v, y, scale))
                store(deltas, at + (half + k) * chunk * lane, _varying_log_delta(z, v, y, scale))
        elif loss == STUDENT:
            for k in range(out):
                z = load(logits, at + k * chunk * lane)
                y = load(targets, target + k * capacity * lane)
                check = _check(check, _half_square(z, y, zero(logits)))
                share, tail = _share(layout, shares, k * lanes), _share(layout, tails, k * lanes)
                store(deltas, at + k * chunk * lane, _student_delta(z, y, tail, scale) * share)
        else:
            for k in range(out):
                z = load(logits, at + k * chunk * lane)
                y = load(targets, target + k * capacity * lane)
                check = _check(check, _half_square(z, y, zero(logits)))
                share = _share(layout, shares, k * lanes)
                store(deltas, at + k * chunk * lane, _difference(y, z, scale) * share)
    store(checks, 0, check)


@compiled(apart=True)
def weigh(layout, weights, at, values, chunk, size, out):
    """Multiply values (output, datum) by the weights of the data, from weights[at] on."""
    lanes, lane = lanes_of(values), chains_in(layout, values)
    for v in range(vectors(layout, size, values)):
        weight = load(weights, at * lane + v * lanes)
        for k in range(out):
            to = v * lanes + k * chunk * lane
            store(values, to, load(values, to) * weight)


@compiled(apart=True)
def values(layout, loss, logits, targets, chunk, capacity, first, size, out, made, right):
    """The loss of every datum in `made`, and whether it is classified rightly, 1 or 0, in `right`."""
    lanes, lane = lanes_of(logits), chains_in(layout, logits)
    for v in range(vectors(layout, size, logits)):
        at, target = v * lanes, first * lane + v * lanes
        if loss == CLASSES:
            label = load(targets, target)
            largest = load(logits, at)
            best = zero(logits)
            for k in range(1, out):
                z = load(logits, at + k * chunk * lane)
                best = _best(best, largest, z, k)
                largest = _larger(largest, z)
            normaliser, chosen = zero(logits), zero(logits)
            for k in range(out):
                z = load(logits, at + k * chunk * lane)
                normaliser = normaliser + _exp(z - largest)
                chosen = _is(label, k, z, chosen)
            store(made, at, _class_loss(normaliser, chosen, largest))
            store(right, at, _same(best, label))
            continue
        sum_ = zero(logits)
        terms = out // 2 if loss == VARYING else out
        for k in range(terms):
            z = load(logits, at + k * chunk * lane)
            y = load(targets, target + k * capacity * lane)
            if loss == BINARY:
                sum_ = sum_ + _binary_loss(z, y)
                if k == 0:
                    store(right, at, _right(z, y))
            elif loss == COUNTS:
                sum_ = _count_loss(z, y, sum_)
            elif loss == VARYING:
                sum_ = _varying_loss(z, load(logits, at + (terms + k) * chunk * lane), y, sum_)
            else:
                sum_ = _half_square(z, y, sum_)
        store(made, at, sum_)


@traced
def _best(best, largest, z, k):
    return choose(z > largest, k.to(best.dtype).splat(best.count), best)


@traced
def _same(a, b):
    return choose(a.compare("==", b), a.constant(1.0), 0.0)


@compiled(apart=True)
def predictions(layout, loss, logits, chunk, size, out):
    """Turn logits into what they say: the probability of class 1, of each class, the values themselves,
    rates, or values and then their variances."""
    lanes, lane = lanes_of(logits), chains_in(layout, logits)
    for v in range(vectors(layout, size, logits)):
        at = v * lanes
        if loss == BINARY:
            for k in range(out):
                store(logits, at + k * chunk * lane, probability(load(logits, at + k * chunk * lane)))
        elif loss == CLASSES:
            normaliser = _exponentials(logits, logits, at, chunk * lane, out)
            for k in range(out):
                store(logits, at + k * chunk * lane, load(logits, at + k * chunk * lane) / normaliser)
        elif loss in (COUNTS, VARYING):
            for k in range(out // 2 if loss == VARYING else 0, out):
                store(logits, at + k * chunk * lane, _rate(load(logits, at + k * chunk * lane)))
