"""The few primitives under the machine: moving bytes, reinterpreting bits, writing state.

Each is written twice: for Numba as an intrinsic, and as plain NumPy for runs with the JIT off.

Among them are calls of compiled functions by their address, so that a caller does not contain, and recompile, what it
calls.  A function is compiled for one signature; `address_of` says where it is, and an intrinsic made by `calling` goes
there.  With the JIT off the addresses are numbers by which `function_at` finds the function.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from xccl_emu.jit.bare import bare
from xccl_emu.jit.kept import compiled

jit = compiled(forceinline=True, _nrt=False, no_cfunc_wrapper=True)
"""How the machine is compiled: kept on disk, and with no fastmath, so that bits are the same everywhere.

Without Numba's reference counts (no function here makes an array) and inlined: else a step takes five times as long.
"""

call = compiled(forceinline=False, _nrt=False, no_cfunc_wrapper=True)
"""Like `jit`, but called: what is large and has several callers, or is rarely needed.

It says that it is not inlined, else Numba takes that over from its first caller.
"""

LINE_BYTES = 64
"""What processors bring into their caches at once."""

_AHEAD_BYTES = 1 << 13
"""How far ahead `fetch_bytes` asks for lines: measured, 4 KiB and 16 KiB are slower."""

_PACE = 4
"""Instructions that do nothing, for each line that is asked for: measured, 0 and 12 are slower."""

jit_arrays = compiled(_nrt=True)
"""For functions that make views of arrays: these need the reference counts."""


@jit
def put(st, index, value):
    """Write one word of state.

    All that a run can depend on goes through here, but for these: words of the header (who is alive, errors, counters,
    the policy's cursor and random numbers), the tables of writers (reports alone read them), the bytes of writes in
    flight (`bytes_to_words`), and what a step function writes of its own core during `call_step`.
    """
    st[index] = value


if config.DISABLE_JIT:
    _FUNCTIONS: dict[int, Callable[..., int]] = {}

    def address_of(function: Any, signature: Any) -> int:
        """A number by which `function_at` finds the function."""
        _FUNCTIONS[id(function)] = function
        return id(function)

    def function_at(address: int) -> Callable[..., int]:
        """The function with that number."""
        return _FUNCTIONS[int(address)]

    def handle_of(step):
        """Return the number by which `call_step` finds a step function."""
        return address_of(step, None)

    def call_step(handle, st, base):
        return function_at(handle)(st, base)

    def load_i64(mem, address):
        return int(mem[address : address + 8].view(np.int64)[0])

    def load_i32(mem, address):
        return int(mem[address : address + 4].view(np.int32)[0])

    def store_i64(mem, address, value):
        mem[address : address + 8].view(np.int64)[0] = value

    def store_u32(mem, address, value):
        mem[address : address + 4].view(np.uint32)[0] = value & 0xFFFFFFFF

    def copy_bytes(mem, target, source, nbytes):
        mem[target : target + nbytes] = mem[source : source + nbytes]

    def same_bytes(mem, one, other, nbytes):
        return bool((mem[one : one + nbytes] == mem[other : other + nbytes]).all())

    def copy_words(target, to, source, start, n):
        target[to : to + n] = source[start : start + n]

    def differing(one, at, other, to, n):
        return sum(1 << k for k in range(min(n, 8)) if one[at + k] != other[to + k])

    def first_of(bits):
        return (bits & -bits).bit_length() - 1

    def prefetch(st, index):
        pass

    def fetch_bytes(mem, st, target, source, nbytes):
        copy_bytes(mem, target, source, nbytes)

    def stream_bytes(mem, st, target, source, nbytes, far):
        copy_bytes(mem, target, source, nbytes)

    def bytes_to_words(st, word, mem, source, nbytes):
        st.view(np.uint8)[8 * word : 8 * word + nbytes] = mem[source : source + nbytes]

    def words_to_bytes(mem, target, st, word, nbytes):
        mem[target : target + nbytes] = st.view(np.uint8)[8 * word : 8 * word + nbytes]

    def float_of(bits):
        return np.uint32(bits).view(np.float32)

    def bits_of(value):
        return np.float32(value).view(np.uint32)

else:

    def address_of(function: Any, signature: Any) -> int:
        """Return where the function is, compiled for these arguments."""
        found = function.get_compile_result(_with_bare_arrays(signature))
        return int(found.library.get_pointer_to_function(found.fndesc.llvm_func_name))

    def _with_bare_arrays(signature: Any) -> Any:
        return signature.return_type(*map(bare, signature.args))

    def calling(signature: Any) -> tuple[Any, Callable[..., Any]]:
        """Return what an intrinsic returns whose arguments are an address and what the function there takes.

        What the function raises (the arithmetic of a kernel that fails) is handed on.
        """

        signature = _with_bare_arrays(signature)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            convention = context.call_conv
            kind = convention.get_function_type(signature.return_type, signature.args)
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            status, result = convention.call_function(builder, pointer, signature.return_type, signature.args, args[1:])
            with builder.if_then(status.is_error, likely=False):
                convention.return_status_propagate(builder, status)
            return result

        return signature.return_type(types.int64, *signature.args), codegen

    def _memcpy(context, builder, target_type, source_type, target, source, target_byte, source_byte, nbytes):
        def byte_pointer(array_type, array, byte):
            data = cgutils.create_struct_proxy(array_type)(context, builder, array).data
            return builder.gep(builder.bitcast(data, cgutils.voidptr_t), [byte])

        to = byte_pointer(target_type, target, target_byte)
        cgutils.raw_memcpy(builder, to, byte_pointer(source_type, source, source_byte), nbytes, 1)
        return context.get_dummy_value()

    @intrinsic
    def _copy(typingctx, target, target_byte, source, source_byte, nbytes):
        signature = types.void(target, types.int64, source, types.int64, types.int64)

        def codegen(context, builder, sig, args):
            return _memcpy(context, builder, sig.args[0], sig.args[2], args[0], args[2], args[1], args[3], args[4])

        return signature, codegen

    @intrinsic
    def _compare(typingctx, one, one_byte, other, other_byte, nbytes):
        """libc's memcmp of two ranges."""
        signature = types.int32(one, types.int64, other, types.int64, types.int64)

        def codegen(context, builder, sig, args):
            at = [_pointer(context, builder, sig.args[i], args[i], args[i + 1], types.uint8) for i in (0, 2)]
            kind = ir.FunctionType(ir.IntType(32), [cgutils.voidptr_t, cgutils.voidptr_t, ir.IntType(64)])
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, "memcmp"), [*at, args[4]])

        return signature, codegen

    @intrinsic
    def differing(typingctx, one, at, other, to, n):
        """A bit for each of 8 words, or of the first ``n``, that are not the same in two arrays."""
        words, mask, number = ir.VectorType(ir.IntType(64), 8), ir.VectorType(ir.IntType(1), 8), ir.IntType(32)

        def codegen(context, builder, sig, args):
            kind = ir.FunctionType(words, [words.as_pointer(), number, mask, words])
            load = cgutils.get_or_insert_function(builder.module, kind, "llvm.masked.load.v8i64.p0v8i64")
            most = builder.insert_element(ir.Constant(words, ir.Undefined), args[4], ir.Constant(number, 0))
            most = builder.shuffle_vector(most, most, ir.Constant(ir.VectorType(number, 8), [0] * 8))
            known, loaded = builder.icmp_signed("<", ir.Constant(words, [*range(8)]), most), []
            for array, index in ((0, 1), (2, 3)):
                byte = builder.mul(args[index], ir.Constant(ir.IntType(64), 8))
                place = _pointer(context, builder, sig.args[array], args[array], byte, types.int8)
                place = builder.bitcast(place, words.as_pointer())
                loaded.append(builder.call(load, [place, ir.Constant(number, 8), known, ir.Constant(words, [0] * 8)]))
            bits = builder.bitcast(builder.icmp_unsigned("!=", *loaded), ir.IntType(8))
            return builder.zext(bits, ir.IntType(64))

        return types.int64(one, types.int64, other, types.int64, types.int64), codegen

    @intrinsic
    def first_of(typingctx, bits):
        """The number of the lowest bit that is set; one must be."""

        def codegen(context, builder, sig, args):
            return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.int64), codegen

    def _prefetcher(word_bytes, level):
        def prefetch_line(typingctx, array, index):
            def codegen(context, builder, sig, args):
                byte = builder.mul(args[1], ir.Constant(ir.IntType(64), word_bytes))
                at = _pointer(context, builder, sig.args[0], args[0], byte, types.int8)
                numbers = [ir.IntType(32)] * 3
                kind = ir.FunctionType(ir.VoidType(), [at.type, *numbers])
                function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
                builder.call(function, [at, *(ir.Constant(ir.IntType(32), n) for n in (0, level, 1))])
                return context.get_dummy_value()

            return types.void(array, types.int64), codegen

        return intrinsic(prefetch_line)

    prefetch = _prefetcher(8, 3)
    """Have the line of a word brought into the cache, for what comes soon."""

    _prefetch_byte = _prefetcher(1, 2)  # into the second level, which can wait for several times as many lines

    @intrinsic
    def _into_line(typingctx, mem, address):
        """Count the bytes from the first of its line to a byte."""

        def codegen(context, builder, sig, args):
            at = _pointer(context, builder, sig.args[0], args[0], args[1], types.int8)
            return builder.and_(builder.ptrtoint(at, ir.IntType(64)), ir.Constant(ir.IntType(64), LINE_BYTES - 1))

        return types.int64(mem, types.int64), codegen

    def _line_copier(past_caches):
        """Copy a whole line; past the caches if it is one of the target too."""

        def copy_line(typingctx, mem, target, source):
            def codegen(context, builder, sig, args):
                line = ir.VectorType(ir.IntType(64), LINE_BYTES // 8).as_pointer()
                to, at = (_pointer(context, builder, mem, args[0], byte, types.int8) for byte in args[1:])
                value = builder.load(builder.bitcast(at, line), align=1)
                stored = builder.store(value, builder.bitcast(to, line), align=LINE_BYTES if past_caches else 1)
                if past_caches:
                    stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
                return context.get_dummy_value()

            return types.void(mem, types.int64, types.int64), codegen

        return intrinsic(copy_line)

    _copy_line, _stream_line = _line_copier(False), _line_copier(True)

    def _bitcast(to, of):
        def cast(typingctx, value):
            def codegen(context, builder, sig, args):
                return builder.bitcast(args[0], context.get_value_type(to))

            return to(of), codegen

        return intrinsic(cast)

    _float_of = _bitcast(types.float32, types.uint32)
    _bits_of = _bitcast(types.uint32, types.float32)

    def handle_of(step):
        """Return the number by which `call_step` finds a step function."""
        return step.address

    @intrinsic
    def _step_at(typingctx, handle, st, base):
        """Return what the C function at an address returns: an operation, or the status of a kernel's arithmetic."""

        def codegen(context, builder, sig, args):
            data = cgutils.create_struct_proxy(sig.args[1])(context, builder, args[1]).data
            kind = ir.FunctionType(ir.IntType(64), [data.type, ir.IntType(64)])
            return builder.call(builder.inttoptr(args[0], kind.as_pointer()), [data, args[2]])

        return types.int64(types.int64, st, types.int64), codegen

    @jit
    def call_step(handle, st, base):
        """Call a step function by its handle: a new kernel does not recompile the machine."""
        return _step_at(handle, st, base)

    def _pointer(context, builder, array_type, array, byte, kind):
        data = cgutils.create_struct_proxy(array_type)(context, builder, array).data
        at = builder.gep(builder.bitcast(data, cgutils.voidptr_t), [byte])
        return builder.bitcast(at, context.get_value_type(kind).as_pointer())

    def _loader(kind):
        def load(typingctx, mem, address):
            def codegen(context, builder, sig, args):
                value = builder.load(_pointer(context, builder, sig.args[0], args[0], args[1], kind))
                return context.cast(builder, value, kind, types.int64)

            return types.int64(mem, types.int64), codegen

        return intrinsic(load)

    def _storer(kind):
        def store(typingctx, mem, address, value):
            def codegen(context, builder, sig, args):
                value = context.cast(builder, args[2], types.int64, kind)
                builder.store(value, _pointer(context, builder, sig.args[0], args[0], args[1], kind))
                return context.get_dummy_value()

            return types.void(mem, types.int64, types.int64), codegen

        return intrinsic(store)

    _load_i64, _load_i32 = _loader(types.int64), _loader(types.int32)
    _store_i64, _store_u32 = _storer(types.int64), _storer(types.uint32)

    @jit
    def load_i64(mem, address):
        """The aligned 8-byte word at an address that was checked; a view would cost ten times as much."""
        return _load_i64(mem, address)

    @jit
    def load_i32(mem, address):
        """The aligned 4-byte word at an address that was checked, sign-extended."""
        return _load_i32(mem, address)

    @jit
    def store_i64(mem, address, value):
        """Store 8 bytes at an address that was checked."""
        _store_i64(mem, address, value)

    @jit
    def store_u32(mem, address, value):
        """Store the low 4 bytes at an address that was checked."""
        _store_u32(mem, address, value)

    @jit
    def copy_bytes(mem, target, source, nbytes):
        """Copy within memory (ranges must not overlap); one memcpy, not Numba's slower slice copy."""
        _copy(mem, target, mem, source, nbytes)

    @jit
    def _ask_for(mem, st, start, nbytes):
        for line in range(start, start + nbytes, LINE_BYTES):
            _prefetch_byte(mem, line)
            for _ in range(_PACE):  # of lines asked for one right after the other some are dropped
                prefetch(st, 0)

    @jit
    def fetch_bytes(mem, st, target, source, nbytes):
        """`copy_bytes` of what is in no cache: lines are asked for long before they are copied."""
        _ask_for(mem, st, source, min(nbytes, _AHEAD_BYTES))
        done = 0
        while done + _AHEAD_BYTES + LINE_BYTES <= nbytes:
            _prefetch_byte(mem, source + done + _AHEAD_BYTES)
            _copy_line(mem, target + done, source + done)
            done += LINE_BYTES
        copy_bytes(mem, target + done, source + done, nbytes - done)

    @jit
    def stream_bytes(mem, st, target, source, nbytes, far):
        """`copy_bytes` of at least a line, past the caches: nothing waits for what is overwritten.

        A source that is ``far`` is asked for as by `fetch_bytes`.
        """
        if far:
            _ask_for(mem, st, source, min(nbytes, _AHEAD_BYTES))
        done = -_into_line(mem, target) & LINE_BYTES - 1
        copy_bytes(mem, target, source, done)
        while far and done + _AHEAD_BYTES + LINE_BYTES <= nbytes:
            _prefetch_byte(mem, source + done + _AHEAD_BYTES)
            _stream_line(mem, target + done, source + done)
            done += LINE_BYTES
        while done + LINE_BYTES <= nbytes:
            _stream_line(mem, target + done, source + done)
            done += LINE_BYTES
        copy_bytes(mem, target + done, source + done, nbytes - done)

    @jit
    def same_bytes(mem, one, other, nbytes):
        """Return whether two ranges of memory are equal."""
        return _compare(mem, one, mem, other, nbytes) == 0

    @jit
    def copy_words(target, to, source, start, n):
        """Copy words of state, which must not overlap; faster than a loop, and less code."""
        _copy(target, 8 * to, source, 8 * start, 8 * n)

    @jit
    def bytes_to_words(st, word, mem, source, nbytes):
        """Copy bytes of memory into words of state."""
        _copy(st, 8 * word, mem, source, nbytes)

    @jit
    def words_to_bytes(mem, target, st, word, nbytes):
        """Copy words of state into bytes of memory."""
        _copy(mem, target, st, 8 * word, nbytes)

    @jit
    def float_of(bits):
        """The FP32 value with these 32 bits."""
        return _float_of(np.uint32(bits))

    @jit
    def bits_of(value):
        """The 32 bits of an FP32 value."""
        return _bits_of(np.float32(value))
