"""Vectors for compiled code: 16 numbers in float32 or 8 in float64, an instruction for all of them at once.

What a plain loop becomes is up to the compiler, which vectorises some loops over chains or units and not
others, and sums in an order of its own. Here every operation is said: `load`, `store`, `splat`, arithmetic,
`fma`, comparisons, `choose`, and `exp`, `log`, `log1p`, `tanh` as polynomials. Nothing is reordered or fused
unless it is written so; a number in a lane is the same whatever stands in the others, on any machine. A
vector is 64 bytes: where registers are shorter, LLVM takes several.

An operation is a Python function of `Traced` values that runs once, while code is generated, and leaves its
instructions there: @traced makes it callable in compiled code. Of this kind are the operations below, and any
straight piece of arithmetic elsewhere. Loops and branches belong to the compiled functions around them.
"""

from __future__ import annotations

import inspect
import math
import operator
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array

BYTES = 64
_KINDS: Any = (types.float32, types.float64, types.int32, types.uint32, types.int64, types.uint64)
_SHORT = {kind: f"{'f' if isinstance(kind, types.Float) else 'i'}{kind.bitwidth}" for kind in _KINDS}
_NATIVE = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


def lanes(dtype: Any) -> int:
    """How many numbers of a type, of NumPy or Numba, a vector has."""
    return BYTES // np.dtype(str(dtype) if isinstance(dtype, types.Type) else dtype).itemsize


