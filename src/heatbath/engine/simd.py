"""Vectors for compiled code: 16 float32 numbers or 8 float64 numbers, processed by one instruction each.

The compiler vectorises some plain loops and not others, and it may sum in an order of its own. So this
module spells out every operation: `load`, `store`, `splat`, arithmetic, `fma`, comparisons, `select`, and
`exp`, `log`, `log1p`, `tanh` as polynomials. Nothing is reordered or fused unless the code says so, and the
number in a lane doesn't depend on the other lanes or on the machine. A vector is 64 bytes: where registers
are shorter, LLVM takes several.

An operation is a Python function of `Traced` values. It runs once, while code is generated, and leaves its
instructions there; `@traced` makes it callable in compiled code. Use it for straight arithmetic. Loops and
branches belong to the compiled functions around it.

A *lane* is one of the numbers of a vector, a *mask* is a vector of booleans, a *native* type is LLVM's.
"""

from __future__ import annotations

import inspect
import math
import operator
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic as numba_intrinsic
from numba.extending import models, register_model
from numba.np.arrayobj import make_array

BYTES = 64  # of a vector, and of a line of the cache

intrinsic: Any = numba_intrinsic
"""Numba's decorator, without its type, which would ask compiled code to pass the typing context, too."""

Pointer: TypeAlias = Any
"""A pointer to numbers in compiled code, indexed like a flat array: Python has no type for it."""

_TUPLE: Any = types.BaseTuple
_NAMED_TUPLE: Any = types.BaseNamedTuple
_NUMBER_TYPES: Any = (types.float32, types.float64, types.int32, types.uint32, types.int64, types.uint64)
_TYPE_SUFFIXES = {
    kind: f"{'f' if isinstance(kind, types.Float) else 'i'}{kind.bitwidth}" for kind in _NUMBER_TYPES
}
_NATIVE_FLOATS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
_INT32 = ir.IntType(32)


def lane_count(dtype: Any) -> int:
    """Return how many numbers of a type, of NumPy or Numba, a vector has."""
    return BYTES // np.dtype(str(dtype) if isinstance(dtype, types.Type) else dtype).itemsize


class Vector(types.Type):
    """The type of a vector in compiled code."""

    def __init__(self, dtype: Any, lanes: int) -> None:
        """Store Numba's type of the numbers, and how many there are."""
        self.dtype, self.lanes = dtype, lanes
        super().__init__(f"vector({dtype}, {lanes})")


class _VectorModel(models.PrimitiveModel):
    """Numba's description of how a vector lies in memory: as LLVM's vector type."""

    def __init__(self, manager: Any, kind: Vector) -> None:
        """Look up LLVM's type for the vector."""
        native = ir.VectorType(manager.lookup(kind.dtype).get_value_type(), kind.lanes)
        super().__init__(manager, kind, native)


register_model(Vector)(_VectorModel)


