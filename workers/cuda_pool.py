"""Feature pools in the memory of a CUDA device, by the driver's own calls.

The library's way of sharing tensors leaves files behind when a process is killed, and does not
work with all settings of its allocator. Here one block is taken from the driver and exported
once; whoever maps it copies out of it and never makes a tensor of another device's memory.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from workers.features import MappedPool, PoolError

_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class _Handle(ctypes.Structure):
    _fields_ = (("content", ctypes.c_ubyte * _HANDLE_BYTES),)


class _Driver:
    """The driver in the context that the library uses on one device."""

    def __init__(self, device: torch.device) -> None:
        torch.cuda.init()  # type: ignore[no-untyped-call]  # the library types it not
        self.device = device
        self._library = _open_library()
        number, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(number), device.index or 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
        self._context = context

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver in the device's context.

        Raises:
            PoolError: it fails; the message has the driver's words.
        """
        with self._current():
            self._call(name, *arguments)

    @contextmanager
    def _current(self) -> Iterator[None]:
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            reason = (text.value or b"unknown error").decode()
            raise PoolError(f"{name} on {self.device} says: {reason}")


def _open_library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise PoolError(str(error)) from error


class CudaPools:
    """See `workers.features.Pools`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @cached_property
    def _driver(self) -> _Driver:
        return _Driver(self._device)

    def make(self, num_bytes: int) -> Tensor:
        """Take memory that only the end of the process gives back."""
        address = ctypes.c_uint64()
        self._driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(num_bytes))
        return torch.as_tensor(_Block(address.value, num_bytes), device=self._driver.device)

    def export(self, content: Tensor) -> bytes:
        """Name a whole block to other processes."""
        handle = _Handle()
        address = ctypes.c_uint64(content.data_ptr())
        self._driver.call("cuIpcGetMemHandle", ctypes.byref(handle), address)
        return bytes(handle.content)

    def open(self, handle: bytes, num_bytes: int) -> MappedPool:
        """Map a block into this device's addresses, wherever it lies."""
        if len(handle) != _HANDLE_BYTES:
            raise PoolError(f"a handle of {len(handle)} bytes")
        address = ctypes.c_uint64()
        name = _Handle.from_buffer_copy(handle)
        flags = ctypes.c_uint(_LAZY_PEER_ACCESS)
        self._driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), name, flags)
        return _Mapped(self._driver, address)


class _Block:
    """Device memory in the form in which libraries hand it to each other."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


class _Mapped:
    """See `workers.features.MappedPool`."""

    def __init__(self, driver: _Driver, address: ctypes.c_uint64) -> None:
        self._driver = driver
        self._address = address

    def copy(self, offset: int, target: Tensor) -> None:
        """Queue the copy on the stream that the library uses now."""
        stream = torch.cuda.current_stream(self._driver.device).cuda_stream
        self._driver.call(
            "cuMemcpyAsync",
            ctypes.c_uint64(target.data_ptr()),
            ctypes.c_uint64(self._address.value + offset),
            ctypes.c_size_t(target.nbytes),
            ctypes.c_void_p(stream),
        )

    def close(self) -> None:
        """Take the block out of this device's addresses."""
        self._driver.call("cuIpcCloseMemHandle", self._address)
