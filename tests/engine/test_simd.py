"""Vectors are what NumPy says, lane by lane: nothing is fused, reordered or flushed unless it is written."""

import ctypes
import mmap
import operator
import os
from fractions import Fraction

import numba
import numpy as np
import pytest
from numba import types

import heatbath as hb
from heatbath.engine import simd
from heatbath.engine.batches import tabulate
from heatbath.engine.compile import compiled
from heatbath.engine.dense_shape import Shape
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.program import compile_program
from heatbath.engine.simd import (
    cast_like,
    flush_denormals,
    fma,
    lanes_of,
    load,
    null_pointer,
    offset_pointer,
    pointer_to,
    restore_denormals,
    select,
    splat,
    sqrt,
    store,
    sum_lanes,
    traced,
)
from tests.engine.probes import layouts
from tests.optional import optional

torch = optional("torch")
ht = optional("heatbath.torch")

KINDS = [np.float32, np.float64]
WHOLE = {np.float32: np.int32, np.float64: np.int64}
NATIVE = {np.float32: types.float32, np.float64: types.float64, np.int32: types.int32, np.int64: types.int64}
KNOWN = {}


def apply_lanes(function, *inputs, results):
    """Return the results of a function of vectors on arrays, compiled as the engine is."""
    if function not in KNOWN:

        @traced
        def step(arrays, made, at):
            values = function(*(array.load(at) for array in arrays))
            for array, value in zip(made, values if isinstance(values, tuple) else (values,), strict=True):
                array.store(at, value)

        @compiled
        def loop(arrays, made):
            for at in range(0, arrays[0].shape[0], lanes_of(arrays[0])):
                step(arrays, made, at)

        KNOWN[function] = numba.njit(lambda arrays, made: loop(arrays, made))
    size = len(inputs[0])
    count = -(-size // 16) * 16
    arrays = tuple(np.pad(array, (0, count - size)) for array in inputs)
    made = tuple(np.zeros(count, kind) for kind in results)
    KNOWN[function](arrays, made)
    return tuple(array[:size] for array in made)


def numbers_of_every_size(kind, count=4096, seed=1):
    """Return numbers of every size and special values; half of them have random bits."""
    form, rng = np.finfo(kind), np.random.default_rng(seed)
    strange = [
        0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, form.tiny, -form.tiny, form.max, -form.max, form.eps,
        form.smallest_subnormal, 0.5, 3.0,
    ]  # fmt: skip
    words = rng.integers(0, 2 ** (8 * form.dtype.itemsize), count // 2, dtype=f"u{form.dtype.itemsize}")
    usual = rng.standard_normal(count // 2 - len(strange))
    made = np.concatenate([np.array(strange, kind), words.view(kind), usual.astype(kind)])
    return rng.permutation(made)


def assert_same(made, expected):
    """Check that bits are equal, with NaN where it is expected."""
    assert made.dtype == expected.dtype
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(made), ~there)
    whole = f"u{made.dtype.itemsize}"
    np.testing.assert_array_equal(made[there].view(whole), expected[there].view(whole))


def as_numbers(mask, like):
    """Return a mask as 1 and 0."""
    return select(mask, like.constant(1), 0)


# Arithmetic


def _arithmetic(x, y):
    return x + y, x - y, x * y, x / y, -x, sqrt(x), x * 3.0, x + 1.0, x + 0.0, (x + 1.0) / y, (x - 1.0) / y


@pytest.mark.parametrize("kind", KINDS)
def test_arithmetic_is_that_of_numpy_to_the_bit(kind):
    x, y = numbers_of_every_size(kind), numbers_of_every_size(kind, seed=2)
    with np.errstate(all="ignore"):
        expected = [x + y, x - y, x * y, x / y, -x, np.sqrt(x), x * kind(3), x + kind(1), x + kind(0)]
        expected += [(x + kind(1)) / y, (x - kind(1)) / y]
    for made, right in zip(apply_lanes(_arithmetic, x, y, results=[kind] * 11), expected, strict=True):
        assert_same(made, right)


def _fused(a, b, c):
    return fma(a, b, c), a * b + c, (a + b) - a, a - a * b


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_is_rounded_before_a_sum_unless_fma_is_written(kind):
    eps = np.finfo(kind).eps
    a, b, c = (np.full(16, value, kind) for value in (1 + eps, 1 - eps, -1))
    once, twice, _, subtracted = apply_lanes(_fused, a, b, c, results=[kind] * 4)
    assert (once == -(eps**2)).all()
    assert (twice == 0).all()
    assert (subtracted == a - a * b).all()
    assert (a - a * b != eps + eps**2).all()


@pytest.mark.parametrize("kind", KINDS)
def test_fma_is_exact_where_it_can_be(kind):
    """The error of a product is a number of the format."""
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 1024)).astype(kind)
    product = a * b
    (error, *_) = apply_lanes(_fused, a, b, -product, results=[kind] * 4)
    values = [[Fraction(float(number)) for number in array] for array in (a, b, product)]
    assert error.tolist() == [float(x * y - z) for x, y, z in zip(*values, strict=True)]
    assert (error != 0).mean() > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_a_sum_is_not_rewritten(kind):
    big = np.full(16, 2 / np.finfo(kind).eps, kind)
    one = np.ones(16, kind)
    (_, _, left, _) = apply_lanes(_fused, big, one / 2, one, results=[kind] * 4)
    assert (left == 0).all()