class Vector(types.Type):
    """The type of a vector in compiled code."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype, self.count = dtype, count
        super().__init__(f"vector({dtype}, {count})")


class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(
            manager, kind, ir.VectorType(manager.lookup(kind.dtype).get_value_type(), kind.count)
        )


register_model(Vector)(_Model)


class Traced:
    """A number or a vector while code is generated: what is done to it becomes instructions.

    Of a number and a vector the number is meant for every lane, and Python numbers are constants.
    """

    def __init__(self, builder: Any, value: Any, kind: Any) -> None:
        self.builder, self.value, self.kind = builder, value, kind

    @property
    def dtype(self) -> Any:
        """The type of its numbers."""
        return self.kind.dtype if isinstance(self.kind, Vector) else self.kind

    @property
    def count(self) -> int:
        """How many lanes; 0 for a number."""
        return self.kind.count if isinstance(self.kind, Vector) else 0

    def like(self, value: Any, dtype: Any = None) -> Traced:
        """An LLVM value with as many lanes."""
        dtype = self.dtype if dtype is None else dtype
        return Traced(self.builder, value, Vector(dtype, self.count) if self.count else dtype)

    def constant(self, number: float | Sequence[float]) -> Traced:
        """A constant of this type, in all lanes, or one for each."""
        if self.count:
            number = [number] * self.count if isinstance(number, (int, float)) else list(number)
        return self.like(ir.Constant(self.value.type, number))

    def lane(self, place: int) -> Traced:
        """The number in a lane."""
        value = self.builder.extract_element(self.value, ir.IntType(32)(place))
        return Traced(self.builder, value, self.dtype)

    def part(self, places: Sequence[int], other: Traced | None = None) -> Traced:
        """The lanes at these places, of itself and then of another."""
        second = ir.Constant(self.value.type, ir.Undefined) if other is None else other.value
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(places)), list(places))
        value = self.builder.shuffle_vector(self.value, second, mask)
        return Traced(self.builder, value, Vector(self.dtype, len(places)))

    def splat(self, count: int) -> Traced:
        """Itself in every lane."""
        if self.count or not count:
            return self
        vector = ir.VectorType(self.value.type, count)
        zero = ir.IntType(32)(0)
        first = self.builder.insert_element(ir.Constant(vector, ir.Undefined), self.value, zero)
        mask = ir.Constant(ir.VectorType(ir.IntType(32), count), [0] * count)
        value = self.builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)
        return Traced(self.builder, value, Vector(self.dtype, count))

    def both(self, other: Traced | float) -> tuple[Traced, Traced]:
        """Itself and another, in the same form."""
        if not isinstance(other, Traced):
            return self, self.constant(other)
        if self.dtype != other.dtype:
            raise TypeError(f"{self.kind} and {other.kind}")
        count = max(self.count, other.count)
        return self.splat(count), other.splat(count)

    def _binary(self, other: Traced | float, on_float: str | None, on_integer: str | None) -> Traced:
        left, right = self.both(other)
        name = on_float if isinstance(left.dtype, types.Float) else on_integer
        if name is None:
            raise TypeError(f"not for {left.kind}")
        return left.like(getattr(self.builder, name)(left.value, right.value))

    def __add__(self, other: Traced | float) -> Traced:
        return self._binary(other, "fadd", "add")

    def __sub__(self, other: Traced | float) -> Traced:
        return self._binary(other, "fsub", "sub")

    def __mul__(self, other: Traced | float) -> Traced:
        return self._binary(other, "fmul", "mul")

    def __truediv__(self, other: Traced | float) -> Traced:
        return self._binary(other, "fdiv", None)

    def __and__(self, other: Traced | float) -> Traced:
        return self._binary(other, None, "and_")

    def __or__(self, other: Traced | float) -> Traced:
        return self._binary(other, None, "or_")

    def __xor__(self, other: Traced | float) -> Traced:
        return self._binary(other, None, "xor")

    def __lshift__(self, other: Traced | float) -> Traced:
        return self._binary(other, None, "shl")

    def __rshift__(self, other: Traced | float) -> Traced:
        return self._binary(other, None, "ashr" if self.dtype.signed else "lshr")

    def __neg__(self) -> Traced:
        return self.like(self.builder.fneg(self.value))

    def compare(self, sign: str, other: Traced | float) -> Traced:
        """A mask: whether it is so; never of NaN."""
        left, right = self.both(other)
        if isinstance(left.dtype, types.Float):
            value = self.builder.fcmp_ordered(sign, left.value, right.value)
        else:
            compare = self.builder.icmp_signed if left.dtype.signed else self.builder.icmp_unsigned
            value = compare(sign, left.value, right.value)
        return left.like(value, types.boolean)

    def __lt__(self, other: Traced | float) -> Traced:
        return self.compare("<", other)

    def __le__(self, other: Traced | float) -> Traced:
        return self.compare("<=", other)

    def __gt__(self, other: Traced | float) -> Traced:
        return self.compare(">", other)

    def __ge__(self, other: Traced | float) -> Traced:
        return self.compare(">=", other)

    def above(self, other: Traced | float) -> Traced:
        """A mask: whether it is larger, or NaN, which so is not lost."""
        left, right = self.both(other)
        return left.like(self.builder.fcmp_unordered(">", left.value, right.value), types.boolean)

    def both_true(self, other: Traced) -> Traced:
        """Of two masks: where both are true."""
        return self.like(self.builder.and_(self.value, other.value))

    def either(self, other: Traced) -> Traced:
        """Of two masks: where one is true."""
        return self.like(self.builder.or_(self.value, other.value))

    def same(self, other: Traced) -> Traced:
        """Of whole numbers: where they are equal."""
        left, right = self.both(other)
        return left.like(self.builder.icmp_unsigned("==", left.value, right.value), types.boolean)

    def equal(self, other: Traced) -> Traced:
        """Of two masks: where they are equal."""
        return self.like(self.builder.icmp_signed("==", self.value, other.value))

    def call(self, name: str, *others: Traced | float) -> Traced:
        """An intrinsic function of LLVM."""
        values = [self, *(self.both(other)[1] for other in others)]
        count = max(value.count for value in values)
        values = [value.splat(count) for value in values]
        kind = values[0].value.type
        suffix = f"v{count}{_SHORT[self.dtype]}" if count else _SHORT[self.dtype]
        function = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(kind, [kind] * len(values)), f"llvm.{name}.{suffix}"
        )
        return values[0].like(self.builder.call(function, [value.value for value in values]))

    def any(self) -> Traced:
        """Whether a mask is true somewhere."""
        if not self.count:
            return self
        bits = self.builder.bitcast(self.value, ir.IntType(self.count))
        return Traced(self.builder, self.builder.icmp_unsigned("!=", bits, bits.type(0)), types.boolean)

    def as_number(self, dtype: Any) -> Traced:
        """The bits of a mask as a whole number."""
        value = self.builder.bitcast(self.value, ir.IntType(self.count))
        if dtype.bitwidth > self.count:
            value = self.builder.zext(value, ir.IntType(dtype.bitwidth))
        return Traced(self.builder, value, dtype)

    def as_mask(self, count: int) -> Traced:
        """The mask whose bits are those of a whole number."""
        value = self.value
        if self.dtype.bitwidth > count:
            value = self.builder.trunc(value, ir.IntType(count))
        value = self.builder.bitcast(value, ir.VectorType(ir.IntType(1), count))
        return Traced(self.builder, value, Vector(types.boolean, count))

    def to(self, dtype: Any) -> Traced:
        """The nearest numbers of another type; towards zero for whole numbers, cut for shorter ones."""
        source, target = self.dtype, dtype
        single = _NATIVE.get(target) or ir.IntType(target.bitwidth)
        kind = ir.VectorType(single, self.count) if self.count else single
        if isinstance(source, types.Float) and isinstance(target, types.Float):
            name = "fptrunc" if target.bitwidth < source.bitwidth else "fpext"
        elif isinstance(source, types.Float):
            name = "fptosi" if target.signed else "fptoui"
        elif isinstance(target, types.Float):
            name = "sitofp" if source.signed else "uitofp"
        else:
            name = "trunc" if target.bitwidth < source.bitwidth else "sext" if source.signed else "zext"
        return self.like(getattr(self.builder, name)(self.value, kind), dtype)

    def double(self) -> Traced:
        """In float64."""
        return self if self.dtype == types.float64 else self.to(types.float64)

    def bits(self, dtype: Any) -> Traced:
        """The same bits, as numbers of another type, and so perhaps more or fewer of them."""
        single = _NATIVE.get(dtype) or ir.IntType(dtype.bitwidth)
        count = self.count * self.dtype.bitwidth // dtype.bitwidth
        kind = ir.VectorType(single, count) if count else single
        return Traced(
            self.builder, self.builder.bitcast(self.value, kind), Vector(dtype, count) if count else dtype
        )


def join(vectors: Sequence[Traced]) -> Traced:
    """A vector with the lanes of all; there are 1, 2, 4, ... of them."""
    while len(vectors) > 1:
        count = 2 * vectors[0].count
        vectors = [a.part(range(count), b) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def choose(mask: Traced, yes: Traced, no: Traced | float) -> Traced:
    """`yes` where the mask is true, `no` elsewhere."""
    yes, no = yes.both(no)
    yes, no = yes.splat(mask.count), no.splat(mask.count)
    return yes.like(yes.builder.select(mask.value, yes.value, no.value))


def fma(a: Traced, b: Traced | float, c: Traced | float) -> Traced:
    """a b + c, rounded once."""
    return a.call("fma", b, c)


def sqrt(x: Traced) -> Traced:
    """The square root, correctly rounded."""
    return x.call("sqrt")


def total(x: Traced) -> Traced:
    """The sum of all lanes: the halves are added, and the halves of that, down to one."""
    while x.count > 1:
        half = x.count // 2
        x = x.part(range(half)) + x.part(range(half, 2 * half))
    return x.lane(0)


def polynomial(x: Traced, coefficients: Sequence[float]) -> Traced:
    """By Horner's rule; the constant comes first."""
    result = x.constant(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, c)
    return result


