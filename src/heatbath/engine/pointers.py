"""What pointers (`lanes.pointer`) are seen as in compiled code: matrices for BLAS, and tuples with names.

These cost nothing, where slices of arrays count references. Bounds are not checked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array


def _matrix(typing_context: Any, pointer: Any, begin: Any, rows: Any, columns: Any) -> Any:
    """The numbers from `begin` on as an array (rows, columns)."""
    result = types.Array(pointer.dtype, 2, "C")

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, first, *shape = arguments
        view = make_array(result)(context, builder)
        data_type = context.get_data_type(result.dtype)
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(data_type))
        populate_array(
            view,
            data=builder.gep(data, [first]),
            shape=cgutils.pack_array(builder, shape),
            strides=cgutils.pack_array(builder, [builder.mul(itemsize, shape[1]), itemsize]),
            itemsize=itemsize,
            meminfo=None,
        )
        return view._getvalue()

    return result(pointer, types.intp, types.intp, types.intp), codegen


def _prefetch(typing_context: Any, pointer: Any, index: Any) -> Any:
    """Have the memory around a number fetched while something else is done."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [place, number(1), number(3), number(1)])  # to write, to all caches, data
        return context.get_dummy_value()

    return types.none(pointer, types.intp), codegen


matrix: Any = intrinsic(_matrix)
prefetch: Any = intrinsic(_prefetch)


def row_reader(names: Any) -> Any:
    """A function (pointer, i) that reads row i of a table of whole numbers as a named tuple of this class."""
    width = len(names._fields)
    result = types.NamedUniTuple(types.int64, width, names)

    def read(typing_context: Any, pointer: Any, i: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            begin = builder.mul(arguments[1], ir.IntType(64)(width))
            places = [builder.add(begin, ir.IntType(64)(k)) for k in range(width)]
            values = [builder.load(builder.gep(arguments[0], [place])) for place in places]
            return context.make_tuple(builder, result, values)

        return result(pointer, types.intp), codegen

    return intrinsic(read)