@compiled
def _sum_in_a_loop(x, made):
    L = lanes_of(x)
    sums = load(x, 0)
    for at in range(L, x.shape[0], L):
        sums = sums + load(x, at) * load(x, at)
    store(made, 0, sums)


_sum_in_order = numba.njit(lambda x, made: _sum_in_a_loop(x, made))


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_adds_one_vector_after_the_other(kind):
    x = np.random.default_rng(1).standard_normal((1000, simd.lane_count(kind))).astype(kind)
    made, expected = np.zeros(x.shape[1], kind), x[0].copy()
    for row in x[1:]:
        expected += row * row
    _sum_in_order(x.ravel(), made)
    assert_same(made, expected)


def _total(x):
    return sum_lanes(x).splat(x.lanes)


@pytest.mark.parametrize("kind", KINDS)
def test_a_total_adds_halves_to_halves(kind):
    x = (np.random.default_rng(1).standard_normal((64, simd.lane_count(kind))) * 10.0**5).astype(kind)
    rows = x
    while rows.shape[1] > 1:
        half = rows.shape[1] // 2
        rows = rows[:, :half] + rows[:, half:]
    (made,) = apply_lanes(_total, x.ravel(), results=[kind])
    assert_same(made.reshape(x.shape), np.tile(rows, x.shape[1]))
    assert (rows[:, 0] != np.cumsum(x, axis=1, dtype=kind)[:, -1]).any()


# Comparisons


def _compared(x, y):
    number, other = x, y.constant(0.0)
    return tuple(as_numbers(sign(number, y), x) for sign in SIGNS) + tuple(
        as_numbers(sign(x, other), x) for sign in SIGNS
    )


SIGNS = operator.lt, operator.le, operator.gt, operator.ge


@pytest.mark.parametrize("kind", KINDS)
def test_comparisons_are_those_of_numpy_and_never_true_of_nan(kind):
    x, y = numbers_of_every_size(kind), numbers_of_every_size(kind, seed=2)
    y[::7] = x[::7]
    x[::11] = np.nan
    made = apply_lanes(_compared, x, y, results=[kind] * 8)
    for other, part in ((y, made[:4]), (kind(0), made[4:])):
        for sign, one in zip(SIGNS, part, strict=True):
            np.testing.assert_array_equal(one == 1, sign(x, other))
            assert not one[np.isnan(x)].any()