class _Format:
    """What the functions below need to know of a floating-point format, and their polynomials in it.

    They pass through Chebyshev nodes, computed in 60 digits: `exp` of |x| <= log(2)/2; `log`, see there;
    `tanh` is (tanh(x)/x - 1)/x² in powers of x², |x| <= 5/8.
    """

    def __init__(
        self,
        integer: Any,
        digits: int,
        bias: int,
        split: float,
        rest: float,
        **polynomials: tuple[float, ...],
    ) -> None:
        self.integer, self.digits, self.bias = integer, digits, bias
        self.split, self.rest = split, rest  # log 2 is their sum; n times the first is exact
        self.exp, self.log, self.tanh = (polynomials[name] for name in ("exp", "log", "tanh"))


_FORMATS = {
    types.float32: _Format(
        types.int32,
        23,
        127,
        0.693359375,
        -2.12194440054690583e-4,
        exp=(
            1.0, 1.00000003771621384, 0.500000004711775767, 0.166664155146532754, 0.0416663528967751568,
            0.00837512639815333568, 0.00139411084339726746,
        ),
        log=(
            0.333333311800300481, -0.24999996957950882, 0.200007157488921017, -0.166678023195012541,
            0.142490576456974804, -0.124256873314511061, 0.116854199234867393, -0.114797338466376356,
            0.0697161147145117783,
        ),
        tanh=(
            -0.333333331721403616, 0.133333035569157418, -0.0539592595772045427, 0.0217689186510282102,
            -0.00834394551583915205, 0.00229274481617814234,
        ),
    ),
    types.float64: _Format(
        types.int64,
        52,
        1023,
        0.693147180369123816490,
        1.90821492927058770002e-10,
        exp=(
            1.0, 1.0, 0.5, 0.166666666666667024, 0.0416666666666666922, 0.00833333333330952708,
            0.00138888888888718882, 0.000198412699092171014, 0.0000248015873501107956,
            2.75572249583926227e-6, 2.75572519041749126e-7, 2.51148695286577649e-8, 2.09215799649503001e-9,
        ),
        log=(
            0.666666666666666665, 0.40000000000000877, 0.285714285708036118, 0.222222223917139174,
            0.181817956401329063, 0.153862397028146582, 0.132687731386568852, 0.130866261478401021,
        ),
        tanh=(
            -0.333333333333333333, 0.133333333333333208, -0.0539682539682359013, 0.021869488535133222,
            -0.00886323549980199257, 0.00359212750759925223, -0.00145582839983032459,
            0.000589981815838823207, -0.000238889446367511739, 0.0000960410915702626599,
            -0.0000370810692154423339, 0.0000122099217901627817, -2.4388316314720878e-6,
        ),
    ),
}  # fmt: skip