class Traced:
    """A number or a vector while code is generated: every operation on it becomes instructions.

    Where a number meets a vector, it is put in every lane. Python numbers are constants.
    """

    def __init__(self, builder: Any, value: Any, kind: Any) -> None:
        """Wrap an LLVM value of a Numba type; instructions go to the builder."""
        self.builder, self.value, self.kind = builder, value, kind

    @property
    def dtype(self) -> Any:
        """Numba's type of its numbers."""
        return self.kind.dtype if isinstance(self.kind, Vector) else self.kind

    @property
    def lanes(self) -> int:
        """Number of lanes, or 0 for a number."""
        return self.kind.lanes if isinstance(self.kind, Vector) else 0

    def with_value(self, value: Any, dtype: Any = None) -> Traced:
        """Wrap an LLVM value that has as many lanes; without `dtype` it has this type, too."""
        dtype = self.dtype if dtype is None else dtype
        return Traced(self.builder, value, Vector(dtype, self.lanes) if self.lanes else dtype)

    def constant(self, number: float | Sequence[float]) -> Traced:
        """Return a constant of this type: one number for all lanes, or a sequence with one for each."""
        if self.lanes:
            number = [number] * self.lanes if isinstance(number, (int, float)) else list(number)
        return self.with_value(ir.Constant(self.value.type, number))

    def lane(self, index: int) -> Traced:
        """Return the number in a lane."""
        return Traced(self.builder, self.builder.extract_element(self.value, _INT32(index)), self.dtype)

    def shuffle(self, indices: Sequence[int], second: Traced | None = None) -> Traced:
        """Return a vector of the lanes at these indices; those of `second` count on from this vector's."""
        native = ir.Constant(self.value.type, ir.Undefined) if second is None else second.value
        mask = ir.Constant(ir.VectorType(_INT32, len(indices)), list(indices))
        value = self.builder.shuffle_vector(self.value, native, mask)
        return Traced(self.builder, value, Vector(self.dtype, len(indices)))

    def splat(self, lanes: int) -> Traced:
        """Return a vector with this number in every lane; a vector is returned as it is."""
        if self.lanes or not lanes:
            return self
        undefined = ir.Constant(ir.VectorType(self.value.type, lanes), ir.Undefined)
        first = self.builder.insert_element(undefined, self.value, _INT32(0))
        mask = ir.Constant(ir.VectorType(_INT32, lanes), [0] * lanes)
        value = self.builder.shuffle_vector(first, undefined, mask)
        return Traced(self.builder, value, Vector(self.dtype, lanes))

    def broadcast_with(self, operand: Traced | float) -> tuple[Traced, Traced]:
        """Return this value and an operand with equal types and numbers of lanes."""
        if not isinstance(operand, Traced):
            return self, self.constant(operand)
        if self.dtype != operand.dtype:
            raise TypeError(f"cannot combine {self.kind} and {operand.kind}: convert one of them")
        lanes = max(self.lanes, operand.lanes)
        return self.splat(lanes), operand.splat(lanes)

    def _binary(
        self, operand: Traced | float, float_instruction: str | None, integer_instruction: str | None
    ) -> Traced:
        """Return the result of one of the builder's instructions, by the type of the numbers.

        An instruction that is None doesn't exist for such numbers, which is a TypeError.
        """
        left, right = self.broadcast_with(operand)
        name = float_instruction if isinstance(left.dtype, types.Float) else integer_instruction
        if name is None:
            raise TypeError(f"{left.kind} has no such operation")
        return left.with_value(getattr(self.builder, name)(left.value, right.value))

    def __add__(self, operand: Traced | float) -> Traced:
        """Return the sum."""
        return self._binary(operand, "fadd", "add")

    def __sub__(self, operand: Traced | float) -> Traced:
        """Return the difference."""
        return self._binary(operand, "fsub", "sub")

    def __mul__(self, operand: Traced | float) -> Traced:
        """Return the product."""
        return self._binary(operand, "fmul", "mul")

    def __truediv__(self, operand: Traced | float) -> Traced:
        """Return the ratio."""
        return self._binary(operand, "fdiv", None)

    def __and__(self, operand: Traced | float) -> Traced:
        """Return the bits that both have."""
        return self._binary(operand, None, "and_")

    def __or__(self, operand: Traced | float) -> Traced:
        """Return the bits that one of the two has."""
        return self._binary(operand, None, "or_")

    def __xor__(self, operand: Traced | float) -> Traced:
        """Return the bits in which the two differ."""
        return self._binary(operand, None, "xor")

    def __lshift__(self, operand: Traced | float) -> Traced:
        """Return the bits moved to the left."""
        return self._binary(operand, None, "shl")

    def __rshift__(self, operand: Traced | float) -> Traced:
        """Return the bits moved to the right, with copies of the sign of a signed number."""
        return self._binary(operand, None, "ashr" if self.dtype.signed else "lshr")

    def __neg__(self) -> Traced:
        """Return the number with the other sign."""
        return self.with_value(self.builder.fneg(self.value))

    def compare(self, sign: str, operand: Traced | float) -> Traced:
        """Return a mask of the lanes where a comparison such as "<" is true; it never is for NaN."""
        left, right = self.broadcast_with(operand)
        if isinstance(left.dtype, types.Float):
            value = self.builder.fcmp_ordered(sign, left.value, right.value)
        else:
            compare = self.builder.icmp_signed if left.dtype.signed else self.builder.icmp_unsigned
            value = compare(sign, left.value, right.value)
        return left.with_value(value, types.boolean)

    def __lt__(self, operand: Traced | float) -> Traced:
        """Return a mask as `compare` does."""
        return self.compare("<", operand)

    def __le__(self, operand: Traced | float) -> Traced:
        """Return a mask as `compare` does."""
        return self.compare("<=", operand)

    def __gt__(self, operand: Traced | float) -> Traced:
        """Return a mask as `compare` does."""
        return self.compare(">", operand)

    def __ge__(self, operand: Traced | float) -> Traced:
        """Return a mask as `compare` does."""
        return self.compare(">=", operand)

    def greater_or_nan(self, operand: Traced | float) -> Traced:
        """Return a mask of the lanes where this is greater or one of the two is NaN."""
        left, right = self.broadcast_with(operand)
        return left.with_value(self.builder.fcmp_unordered(">", left.value, right.value), types.boolean)

    def equals(self, operand: Traced) -> Traced:
        """Return a mask of the lanes where two vectors of integers, or two masks, are equal."""
        left, right = self.broadcast_with(operand)
        return left.with_value(self.builder.icmp_unsigned("==", left.value, right.value), types.boolean)

    def intrinsic(self, name: str, *operands: Traced | float) -> Traced:
        """Call an intrinsic function of LLVM, such as "fma", on this value and operands; return the result.

        Numbers are put in every lane if one of the operands is a vector.
        """
        values = [self, *(self.broadcast_with(operand)[1] for operand in operands)]
        lanes = max(value.lanes for value in values)
        values = [value.splat(lanes) for value in values]
        native = values[0].value.type
        suffix = f"v{lanes}{_TYPE_SUFFIXES[self.dtype]}" if lanes else _TYPE_SUFFIXES[self.dtype]
        function = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(native, [native] * len(values)), f"llvm.{name}.{suffix}"
        )
        return values[0].with_value(self.builder.call(function, [value.value for value in values]))

    def any(self) -> Traced:
        """Return whether a mask is true in some lane."""
        if not self.lanes:
            return self
        bits = self.builder.bitcast(self.value, ir.IntType(self.lanes))
        return Traced(self.builder, self.builder.icmp_unsigned("!=", bits, bits.type(0)), types.boolean)

    def mask_to_integer(self, dtype: Any) -> Traced:
        """Return an integer whose lowest bit is the mask's first lane, the next one its second, and so on."""
        value = self.builder.bitcast(self.value, ir.IntType(self.lanes))
        if dtype.bitwidth > self.lanes:
            value = self.builder.zext(value, ir.IntType(dtype.bitwidth))
        return Traced(self.builder, value, dtype)

    def integer_to_mask(self, lanes: int) -> Traced:
        """Return the mask whose lanes are the lowest bits of this integer."""
        value = self.value
        if self.dtype.bitwidth > lanes:
            value = self.builder.trunc(value, ir.IntType(lanes))
        value = self.builder.bitcast(value, ir.VectorType(ir.IntType(1), lanes))
        return Traced(self.builder, value, Vector(types.boolean, lanes))

    def convert(self, dtype: Any) -> Traced:
        """Return the nearest numbers of another type.

        Integers are rounded towards zero, and shorter integers lose their upper bits.
        """
        instruction = _conversion(self.dtype, dtype)
        native = _native_type(dtype, self.lanes)
        return self.with_value(getattr(self.builder, instruction)(self.value, native), dtype)

    def to_float64(self) -> Traced:
        """Return the same numbers as float64."""
        return self if self.dtype == types.float64 else self.convert(types.float64)

    def bitcast(self, dtype: Any) -> Traced:
        """Return the same bits as numbers of another type; the number of lanes changes with its width."""
        lanes = self.lanes * self.dtype.bitwidth // dtype.bitwidth
        value = self.builder.bitcast(self.value, _native_type(dtype, lanes))
        return Traced(self.builder, value, Vector(dtype, lanes) if lanes else dtype)


