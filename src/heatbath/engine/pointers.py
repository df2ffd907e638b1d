"""Views of pointers (`simd.pointer_to`) in compiled code: matrices for BLAS, and rows of tables by name.

They cost nothing, whereas slices of arrays count references. Bounds are not checked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.np.arrayobj import make_array, populate_array

from heatbath.engine.simd import intrinsic


@intrinsic
def matrix(typing_context: Any, pointer: Any, start: Any, rows: Any, columns: Any) -> Any:
    """Return an array (rows, columns) that views the numbers at a pointer from number `start` on.

    Nothing is copied, and the array doesn't keep the memory alive.
    """
    result = types.Array(pointer.dtype, 2, "C")

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Generate the code that fills in Numba's structure of an array, without an owner of the memory."""
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


@intrinsic
def prefetch(typing_context: Any, pointer: Any, index: Any) -> Any:
    """Start to load the memory around pointer[index] into the caches, without waiting for it.

    It is a hint to the processor before the memory is written.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Generate the call of LLVM's function for prefetching."""
        address = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        to_write, to_all_caches, data = number(1), number(3), number(1)
        builder.call(function, [address, to_write, to_all_caches, data])
        return context.get_dummy_value()

    return types.none(pointer, types.intp), codegen


def row_reader(row_class: Any) -> Any:
    """Return a compiled function (pointer, i) that reads row i of a table of int64 as a `row_class`.

    `row_class` is a NamedTuple with a field for each column of the table.
    """
    columns = len(row_class._fields)
    result = types.NamedUniTuple(types.int64, columns, row_class)
    integer = ir.IntType(64)

    def read_row(typing_context: Any, pointer: Any, i: Any) -> Any:
        """Return the signature for such a pointer and index, and the function that generates the code."""

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            """Generate the code that loads all columns of the row."""
            table, row = arguments
            first = builder.mul(row, integer(columns))
            indices = [builder.add(first, integer(column)) for column in range(columns)]
            values = [builder.load(builder.gep(table, [index])) for index in indices]
            return context.make_tuple(builder, result, values)

        return result(pointer, types.intp), codegen

    return intrinsic(read_row)