def exp(x: Traced) -> Traced:
    """The exponential: x = n log 2 + r, a polynomial of r, and 2ⁿ in two factors, so that it may overflow."""
    form = _FORMATS[x.dtype]
    most = form.bias  # |x| beyond it gives 0 or infinity all the same; NaN stays
    x = choose(x > most, x.constant(most), x)
    x = choose(x < -most, x.constant(-most), x)
    n = (x * (1 / math.log(2))).call("rint")
    r = fma(n, -form.rest, fma(n, -form.split, x))
    value = polynomial(r, form.exp)
    whole = choose(n >= -2.0 * most, n, 0.0).to(form.integer)  # NaN has no whole number
    first = whole >> 1
    for part in (first, whole - first):
        value = value * ((part + form.bias) << form.digits).bits(x.dtype)
    return value


def _log_parts(x: Traced) -> tuple[Traced, Traced]:
    """x > 0, not denormal, as 2ᵉ m with m from √½ to √2: e and m."""
    form = _FORMATS[x.dtype]
    root = int(np.array(math.sqrt(0.5), np.dtype(str(x.dtype))).view(str(form.integer)))
    bits = x.bits(form.integer)
    e = (bits - root) >> form.digits
    return e.to(x.dtype), (bits - (e << form.digits)).bits(x.dtype)


def _log(e: Traced, s: Traced, correction: Traced | None = None) -> Traced:
    """log(2ᵉ (1 + s)): in float32 s - s²/2 + s³ q(s), in float64 2t + t³ q(t²) with t = s/(2 + s)."""
    form = _FORMATS[s.dtype]
    low = e * form.rest
    if correction is not None:
        low = low + correction
    if s.dtype == types.float32:
        square = s * s
        rest = fma(s * square, polynomial(s, form.log), fma(square, -0.5, low))
        return fma(e, form.split, s + rest)
    t = s / (s + 2.0)
    w = t * t
    # 2t = s - s t
    rest = fma(t * w, polynomial(w, form.log), low) - s * t
    return fma(e, form.split, s + rest)