def _chosen(x, y):
    low, high = x < 0.0, y > 1.0
    return (
        select(low, x, y), select(low, x, 7.0), as_numbers(low & high, x), as_numbers(low | high, x),
        as_numbers(low.equals(high), x), as_numbers(low.any().splat(x.lanes), x),
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_choice_takes_what_the_mask_says_as_it_is(kind):
    x, y = numbers_of_every_size(kind), numbers_of_every_size(kind, seed=2)
    x[: simd.lane_count(kind)] = 1.0
    low, high = x < 0, y > 1
    made = apply_lanes(_chosen, x, y, results=[kind] * 6)
    assert_same(made[0], np.where(low, x, y))
    assert_same(made[1], np.where(low, x, kind(7)))
    somewhere = np.repeat(low.reshape(-1, simd.lane_count(kind)).any(1), simd.lane_count(kind))
    for one, right in zip(made[2:], (low & high, low | high, low == high, somewhere), strict=True):
        np.testing.assert_array_equal(one, right)
    assert not somewhere.all()


def _masks(x):
    mask = x > 0.0
    number = mask.mask_to_integer(types.uint16)
    again = number.integer_to_mask(x.lanes)
    same = again.equals(mask)
    return select(same, number.convert(x.dtype).splat(x.lanes), -1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_is_a_number_whose_lowest_bit_is_the_first_lane(kind):
    x = numbers_of_every_size(kind)
    bits = (x > 0).reshape(-1, simd.lane_count(kind))
    (made,) = apply_lanes(_masks, x, results=[kind])
    expected = bits @ (1 << np.arange(bits.shape[1]))
    np.testing.assert_array_equal(made.reshape(bits.shape), np.tile(expected[:, None], bits.shape[1]))


# Places


def _parts(x, y):
    count = x.lanes
    back = x.shuffle(range(count - 1, -1, -1))
    mixed = x.shuffle([2 * i for i in range(count)], y)
    return back, mixed, x.lane(count - 1).splat(count), x.constant(range(count))


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_lanes_of_one_vector_and_then_of_another(kind):
    x, y = numbers_of_every_size(kind), numbers_of_every_size(kind, seed=2)
    L = simd.lane_count(kind)
    rows, others = x.reshape(-1, L), y.reshape(-1, L)
    back, mixed, last, counted = apply_lanes(_parts, x, y, results=[kind] * 4)
    assert_same(back.reshape(rows.shape), rows[:, ::-1].copy())
    assert_same(mixed.reshape(rows.shape), np.concatenate([rows, others], axis=1)[:, ::2].copy())
    assert_same(last.reshape(rows.shape), np.repeat(rows[:, -1:], L, axis=1))
    np.testing.assert_array_equal(counted, np.tile(np.arange(L), len(rows)))


@numba.njit
def _moved(x, y, at, to):
    store(y, to, load(x, at))


@numba.njit
def _moved_by_pointer(x, y, at, to):
    store(offset_pointer(pointer_to(y), to), 0, load(offset_pointer(pointer_to(x), at), 0))


@numba.njit
def _splatted(x, y):
    store(y, 0, splat(x[0]) + x[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("move", [_moved, _moved_by_pointer])
def test_vectors_begin_at_any_element_and_touch_no_other(kind, move):
    L = simd.lane_count(kind)
    x = np.arange(100, dtype=kind)
    for at, to in ((0, 0), (1, 3), (5, 1), (100 - L, 100 - L)):
        y = np.full(100, -1, kind)
        move(x, y, at, to)
        expected = np.full(100, -1, kind)
        expected[to : to + L] = x[at : at + L]
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_is_put_in_every_lane(kind):
    y = np.zeros(simd.lane_count(kind), kind)
    _splatted(np.array([1.5, 0.25], kind), y)
    assert (y == 1.75).all()
    assert simd.lane_count(kind) == 64 // np.dtype(kind).itemsize == simd.lane_count(NATIVE[kind])


@traced
def _copy_masked(x, y, count):
    wide = count.splat(x.lanes)
    mask = wide > wide.constant(range(x.lanes))
    y.store(0, x.load(0, mask), mask)


@traced
def _load_masked(x, y, count):
    wide = count.splat(x.lanes)
    y.store(0, x.load(0, wide > wide.constant(range(x.lanes))))


@numba.njit
def _run_masked(x, y, count, whole):
    if whole:
        _load_masked(pointer_to(x), pointer_to(y), count)
    else:
        _copy_masked(pointer_to(x), pointer_to(y), count)


def array_at_page_end(count, kind):
    """Return an array that ends where memory must not be touched; a read beyond it kills the process."""
    room = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    assert protect(address + mmap.PAGESIZE, mmap.PAGESIZE, 0) == 0
    numbers = np.frombuffer(room, kind, mmap.PAGESIZE // np.dtype(kind).itemsize)
    return numbers[len(numbers) - count :] if count else numbers[len(numbers) :]


pages = pytest.mark.skipif(os.name == "nt", reason="pages are protected in another way")


@pages
@pytest.mark.parametrize("kind", KINDS)
def test_masked_lanes_are_not_read_or_written_and_read_as_0(kind):
    L = simd.lane_count(kind)
    for count in range(1, L + 1):
        x, y = array_at_page_end(count, kind), array_at_page_end(count, kind)
        x[:] = np.arange(1, count + 1)
        _run_masked(x, y, count, False)
        np.testing.assert_array_equal(y, x)
        read = np.full(L, np.nan, kind)
        _run_masked(x, read, count, True)
        np.testing.assert_array_equal(read, np.concatenate([x, np.zeros(L - count)]))
        inside = np.full(2 * L, -1, kind)
        _run_masked(x, inside, count, False)
        np.testing.assert_array_equal(inside, np.concatenate([x, np.full(2 * L - count, -1)]))


# Other types


def _bits(x):
    whole = x.bitcast(types.int32 if x.dtype == types.float32 else types.int64)
    back = (whole + 1 - 1).bitcast(x.dtype)
    return whole, back, whole >> 3, whole << 3, whole & 0xFFFF, whole | 5, whole ^ 5


@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_those_of_the_format_and_shifts_keep_the_sign(kind):
    x = numbers_of_every_size(kind)
    integer = WHOLE[kind]
    made = apply_lanes(_bits, x, results=[integer, kind, *[integer] * 5])
    w = x.view(integer)
    np.testing.assert_array_equal(made[1].view(integer), w)
    for one, right in zip((made[0], *made[2:]), (w, w >> 3, w << 3, w & 0xFFFF, w | 5, w ^ 5), strict=True):
        np.testing.assert_array_equal(one, right)


def _converted(x):
    return (
        x.convert(types.int32),
        x.convert(types.int64),
        x.to_float64(),
        x.to_float64().convert(types.float32),
    )


def _from_words(word):
    return (
        word.convert(types.float64),
        word.convert(types.uint64),
        word >> 3,
        as_numbers(word > 0x80000000, word),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_conversions_go_to_the_nearest_number_and_to_whole_ones_towards_0(kind):
    x = (np.random.default_rng(1).standard_normal(4096) * 1e6).astype(kind)
    made = apply_lanes(_converted, x, results=[np.int32, np.int64, np.float64, np.float32])
    for one in made:
        np.testing.assert_array_equal(one, x.astype(one.dtype))
    assert (made[0] != np.floor(x)).any()


def test_words_have_no_sign():
    word = np.random.default_rng(1).integers(0, 2**32, 4096, dtype=np.uint32)
    real, wide, shifted, large = apply_lanes(
        _from_words, word, results=[np.float64, np.uint64, *[np.uint32] * 2]
    )
    np.testing.assert_array_equal(real, word)
    np.testing.assert_array_equal(wide, word)
    np.testing.assert_array_equal(shifted, word >> 3)
    np.testing.assert_array_equal(large, word > 2**31)


@numba.njit
def _rounded(like, value):
    return cast_like(pointer_to(like), value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_takes_the_precision_of_others(kind):
    assert _rounded(np.zeros(1, kind), 0.1) == float(kind(0.1))


# Functions


def _functions(x):
    return simd.exp(x), simd.log(x), simd.log1p(x), simd.tanh(x)


NAMES = "exp", "log", "log1p", "tanh"
# in units of eps times the value: measured 0.71, 0.68, 0.66, 1.3
BOUNDS = {"exp": 0.75, "log": 0.75, "log1p": 0.75, "tanh": 1.4}


def neighbours(values, kind, count=3):
    """Return numbers, and some representable ones on either side of each."""
    values = np.asarray(values, kind)
    found = [values]
    for side in (-np.inf, np.inf):
        near = values
        for _ in range(count):
            with np.errstate(all="ignore"):
                near = np.nextafter(near, kind(side))
            found.append(near)
    return np.concatenate(found)


def numbers_near_borders(kind):
    """Return numbers of every size and sign, with many in the usual range and around every border."""
    rng, form = np.random.default_rng(5), np.finfo(kind)
    n = np.arange(form.minexp - 60, form.maxexp + 60)
    low, high = np.log([form.tiny, form.max]).astype(np.float64)
    borders = [
        *(n + 0.5) * np.log(2.0), *n * np.log(2.0),
        *np.sqrt(0.5) * 2.0 ** np.arange(form.minexp + 2, form.maxexp - 2), *np.sqrt([0.5, 2.0]) - 1,
        0.625, -0.625, 1.0, -1.0, 2.0, low, high, low - 20, high + 20, 127.0, -127.0, 1023.0, -1023.0,
        1e-3, 0.5, -0.5, form.eps, -form.eps, form.eps / 2, 1 / form.eps, form.tiny, form.max, -form.max,
    ]  # fmt: skip
    borders = neighbours(borders, kind)
    whole = f"u{form.dtype.itemsize}"
    words = rng.integers(0, 2 ** (8 * form.dtype.itemsize), 100_000, dtype=whole).view(kind)
    usual = [rng.uniform(-1, 1, 50_000) * size for size in (1e-3, 1.0, 20.0, high)]
    usual.append(1.0 + rng.uniform(-1, 1, 50_000) * 0.5)
    made = np.concatenate([borders, words, *(one.astype(kind) for one in usual)])
    return made[np.isfinite(made) & (np.abs(made) >= form.tiny)]


def precise_values(name, x):
    """Return a function's values in 64 bits or more, with NaN where there is none."""
    if np.finfo(np.longdouble).nmant < 60 and x.dtype == np.float64:
        pytest.skip("needs a longdouble of 64 bits")
    with np.errstate(all="ignore"):
        return getattr(np, name)(x.astype(np.longdouble))


@pytest.mark.parametrize("kind", KINDS)
def test_functions_are_exact_to_their_bounds(kind):
    x, form = numbers_near_borders(kind), np.finfo(kind)
    for name, made in zip(NAMES, apply_lanes(_functions, x, results=[kind] * 4), strict=True):
        exact = precise_values(name, x)
        with np.errstate(over="ignore"):
            rounded = exact.astype(kind)
        there = np.isfinite(rounded) & (np.abs(rounded) >= form.tiny)
        assert there.mean() > 0.2
        error = np.abs(made[there] - exact[there]) / (form.eps * np.abs(exact[there]))
        assert error.max() < BOUNDS[name], (name, x[there][error.argmax()], float(error.max()))


@pytest.mark.parametrize("kind", KINDS)
def test_functions_overflow_vanish_and_have_no_value_where_they_should(kind):
    form = np.finfo(kind)
    x = np.concatenate([numbers_near_borders(kind), np.array([0.0, -0.0, np.inf, -np.inf, np.nan], kind)])
    for name, made in zip(NAMES, apply_lanes(_functions, x, results=[kind] * 4), strict=True):
        exact = precise_values(name, x)
        with np.errstate(over="ignore", under="ignore"):
            rounded = exact.astype(kind)
        np.testing.assert_array_equal(np.isnan(made), np.isnan(exact), err_msg=name)
        infinite = np.isinf(rounded)
        edge = np.abs(exact) < form.max * (1 + 2 * np.longdouble(form.eps))  # the last number may go over
        np.testing.assert_array_equal(made[infinite & ~edge], rounded[infinite & ~edge], err_msg=name)
        assert np.isfinite(made[np.isfinite(exact) & (np.abs(exact) < form.max * (1 - 2 * form.eps))]).all()
        tiny = np.abs(exact) < form.tiny
        off = np.abs(made[tiny] - exact[tiny])
        assert (off <= form.smallest_subnormal).all(), (name, x[tiny][off.argmax()])


@pytest.mark.parametrize("kind", KINDS)
def test_functions_of_0_1_and_infinity_are_exact(kind):
    x = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, -1.0, 100.0, -100.0], kind)
    exp, log, log1p, tanh = apply_lanes(_functions, x, results=[kind] * 4)
    inf, nan = np.inf, np.nan
    np.testing.assert_array_equal(exp[[0, 1, 3, 4]], [1, 1, inf, 0])
    np.testing.assert_array_equal(log[[0, 1, 2, 3, 4, 5]], [-inf, -inf, 0, inf, nan, nan])
    np.testing.assert_array_equal(log1p[[0, 1, 3, 4, 5, 7]], [0, 0, inf, nan, -inf, nan])
    np.testing.assert_array_equal(tanh[[0, 1, 3, 4, 6, 7]], [0, 0, 1, -1, 1, -1])


@pytest.mark.parametrize("kind", KINDS)
def test_log1p_and_tanh_of_small_numbers_are_the_numbers(kind):
    """Denormal ones, too: whether they are flushed is for others to say."""
    form = np.finfo(kind)
    x = neighbours([form.tiny, form.smallest_subnormal * 5, 1e-30, -1e-30, form.eps / 8, -form.tiny], kind)
    _, _, log1p, tanh = apply_lanes(_functions, x, results=[kind] * 4)
    np.testing.assert_array_equal(log1p, x)
    np.testing.assert_array_equal(tanh, x)


@pytest.mark.parametrize("kind", KINDS)
def test_tanh_is_odd_and_exp_log_and_tanh_hardly_ever_turn_back(kind):
    x = np.sort(np.abs(numbers_near_borders(kind)))
    exp, log, _, tanh = apply_lanes(_functions, x, results=[kind] * 4)
    *_, other = apply_lanes(_functions, -x, results=[kind] * 4)
    np.testing.assert_array_equal(tanh, -other)
    eps = np.finfo(kind).eps
    for made in (exp, log, tanh):
        finite = made[np.isfinite(made)]
        assert (np.diff(finite) >= -2 * eps * np.abs(finite[1:])).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_lane_does_not_depend_on_the_others(kind):
    """Each number in each lane, beside usual ones and beside NaN and infinity."""
    L = simd.lane_count(kind)
    few = numbers_of_every_size(kind, 128, seed=9)
    usual = apply_lanes(_functions, np.repeat(few, L), results=[kind] * 4)
    for lane in range(L):
        for rest in (0.5, np.nan, np.inf, -np.inf, np.finfo(kind).max):
            x = np.full((len(few), L), rest, kind)
            x[:, lane] = few
            for made, right in zip(
                apply_lanes(_functions, x.ravel(), results=[kind] * 4), usual, strict=True
            ):
                assert_same(made[lane::L].copy(), right[::L].copy())


# Denormal numbers


@compiled(apart=True)
def _multiply(x):
    for at in range(0, x.shape[0] // 2, lanes_of(x)):
        store(x, at, load(x, at) * load(x, at + x.shape[0] // 2))


@numba.njit
def _words_of_modes(x, bits, seen):
    before = flush_denormals()
    restore_denormals(before)
    restore_denormals(before ^ bits)  # another rounding mode, say
    mode = flush_denormals()
    seen[0] = before ^ bits
    seen[1] = mode
    seen[2] = flush_denormals()
    _multiply(x)
    restore_denormals(mode)
    seen[3] = flush_denormals()
    restore_denormals(before)
    seen[4] = flush_denormals()
    restore_denormals(before)
    seen[5] = before


x86 = pytest.mark.skipif(not simd._X86, reason="there is no such control word")
STICKY = 0x3F  # exceptions that have happened: arithmetic sets them


@x86
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [0, 0x2000, 0x4000, 0x6000, 0x8000, 0x40, 0x8040])
def test_denormals_are_flushed_and_the_mode_is_given_back_as_it_was(kind, bits):
    tiny, L = np.finfo(kind).tiny, simd.lane_count(kind)
    x = np.concatenate([np.full(L, tiny), np.full(L, 0.5)]).astype(kind)
    x[0], x[L] = tiny / 4, 2  # an operand
    x[1], x[L + 1] = 4 * tiny, 0.5
    seen = np.zeros(6, np.uint32)
    _words_of_modes(x, np.uint32(bits), seen)
    wanted, taken, inside, after, last, before = (int(word) & ~STICKY for word in seen)
    assert taken == after == wanted == before ^ bits
    assert inside == wanted | 0x8040
    assert last == before
    np.testing.assert_array_equal(x[:L], [0, 2 * tiny, *[0] * (L - 2)])


def denormals_are_numbers():
    """Return True if denormals are kept as numbers, in this thread and on torch's."""
    small = torch.full((2**20,), 1e-40)
    return (
        np.float32(1e-40) * np.float32(0.5) != 0
        and (np.full(100, 1e-310) * np.full(100, 0.5) != 0).all()
        and bool((small * 0.5 != 0).all())
        and 1e-310 * float(np.float64(0.5)) != 0
    )


@numba.njit
def _leave_flushed():
    return flush_denormals()


@numba.njit
def _set_mode(mode):
    restore_denormals(mode)


@x86
def test_a_mode_left_behind_would_be_seen():
    """The control: a mode that is left behind is seen."""
    assert denormals_are_numbers()  # torch's threads begin here, and not with the mode
    mode = _leave_flushed()
    try:
        seen = denormals_are_numbers()
    finally:
        _set_mode(mode)
    assert not seen
    assert denormals_are_numbers()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1.0, 1e30])
def test_the_engine_leaves_denormals_to_others_as_they_were_also_when_chains_diverge(kind, size, threads):
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((1, 20, 3)), rng.standard_normal((1, 20, 1))
    shape = Shape((3, 5, 1), 0, 2)
    program = compile_program(hb.Partition(hb.SGD(), 0.01 * size), {"one": (15, 5), "two": (5, 1)})
    for layout in layouts(kind):
        theta = rng.standard_normal((19, shape.parameters)).astype(kind)
        data = tabulate(X, Y, kind)
        engine = Ensemble(program, shape, theta, data, 5, threads=threads, layout=layout)
        engine.take_notes((0, 5), (True, True), data)
        engine.advance(20)
        assert (engine.chains.died >= 0).any() == (size > 1)
        assert denormals_are_numbers()


@pytest.mark.parametrize("size", [10, 300_000])
@pytest.mark.parametrize("value", [1.0, np.inf, np.nan, 1e-40])
def test_an_optimiser_leaves_denormals_to_others_as_they_were(size, value):
    for optimizer in (ht.Adam, ht.SGD, lambda p, h: ht.AdaptiveLangevin(p, h, 0.1, kinetic="mean")):
        parameter = torch.nn.Parameter(torch.ones(size))
        parameter.grad = torch.full((size,), value)
        chosen = optimizer([parameter], 0.1)
        for _ in range(3):
            chosen.step()
        assert denormals_are_numbers()


# What is refused


def test_numbers_of_two_types_do_not_meet():
    @numba.njit
    def mixed(x, y):
        store(x, 0, load(x, 0) + load(y, 0))

    with pytest.raises(numba.TypingError):
        mixed(np.zeros(16, np.float32), np.zeros(16))


def test_a_pointer_to_nothing_has_a_type_and_no_place():
    @numba.njit
    def lanes_of_nothing():
        return lanes_of(null_pointer(np.float32)), lanes_of(null_pointer(np.float64))

    assert lanes_of_nothing() == (16, 8)