def _conversion(source: Any, target: Any) -> str:
    """Return LLVM's instruction that converts numbers of one of Numba's types to another."""
    is_shorter = target.bitwidth < source.bitwidth
    if isinstance(source, types.Float) and isinstance(target, types.Float):
        return "fptrunc" if is_shorter else "fpext"
    if isinstance(source, types.Float):
        return "fptosi" if target.signed else "fptoui"
    if isinstance(target, types.Float):
        return "sitofp" if source.signed else "uitofp"
    if is_shorter:
        return "trunc"
    return "sext" if source.signed else "zext"


def _native_type(dtype: Any, lanes: int) -> Any:
    """Return LLVM's type for a number, or for a vector if there are lanes."""
    native = _NATIVE_FLOATS.get(dtype) or ir.IntType(dtype.bitwidth)
    return ir.VectorType(native, lanes) if lanes else native


def concatenate(vectors: Sequence[Traced]) -> Traced:
    """Return one vector with the lanes of all; their number must be a power of two."""
    while len(vectors) > 1:
        lanes = range(2 * vectors[0].lanes)
        vectors = [a.shuffle(lanes, b) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def select(mask: Traced, if_true: Traced, if_false: Traced | float) -> Traced:
    """Return `if_true` in the lanes where the mask is true and `if_false` in the others."""
    if_true, if_false = if_true.broadcast_with(if_false)
    if_true, if_false = if_true.splat(mask.lanes), if_false.splat(mask.lanes)
    return if_true.with_value(if_true.builder.select(mask.value, if_true.value, if_false.value))


def fma(a: Traced, b: Traced | float, c: Traced | float) -> Traced:
    """Compute a b + c, rounded once."""
    return a.intrinsic("fma", b, c)


def sqrt(x: Traced) -> Traced:
    """Compute the square root, correctly rounded."""
    return x.intrinsic("sqrt")


def sum_lanes(x: Traced) -> Traced:
    """Add the lower half of the lanes to the upper one, and so on, until one number is left."""
    while x.lanes > 1:
        half = x.lanes // 2
        x = x.shuffle(range(half)) + x.shuffle(range(half, 2 * half))
    return x.lane(0)


def sum_vectors(vectors: Sequence[Traced]) -> Traced:
    """Add the first half of the vectors to the second, and so on: in the order in which `sum_lanes` adds."""
    while len(vectors) > 1:
        half = len(vectors) // 2
        vectors = [a + b for a, b in zip(vectors[:half], vectors[half:], strict=True)]
    return vectors[0]


def polynomial(x: Traced, coefficients: Sequence[float]) -> Traced:
    """Evaluate a polynomial by Horner's rule; the constant coefficient comes first."""
    result = x.constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result


class _FloatFormat(NamedTuple):
    """A floating-point format, and the polynomials of the functions below in it.

    log 2 is the sum of `log2_high`, of which small multiples are exact, and `log2_low`. The polynomials pass
    through Chebyshev nodes and were computed in 60 digits: `exp` for |x| <= log(2)/2; `log`, see `_log`;
    `tanh` is (tanh(x)/x - 1)/x² in powers of x², for |x| <= 5/8.
    """

    integer: Any
    mantissa_bits: int
    exponent_bias: int
    log2_high: float
    log2_low: float
    exp: tuple[float, ...]
    log: tuple[float, ...]
    tanh: tuple[float, ...]


_FORMATS = {
    types.float32: _FloatFormat(
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
    types.float64: _FloatFormat(
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
    """Compute exp(x) = exp(r) 2ⁿ with x = n log 2 + r and |r| <= log(2)/2.

    exp(r) is a polynomial. 2ⁿ is two factors, since it may overflow where the result doesn't.
    """
    form = _FORMATS[x.dtype]
    limit = form.exponent_bias  # |x| beyond it gives 0 or infinity all the same; NaN stays
    x = select(x > limit, x.constant(limit), x)
    x = select(x < -limit, x.constant(-limit), x)
    n = (x * (1 / math.log(2))).intrinsic("rint")
    r = fma(n, -form.log2_low, fma(n, -form.log2_high, x))

    value = polynomial(r, form.exp)
    exponent = select(n >= -2.0 * limit, n, 0.0).convert(form.integer)  # NaN has no integer
    half = exponent >> 1
    for exponent_part in (half, exponent - half):
        power_bits = (exponent_part + form.exponent_bias) << form.mantissa_bits
        value = value * power_bits.bitcast(x.dtype)
    return value


def _log_parts(x: Traced) -> tuple[Traced, Traced]:
    """Return e and m with x = 2ᵉ m and m from √½ to √2, for x > 0 that is not denormal."""
    form = _FORMATS[x.dtype]
    root = int(np.array(math.sqrt(0.5), np.dtype(str(x.dtype))).view(str(form.integer)))
    bits = x.bitcast(form.integer)
    e = (bits - root) >> form.mantissa_bits
    return e.convert(x.dtype), (bits - (e << form.mantissa_bits)).bitcast(x.dtype)


def _log(e: Traced, s: Traced, correction: Traced | None = None) -> Traced:
    """Compute log(2ᵉ (1 + s)), plus a small correction, for e and m = 1 + s from `_log_parts`.

    It is e log 2 + s - s²/2 + s³ q(s) in float32, and e log 2 + 2t + t³ q(t²) with t = s/(2 + s) in float64,
    with the polynomial q of the format.
    """
    form = _FORMATS[s.dtype]
    low = e * form.log2_low
    if correction is not None:
        low = low + correction
    if s.dtype == types.float32:
        square = s * s
        remainder = fma(s * square, polynomial(s, form.log), fma(square, -0.5, low))
    else:
        t = s / (s + 2.0)
        square = t * t
        remainder = fma(t * square, polynomial(square, form.log), low) - s * t  # 2t = s - s t
    return fma(e, form.log2_high, s + remainder)


def log(x: Traced) -> Traced:
    """Compute log(x) for x > 0 that is not denormal; log(0) = -∞, log(∞) = ∞, and NaN for x < 0 or NaN."""
    e, m = _log_parts(x)
    return _outside_domain(x, _log(e, m - 1.0))


def log1p(x: Traced) -> Traced:
    """Compute log(1 + x), exact for small x: the rounding error of 1 + x is added to the result."""
    u = x + 1.0
    rounding_error = (x - (u - 1.0)) / u
    e, m = _log_parts(u)
    return _outside_domain(u, _log(e, m - 1.0, rounding_error))


def _outside_domain(x: Traced, value: Traced) -> Traced:
    """Return log(x): `value` where 0 < x < ∞, and otherwise -∞, ∞ or NaN."""
    value = select(x < math.inf, value, x)  # infinity, NaN
    value = select(x <= 0.0, value.constant(-math.inf), value)
    return select(x < 0.0, value.constant(math.nan), value)


def tanh(x: Traced) -> Traced:
    """Compute tanh(x): a polynomial near 0, and (1 - t)/(1 + t) with t = exp(-2|x|) beyond."""
    square = x * x
    near = fma(x * square, polynomial(square, _FORMATS[x.dtype].tanh), x)
    magnitude = x.intrinsic("fabs")
    t = exp(magnitude * -2.0)
    far = ((-t + 1.0) / (t + 1.0)).intrinsic("copysign", x)
    return select(magnitude > 0.625, far, near)


@contextmanager
def loop(stop: Traced, start: Traced | int = 0, step: Traced | int = 1) -> Iterator[Traced]:
    """Generate a loop: the `with` block runs for the indices start, start + step, ... below `stop`.

    The block is traced once, with the index as a `Traced` value.
    """
    builder, integer = stop.builder, stop.value.type
    first, stride = (x.value if isinstance(x, Traced) else integer(x) for x in (start, step))
    with cgutils.for_range_slice(builder, first, stop.value, stride, integer) as (index, _):
        yield Traced(builder, index, stop.kind)


class LoopVariables:
    """Variables that the block of a `loop` changes: read them with `get`, write them with `set`."""

    def __init__(self, values: Sequence[Traced]) -> None:
        """Reserve a place on the stack for each variable, with its first value."""
        self.kinds = [value.kind for value in values]
        self.builder = values[0].builder
        self.slots = [cgutils.alloca_once(self.builder, value.value.type) for value in values]
        self.set(values)

    def get(self) -> list[Traced]:
        """Return the present values."""
        pairs = zip(self.slots, self.kinds, strict=True)
        return [Traced(self.builder, self.builder.load(slot), kind) for slot, kind in pairs]

    def set(self, values: Sequence[Traced]) -> None:
        """Replace all values."""
        for slot, value in zip(self.slots, values, strict=True):
            self.builder.store(value.value, slot)


def traced(function: Callable[..., Any]) -> Any:
    """Make a function of `Traced` values callable in compiled code; it may return one, a tuple or None.

    The function runs while a caller is compiled, and its instructions are left in the caller.
    """

    def typed(typing_context: Any, *kinds: Any) -> Any:
        """Return the signature for arguments of these types, and the function that generates the code."""
        kinds = tuple(types.unliteral(kind) for kind in kinds)
        result_type = _result_type(function, kinds)

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            """Run the function on the traced arguments; return its result as LLVM's value."""
            result = function(*_trace_arguments(context, builder, arguments, signature.args))
            if result is None:
                return context.get_dummy_value()
            if isinstance(result, tuple):
                return context.make_tuple(builder, result_type, [element.value for element in result])
            return result.value

        return result_type(*kinds), codegen

    return intrinsic(_with_signature_of(function, typed))


def _with_signature_of(function: Callable[..., Any], typed: Any) -> Any:
    """Give Numba's typing function the name, docstring and arguments of the traced function; return it."""
    wraps(function)(typed)
    parameters = inspect.signature(function).parameters.values()
    first = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    typed.__signature__ = inspect.Signature([first, *parameters])
    return typed


class TracedArray:
    """A flat array, or a pointer to numbers, while code is generated."""

    def __init__(self, builder: Any, data: Any, dtype: Any) -> None:
        """Wrap LLVM's pointer to numbers of one of Numba's types; instructions go to the builder."""
        self.builder, self.data, self.dtype = builder, data, dtype
        self.itemsize = dtype.bitwidth // 8  # in bytes

    def _element(self, index: Traced | int) -> Any:
        """Return LLVM's pointer to an element."""
        position = index.value if isinstance(index, Traced) else ir.IntType(64)(index)
        return self.builder.gep(self.data, [position])

    def _vector_pointer(self, index: Traced | int, native: Any) -> Any:
        """Return LLVM's pointer to a vector of a native type that begins at an element."""
        return self.builder.bitcast(self._element(index), ir.PointerType(native))

    @property
    def lanes(self) -> int:
        """Number of elements in a vector."""
        return lane_count(self.dtype)

    def zero(self, lanes: int | None = None) -> Traced:
        """Return a vector of zeros, by default a full one."""
        lanes = self.lanes if lanes is None else lanes
        native = ir.VectorType(self.data.type.pointee, lanes)
        return Traced(self.builder, ir.Constant(native, [0] * lanes), Vector(self.dtype, lanes))

    def load(self, index: Traced | int, mask: Traced | None = None, lanes: int | None = None) -> Traced:
        """Return the vector that begins at an element, by default a full one.

        Where a mask is false, memory isn't touched and the lane is 0.
        """
        zero = self.zero(lanes)
        pointer = self._vector_pointer(index, zero.value.type)
        if mask is None:
            return zero.with_value(self.builder.load(pointer, align=self.itemsize))
        operand_types = [pointer.type, _INT32, mask.value.type, zero.value.type]
        function = self._masked_intrinsic("load", zero.value.type, operand_types, zero)
        operands = [pointer, _INT32(self.itemsize), mask.value, zero.value]
        return zero.with_value(self.builder.call(function, operands))

    def store(self, index: Traced | int, vector: Traced, mask: Traced | None = None) -> None:
        """Write a vector to memory from an element on; where a mask is false, memory isn't touched."""
        pointer = self._vector_pointer(index, vector.value.type)
        if mask is None:
            self.builder.store(vector.value, pointer, align=self.itemsize)
            return
        operand_types = [vector.value.type, pointer.type, _INT32, mask.value.type]
        function = self._masked_intrinsic("store", ir.VoidType(), operand_types, vector)
        self.builder.call(function, [vector.value, pointer, _INT32(self.itemsize), mask.value])

    def _masked_intrinsic(self, name: str, result: Any, operand_types: list[Any], vector: Traced) -> Any:
        """Return LLVM's function for a masked "load" or "store" of such a vector, with its native types."""
        suffix = f"v{vector.lanes}{_TYPE_SUFFIXES[vector.dtype]}.p0"
        kind = ir.FunctionType(result, operand_types)
        return cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.masked.{name}.{suffix}")

    def allocate(self, vectors: int) -> TracedArray:
        """Return memory on the stack for some vectors of this type, which lasts as long as the function."""
        memory = cgutils.alloca_once(self.builder, ir.VectorType(self.data.type.pointee, self.lanes), vectors)
        return TracedArray(self.builder, self.builder.bitcast(memory, self.data.type), self.dtype)

    def load_number(self, index: Traced | int) -> Traced:
        """Return an element."""
        return Traced(self.builder, self.builder.load(self._element(index)), self.dtype)

    def store_number(self, index: Traced | int, number: Traced) -> None:
        """Write an element."""
        self.builder.store(number.value, self._element(index))


def _trace_argument(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    """Wrap an LLVM value of a Numba type as `Traced`, `TracedArray`, or a tuple of them."""
    if isinstance(kind, types.CPointer):
        return TracedArray(builder, value, kind.dtype)
    if isinstance(kind, types.Array):
        return TracedArray(builder, make_array(kind)(context, builder, value).data, kind.dtype)
    if isinstance(kind, (_TUPLE, _NAMED_TUPLE)):
        elements = _trace_arguments(context, builder, cgutils.unpack_tuple(builder, value, len(kind)), kind)
        return kind.instance_class(*elements) if isinstance(kind, _NAMED_TUPLE) else tuple(elements)
    return Traced(builder, value, kind)


def _trace_arguments(context: Any, builder: Any, values: Sequence[Any], kinds: Sequence[Any]) -> list[Any]:
    """Wrap LLVM values of these Numba types as `_trace_argument` does."""
    pairs = zip(values, kinds, strict=True)
    return [_trace_argument(context, builder, value, kind) for value, kind in pairs]


def _result_type(function: Callable[..., Any], kinds: Sequence[Any]) -> Any:
    """Return Numba's type of the result of a function of `Traced` values, for arguments of these types.

    The function is traced once, in a module that is thrown away.
    """
    from numba.core.registry import cpu_target

    context = cpu_target.target_context
    native = [context.get_value_type(kind) for kind in kinds]
    scratch = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), native), "scratch")
    builder = ir.IRBuilder(scratch.append_basic_block())
    result = function(*_trace_arguments(context, builder, scratch.args, kinds))
    if result is None:
        return types.none
    if isinstance(result, tuple):
        return types.Tuple([element.kind for element in result])
    return result.kind


def _number_type(kind: Any) -> Any:
    """Return the type of the numbers in a vector, or of a number itself."""
    return kind.dtype if isinstance(kind, Vector) else kind


def _register_operator(sign: Any) -> None:
    """Make an operator work in compiled code on two vectors, or on a vector and a number of its type.

    `sign` is a function of the module `operator`, which is called with two `Traced` values.
    """

    class Template(AbstractTemplate):
        """Numba's typing of the operator."""

        def generic(self, args: Any, kws: Any) -> Any:
            """Return the signature for operands of these types, or None if there is a conflict."""
            if len(args) != 2 or not any(isinstance(kind, Vector) for kind in args):
                return None
            left, right = map(types.unliteral, args)
            if _number_type(left) != _number_type(right):
                return None
            return signature(_result_type(sign, (left, right)), left, right)

    infer_global(sign)(Template)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        """Generate the code for two operands; return LLVM's value of the result."""
        left, right = (Traced(builder, value, kind) for value, kind in zip(args, sig.args, strict=True))
        return sign(left, right).value

    for kinds in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(sign, *kinds)(lower)


for _sign in (
    operator.add, operator.sub, operator.mul, operator.truediv,
    operator.lt, operator.le, operator.gt, operator.ge,
):  # fmt: skip
    _register_operator(_sign)


@traced
def load(array: TracedArray, index: Traced) -> Traced:
    """Return the vector that begins at array[index]."""
    return array.load(index)


@traced
def store(array: TracedArray, index: Traced, vector: Traced) -> None:
    """Write a vector to memory from array[index] on."""
    array.store(index, vector)


@traced
def splat(number: Traced) -> Traced:
    """Return a vector with a number in every lane."""
    return number.splat(lane_count(number.dtype))


@traced
def zero(like: TracedArray) -> Traced:
    """Return a vector of zeros of the type of an array's elements."""
    return like.zero()


@intrinsic
def pointer_to(typing_context: Any, array: Any) -> Any:
    """Return a pointer to the first element of a contiguous array.

    A pointer isn't a counted reference, so it costs nothing, and the caller must `keep_alive` the array.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return make_array(signature.args[0])(context, builder, arguments[0]).data

    return _pointer_type(array)(array), codegen


def _pointer_type(kind: Any) -> Any:
    """Return Numba's type of a pointer to an array, or of a named tuple with pointers for its arrays."""
    if isinstance(kind, _NAMED_TUPLE):
        return types.BaseTuple.from_types([_pointer_type(field) for field in kind], kind.instance_class)
    if not isinstance(kind, types.Array):
        return kind
    if kind.layout != "C":
        raise TypingError("a pointer needs a contiguous array: use np.ascontiguousarray")
    return types.CPointer(kind.dtype)


@intrinsic
def with_pointers(typing_context: Any, fields: Any) -> Any:
    """Return a named tuple, which may be nested, with pointers in place of its arrays; None stays None.

    The caller must keep the arrays, as with `pointer_to`.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _replace_arrays(context, builder, arguments[0], signature.args[0])

    return _pointer_type(fields)(fields), codegen


def _replace_arrays(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    """Return LLVM's value of a Numba type with the array, or all arrays of a named tuple, as pointers."""
    if isinstance(kind, types.Array):
        return make_array(kind)(context, builder, value).data
    if not isinstance(kind, _NAMED_TUPLE):
        return value
    elements = zip(cgutils.unpack_tuple(builder, value, len(kind)), kind, strict=True)
    replaced = [
        _replace_arrays(context, builder, element, element_kind) for element, element_kind in elements
    ]
    return context.make_tuple(builder, _pointer_type(kind), replaced)


@intrinsic
def pointer_at(typing_context: Any, address: Any, like: Any) -> Any:
    """Return a pointer to an address in memory, to numbers of the type that `like` points to."""
    result = types.CPointer(like.dtype)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(result))

    return result(types.intp, like), codegen


@intrinsic
def null_pointer(typing_context: Any, kind: Any) -> Any:
    """Return a null pointer to numbers of a NumPy type such as `np.float32`, which is used for its type."""
    result = types.CPointer(kind.dtype)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_value_type(result)(None)

    return result(kind), codegen


@intrinsic
def offset_pointer(typing_context: Any, pointer: Any, count: Any) -> Any:
    """Return a pointer to the number that lies `count` numbers further on."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, types.intp), codegen


@intrinsic
def keep_alive(typing_context: Any, array: Any) -> Any:
    """Do nothing with an array, which is therefore not freed before this call."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_dummy_value()

    return types.none(array), codegen


@intrinsic
def lanes_of(typing_context: Any, like: Any) -> Any:
    """Return how many lanes a vector of the numbers in an array, or at a pointer, has."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.IntType(64)(lane_count(signature.args[0].dtype))

    return types.intp(like), codegen


@intrinsic
def cast_like(typing_context: Any, like: Any, value: Any) -> Any:
    """Return a float64 number in the precision of the numbers that `like` points to."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        is_float32 = signature.return_type == types.float32
        return builder.fptrunc(arguments[1], ir.FloatType()) if is_float32 else arguments[1]

    return like.dtype(like, types.float64), codegen


_X86 = platform.machine().lower() in ("x86_64", "amd64")
_FLUSH_BITS = 0x8040  # of x86's control word: results, and operands, that are denormal count as 0


def _control_word(builder: Any, value: Any = None) -> Any:
    """Generate code that reads x86's control word of vector arithmetic or, with a value, sets it."""
    word = cgutils.alloca_once(builder, _INT32)
    name = "stmxcsr" if value is None else "ldmxcsr"
    if value is not None:
        builder.store(value, word)
    pointer = builder.bitcast(word, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}"), [pointer])
    return builder.load(word)


@intrinsic
def flush_denormals(typing_context: Any) -> Any:
    """Make this thread treat denormal numbers as 0; return the mode it had, for `restore_denormals`.

    Processors are slow on denormal numbers. On other machines than x86 nothing is changed.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not _X86:
            return _INT32(0)
        mode = _control_word(builder)
        _control_word(builder, builder.or_(mode, _INT32(_FLUSH_BITS)))
        return mode

    return types.uint32(), codegen


@intrinsic
def restore_denormals(typing_context: Any, mode: Any) -> Any:
    """Restore the mode that `flush_denormals` returned."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _X86:
            _control_word(builder, arguments[0])
        return context.get_dummy_value()

    return types.none(types.uint32), codegen