def log(x: Traced) -> Traced:
    """The natural logarithm of x > 0, not denormal; of 0 it is -∞, of infinity ∞, of NaN and x < 0 NaN."""
    e, m = _log_parts(x)
    return _outside(x, _log(e, m - 1.0))


def log1p(x: Traced) -> Traced:
    """log(1 + x), exact for small x: what 1 + x loses is put back."""
    u = x + 1.0
    lost = (x - (u - 1.0)) / u
    e, m = _log_parts(u)
    return _outside(u, _log(e, m - 1.0, lost))


def _outside(x: Traced, value: Traced) -> Traced:
    value = choose(x < math.inf, value, x)  # infinity, NaN
    value = choose(x <= 0.0, value.constant(-math.inf), value)
    return choose(x < 0.0, value.constant(math.nan), value)


def tanh(x: Traced) -> Traced:
    """The hyperbolic tangent: a polynomial near 0, and (1 - t)/(1 + t) with t = exp(-2|x|) beyond."""
    square = x * x
    near = fma(x * square, polynomial(square, _FORMATS[x.dtype].tanh), x)
    size = x.call("fabs")
    t = exp(size * -2.0)
    far = ((-t + 1.0) / (t + 1.0)).call("copysign", x)
    return choose(size > 0.625, far, near)


@contextmanager
def loop(count: Traced, begin: Traced | int = 0, step: Traced | int = 1) -> Iterator[Traced]:
    """Code that is run for begin, begin + step, ... below `count`."""
    builder, whole = count.builder, count.value.type
    first, stride = (x.value if isinstance(x, Traced) else whole(x) for x in (begin, step))
    with cgutils.for_range_slice(builder, first, count.value, stride, whole) as (index, _):
        yield Traced(builder, index, count.kind)


class Kept:
    """Values that a loop changes: read with `get`, written with `set`."""

    def __init__(self, values: Sequence[Traced]) -> None:
        self.kinds = [value.kind for value in values]
        self.builder = values[0].builder
        self.places = [cgutils.alloca_once(self.builder, value.value.type) for value in values]
        self.set(values)

    def get(self) -> list[Traced]:
        """What they are now."""
        pairs = zip(self.places, self.kinds, strict=True)
        return [Traced(self.builder, self.builder.load(place), kind) for place, kind in pairs]

    def set(self, values: Sequence[Traced]) -> None:
        """Make them others."""
        for place, value in zip(self.places, values, strict=True):
            self.builder.store(value.value, place)


def tree(values: Sequence[Traced]) -> Traced:
    """The sum of vectors as `total` adds lanes: the halves are added, and the halves of that, down to one."""
    while len(values) > 1:
        half = len(values) // 2
        values = [a + b for a, b in zip(values[:half], values[half:], strict=True)]
    return values[0]


def traced(function: Callable[..., Any]) -> Any:
    """Have a function of `Traced` values, which returns one or a tuple of them, called in compiled code."""

    def typed(typing_context: Any, *kinds: Any) -> Any:
        kinds = tuple(types.unliteral(kind) for kind in kinds)
        result = _result(function, kinds)

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values = [_take(context, builder, v, k) for v, k in zip(arguments, signature.args, strict=True)]
            made = function(*values)
            if made is None:
                return context.get_dummy_value()
            if isinstance(made, tuple):
                return context.make_tuple(builder, result, [one.value for one in made])
            return made.value

        return result(*kinds), codegen

    return intrinsic(_named(typed, function))


def _named(typed: Any, function: Callable[..., Any]) -> Any:
    """With the name, the text and the arguments of a function."""
    wraps(function)(typed)
    parameters = inspect.signature(function).parameters.values()
    first = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    typed.__signature__ = inspect.Signature([first, *parameters])
    return typed


