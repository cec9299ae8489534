"""Arrays as compiled functions hand them to each other: where they begin, and how long they are.

What Numba makes of an array is seven values, with reference counts and strides; each access asks whether the index
counts from the end. Nothing here counts from the end, and the host owns every array. So a part and what is called by
address get bare arrays (`parts.py`), and an access is an addition and a load. With ``NUMBA_BOUNDSCHECK=1`` each index
is checked, and one below 0 is out of bounds. For all else, such as slices, a bare array is made an ordinary one.
"""

import operator
from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin, lower_cast, lower_getattr_generic
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import models, register_model
from numba.np.arrayobj import load_item, make_array, populate_array, store_item


class BareArray(types.Type):  # type: ignore[misc]
    """The type of a contiguous array with only its data and shape known."""

    mutable = aligned = True

    def __init__(self, array: Any) -> None:
        self.array, self.dtype, self.ndim = array, array.dtype, array.ndim
        super().__init__(f"bare {array}")

    @property
    def key(self) -> Any:
        """Return what makes two types the same."""
        return self.array.key


def bare(kind: Any) -> Any:
    """A type, with bare arrays in place of those that are contiguous and can be written; tuples by member.

    A named tuple keeps its names.
    """
    if type(kind) is types.Array and kind.layout == "C" and kind.mutable and kind.aligned:
        return BareArray(kind)
    if isinstance(kind, types.BaseTuple):
        return types.BaseTuple.from_types([bare(each) for each in kind], getattr(kind, "instance_class", None))
    return kind


@register_model(BareArray)
class _Model(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: BareArray) -> None:
        members = [("data", types.CPointer(kind.dtype)), ("shape", types.UniTuple(types.intp, kind.ndim))]
        super().__init__(manager, kind, members)


def _index_of(array: BareArray, index: Any) -> Any:
    """The type of an index that finds one word; None for slices and the like."""
    if isinstance(index, types.Integer):
        return types.intp if index.signed else types.uintp
    if isinstance(index, types.BaseTuple) and len(index) == array.ndim:
        return types.UniTuple(types.intp, array.ndim) if all(isinstance(i, types.Integer) for i in index) else None
    return None


@infer_global(operator.getitem)
class _GetItem(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        array, index = args
        if not isinstance(array, BareArray):
            return None
        place = _index_of(array, index)
        if place is None or array.ndim != getattr(place, "count", 1):
            return self.context.resolve_function_type(operator.getitem, (array.array, index), {})
        return signature(array.dtype, array, place)


@infer_global(operator.setitem)
class _SetItem(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        array, index, value = args
        if not isinstance(array, BareArray):
            return None
        place = _index_of(array, index)
        if place is None:
            usual = self.context.resolve_setitem(array.array, index, value)
            return signature(types.none, array, *usual.args[1:])
        if array.ndim == getattr(place, "count", 1) and self.context.can_convert(value, array.dtype) is not None:
            return signature(types.none, array, place, types.unliteral(value))
        return None


@infer_getattr
class _Attributes(AttributeTemplate):  # type: ignore[misc]
    key = BareArray

    def generic_resolve(self, array: BareArray, name: str) -> Any:
        return self.context.resolve_getattr(array.array, name)


@lower_getattr_generic(BareArray)
def _attribute(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    usual = context.cast(builder, value, kind, kind.array)
    found = context.typing_context.resolve_getattr(kind.array, name)
    return context.get_getattr(kind.array, name)(context, builder, kind.array, usual, name) if found else None


def _place(context: Any, builder: Any, kind: BareArray, value: Any, index: Any) -> Any:
    """A pointer to the word at an index."""
    array = cgutils.create_struct_proxy(kind)(context, builder, value)
    indices = [index] if kind.ndim == 1 else cgutils.unpack_tuple(builder, index, kind.ndim)
    shape = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
    at = indices[0]
    for axis, (each, size) in enumerate(zip(indices, shape, strict=True)):
        if context.enable_boundscheck:
            cgutils.do_boundscheck(context, builder, each, size, axis)
        if axis:
            at = builder.add(builder.mul(at, size), each)
    return builder.gep(array.data, [at])


@lower_builtin(operator.getitem, BareArray, types.Integer)
@lower_builtin(operator.getitem, BareArray, types.BaseTuple)
def _get(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return load_item(context, builder, sig.args[0], _place(context, builder, sig.args[0], *args))


@lower_builtin(operator.setitem, BareArray, types.Integer, types.Any)
@lower_builtin(operator.setitem, BareArray, types.BaseTuple, types.Any)
def _set(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    array, index, value = args
    word = context.cast(builder, value, sig.args[2], sig.args[0].dtype)
    store_item(context, builder, sig.args[0], word, _place(context, builder, sig.args[0], array, index))
    return context.get_dummy_value()


@lower_builtin(operator.setitem, BareArray, types.SliceType, types.Any)
def _set_slice(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kind, *others = sig.args
    usual = context.cast(builder, args[0], kind, kind.array)
    function = context.get_function(operator.setitem, signature(types.none, kind.array, *others))
    return function(builder, (usual, *args[1:]))


@lower_cast(types.Array, BareArray)
def _to_bare(context: Any, builder: Any, kind: Any, target: Any, value: Any) -> Any:
    array, made = make_array(kind)(context, builder, value), cgutils.create_struct_proxy(target)(context, builder)
    made.data, made.shape = array.data, array.shape
    return made._getvalue()


@lower_cast(BareArray, types.Array)
def _to_usual(context: Any, builder: Any, kind: Any, target: Any, value: Any) -> Any:
    array, made = cgutils.create_struct_proxy(kind)(context, builder, value), make_array(target)(context, builder)
    shape = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
    strides = [context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    populate_array(made, data=array.data, shape=shape, strides=strides, itemsize=strides[-1], meminfo=None)
    return made._getvalue()


@lower_cast(types.NamedTuple, types.NamedTuple)
@lower_cast(types.NamedUniTuple, types.NamedUniTuple)
def _each_to_bare(context: Any, builder: Any, kind: Any, target: Any, value: Any) -> Any:
    """The same named tuple with other members; Numba casts tuples without names alone."""
    members = cgutils.unpack_tuple(builder, value, len(kind))
    cast = [context.cast(builder, each, old, new) for each, old, new in zip(members, kind, target, strict=True)]
    return context.make_tuple(builder, target, cast)
