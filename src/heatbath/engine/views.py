"""Views of buffers for compiled code that cost nothing.

`buffer[a:b].reshape(n, m)` counts references and calls into C, some 30 ns that a step of a small network pays
dozens of times. These views only point: whoever makes one keeps the buffer alive, and the bounds are not
checked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array


def _point(context: Any, builder: Any, result: Any, source: Any, begin: Any, shape: Any) -> Any:
    """An array struct of this type and shape whose data begin at an element of a flat array."""
    flat = make_array(source[0])(context, builder, source[1])
    view = make_array(result)(context, builder)
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(result.dtype)))
    strides = [itemsize]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    populate_array(
        view,
        data=builder.gep(flat.data, [begin]),
        shape=cgutils.pack_array(builder, shape),
        strides=cgutils.pack_array(builder, strides),
        itemsize=itemsize,
        meminfo=None,
    )
    return view._getvalue()


def _vector(typing_context: Any, flat: Any, begin: Any, size: Any) -> Any:
    """flat[begin : begin + size]."""
    result = types.Array(flat.dtype, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, first, length = arguments
        return _point(context, builder, result, (signature.args[0], source), first, [length])

    return result(flat, types.intp, types.intp), codegen


def _matrix(typing_context: Any, flat: Any, begin: Any, rows: Any, columns: Any) -> Any:
    """flat[begin : begin + rows * columns].reshape(rows, columns)."""
    result = types.Array(flat.dtype, 2, "C")

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, first, *shape = arguments
        return _point(context, builder, result, (signature.args[0], source), first, shape)

    return result(flat, types.intp, types.intp, types.intp), codegen


vector: Any = intrinsic(_vector)
matrix: Any = intrinsic(_matrix)


def _at_address(typing_context: Any, like: Any, address: Any, size: Any) -> Any:
    """An array of `size` numbers, of the type of those in `like`, that begins at an address in memory."""
    result = types.Array(like.dtype, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = make_array(result)(context, builder)
        data_type = context.get_data_type(result.dtype)
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(data_type))
        populate_array(
            view,
            data=builder.inttoptr(arguments[1], data_type.as_pointer()),
            shape=cgutils.pack_array(builder, [arguments[2]]),
            strides=cgutils.pack_array(builder, [itemsize]),
            itemsize=itemsize,
            meminfo=None,
        )
        return view._getvalue()

    return result(like, types.intp, types.intp), codegen


at_address: Any = intrinsic(_at_address)


def _prefetch(typing_context: Any, flat: Any, index: Any) -> Any:
    """Have the memory around flat[index] fetched while something else is done."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, number(1), number(3), number(1)])  # to write, to all caches, data
        return context.get_dummy_value()

    return types.none(flat, types.intp), codegen


prefetch: Any = intrinsic(_prefetch)