class TracedArray:
    """A flat array, or a pointer to numbers, while code is generated."""

    def __init__(self, builder: Any, data: Any, dtype: Any) -> None:
        self.builder, self.data, self.dtype = builder, data, dtype
        self.itemsize = dtype.bitwidth // 8

    def _element(self, at: Traced | int) -> Any:
        return self.builder.gep(self.data, [at.value if isinstance(at, Traced) else ir.IntType(64)(at)])

    def _pointer(self, at: Traced | int, native: Any) -> Any:
        return self.builder.bitcast(self._element(at), ir.PointerType(native))

    @property
    def lanes(self) -> int:
        """How many of its numbers a vector has."""
        return lanes(self.dtype)

    def zero(self, count: int | None = None) -> Traced:
        """A vector of zeros, with so many lanes if it is said."""
        count = self.lanes if count is None else count
        native = ir.VectorType(self.data.type.pointee, count)
        return Traced(self.builder, ir.Constant(native, [0] * count), Vector(self.dtype, count))

    def load(self, at: Traced | int, mask: Traced | None = None, count: int | None = None) -> Traced:
        """The vector that begins at an element; where a mask is false memory is not touched, and it is 0."""
        zero = self.zero(count)
        pointer = self._pointer(at, zero.value.type)
        if mask is None:
            return zero.like(self.builder.load(pointer, align=self.itemsize))
        kinds = [pointer.type, ir.IntType(32), mask.value.type, zero.value.type]
        function = self._masked("load", zero.value.type, kinds, zero)
        return zero.like(
            self.builder.call(function, [pointer, ir.IntType(32)(self.itemsize), mask.value, zero.value])
        )

    def store(self, at: Traced | int, vector: Traced, mask: Traced | None = None) -> None:
        """Put a vector to where an element begins, where the mask is true if there is one."""
        pointer = self._pointer(at, vector.value.type)
        if mask is None:
            self.builder.store(vector.value, pointer, align=self.itemsize)
            return
        kinds = [vector.value.type, pointer.type, ir.IntType(32), mask.value.type]
        function = self._masked("store", ir.VoidType(), kinds, vector)
        self.builder.call(function, [vector.value, pointer, ir.IntType(32)(self.itemsize), mask.value])

    def _masked(self, name: str, result: Any, kinds: list[Any], vector: Traced) -> Any:
        suffix = f"v{vector.count}{_SHORT[vector.dtype]}.p0"
        kind = ir.FunctionType(result, kinds)
        return cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.masked.{name}.{suffix}")

    def array(self, count: int) -> TracedArray:
        """Room for so many vectors of its type, as long as the function runs."""
        place = cgutils.alloca_once(self.builder, ir.VectorType(self.data.type.pointee, self.lanes), count)
        return TracedArray(self.builder, self.builder.bitcast(place, self.data.type), self.dtype)

    def number(self, at: Traced | int) -> Traced:
        """The element itself."""
        return Traced(self.builder, self.builder.load(self._element(at)), self.dtype)

    def put(self, at: Traced | int, number: Traced) -> None:
        """Set an element."""
        self.builder.store(number.value, self._element(at))


def _take(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    if isinstance(kind, types.CPointer):
        return TracedArray(builder, value, kind.dtype)
    if isinstance(kind, types.Array):
        return TracedArray(builder, make_array(kind)(context, builder, value).data, kind.dtype)
    named = isinstance(kind, types.BaseNamedTuple)
    if named or isinstance(kind, types.BaseTuple):
        kinds: Any = kind
        values = zip(cgutils.unpack_tuple(builder, value, len(kinds)), kinds, strict=True)
        parts = [_take(context, builder, v, k) for v, k in values]
        return kinds.instance_class(*parts) if named else tuple(parts)
    return Traced(builder, value, kind)


def _result(function: Callable[..., Any], kinds: Sequence[Any]) -> Any:
    """The type of what a function returns, found by tracing it on nothing."""
    from numba.core.registry import cpu_target

    context = cpu_target.target_context
    native = [context.get_value_type(kind) for kind in kinds]
    module = ir.Module()
    place = ir.Function(module, ir.FunctionType(ir.VoidType(), native), "nothing")
    builder = ir.IRBuilder(place.append_basic_block())
    made = function(*(_take(context, builder, v, k) for v, k in zip(place.args, kinds, strict=True)))
    if made is None:
        return types.none
    return types.Tuple([one.kind for one in made]) if isinstance(made, tuple) else made.kind


def _operator(sign: Any, function: Callable[[Traced, Traced], Traced]) -> None:
    """An operator between vectors, or a vector and a number of its type."""

    class Template(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) == 2 and any(isinstance(kind, Vector) for kind in args):
                left, right = map(types.unliteral, args)
                dtypes = [kind.dtype if isinstance(kind, Vector) else kind for kind in (left, right)]
                if dtypes[0] == dtypes[1]:
                    return signature(_result(function, (left, right)), left, right)
            return None

    infer_global(sign)(Template)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return function(*(Traced(builder, v, k) for v, k in zip(args, sig.args, strict=True))).value

    for kinds in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(sign, *kinds)(lower)


for _sign in (
    operator.add, operator.sub, operator.mul, operator.truediv,
    operator.lt, operator.le, operator.gt, operator.ge,
):  # fmt: skip
    _operator(_sign, _sign)


def _load(array: TracedArray, at: Traced) -> Traced:
    """The vector that begins at array[at]."""
    return array.load(at)


def _store(array: TracedArray, at: Traced, vector: Traced) -> None:
    """Put a vector to where array[at] begins."""
    array.store(at, vector)


def _splat(number: Traced) -> Traced:
    """A number in every lane."""
    return number.splat(lanes(number.dtype))


def _zero(like: TracedArray) -> Traced:
    """A vector of zeros, like those of an array."""
    return like.zero()


load, store, splat, zero = traced(_load), traced(_store), traced(_splat), traced(_zero)


def _pointer(typing_context: Any, array: Any) -> Any:
    """Where an array begins. Who takes it keeps the array: a pointer costs nothing, and owns nothing."""
    result = types.CPointer(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return make_array(signature.args[0])(context, builder, arguments[0]).data

    return result(array), codegen


def _point(typing_context: Any, address: Any, like: Any) -> Any:
    """A pointer to an address, to numbers like those of another."""
    result = types.CPointer(like.dtype)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(result))

    return result(types.intp, like), codegen


def _null(typing_context: Any, kind: Any) -> Any:
    """A pointer to nothing, for its type."""
    result = types.CPointer(kind.dtype)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_value_type(result)(None)

    return result(kind), codegen


def _beyond(typing_context: Any, pointer: Any, count: Any) -> Any:
    """A pointer to a number further on."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, types.intp), codegen


def _keep(typing_context: Any, array: Any) -> Any:
    """Nothing; but an array lives until it is done."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_dummy_value()

    return types.none(array), codegen


def _lanes_of(typing_context: Any, like: Any) -> Any:
    """How many lanes a vector of such numbers has."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.IntType(64)(lanes(signature.args[0].dtype))

    return types.intp(like), codegen


def _number(typing_context: Any, like: Any, value: Any) -> Any:
    """A number of float64 as one of those that are pointed to."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        single = signature.return_type == types.float32
        return builder.fptrunc(arguments[1], ir.FloatType()) if single else arguments[1]

    return like.dtype(like, types.float64), codegen


pointer: Any = intrinsic(_pointer)
point: Any = intrinsic(_point)
null: Any = intrinsic(_null)
beyond: Any = intrinsic(_beyond)
keep: Any = intrinsic(_keep)
lanes_of: Any = intrinsic(_lanes_of)
number: Any = intrinsic(_number)

_FLUSHED = 0x8040  # of the control word of x86: results, and operands, that are denormal count as 0


def _control_word(builder: Any, value: Any = None) -> Any:
    """Read the control word of vector arithmetic, or set it."""
    word = cgutils.alloca_once(builder, ir.IntType(32))
    name = "stmxcsr" if value is None else "ldmxcsr"
    if value is not None:
        builder.store(value, word)
    pointer = builder.bitcast(word, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}"), [pointer])
    return builder.load(word)


def _flush(typing_context: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not _X86:
            return ir.IntType(32)(0)
        before = _control_word(builder)
        _control_word(builder, builder.or_(before, ir.IntType(32)(_FLUSHED)))
        return before

    return types.uint32(), codegen


def _restore(typing_context: Any, mode: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _X86:
            _control_word(builder, arguments[0])
        return context.get_dummy_value()

    return types.none(types.uint32), codegen


_X86 = platform.machine().lower() in ("x86_64", "amd64")
flush_denormals: Any = intrinsic(_flush)
restore_denormals: Any = intrinsic(_restore)
