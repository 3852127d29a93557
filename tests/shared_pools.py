"""Feature pools of shared memory: all that CUDA does for `workers.cuda_pool`, on any machine."""

import mmap
import os

import torch
from torch import Tensor

from workers.features import PoolError


class SharedPools:
    """See `workers.features.Pools`. As with CUDA, a handle is of no use once its maker is gone."""

    def __init__(self) -> None:
        self._file_numbers: dict[int, int] = {}  # by the address of the content

    def make(self, num_bytes: int) -> Tensor:
        file_number = os.memfd_create("pool")
        os.truncate(file_number, num_bytes)
        content = torch.frombuffer(mmap.mmap(file_number, num_bytes), dtype=torch.uint8)
        self._file_numbers[content.data_ptr()] = file_number
        return content

    def export(self, content: Tensor) -> bytes:
        return f"/proc/{os.getpid()}/fd/{self._file_numbers[content.data_ptr()]}".encode()

    def open(self, handle: bytes, num_bytes: int) -> "MappedFile":
        try:
            file_number = os.open(handle, os.O_RDWR)
        except OSError as error:
            raise PoolError(str(error)) from error
        memory = mmap.mmap(file_number, num_bytes)
        os.close(file_number)
        return MappedFile(memory)


class MappedFile:
    """See `workers.features.MappedPool`."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def copy(self, offset: int, target: Tensor) -> None:
        size = target.nbytes
        content = bytearray(self._memory[offset : offset + size])
        target.view(-1).view(torch.uint8).copy_(torch.frombuffer(content, dtype=torch.uint8))

    def close(self) -> None:
        self._memory.close()


class NoExport(SharedPools):
    """As in a container that forbids it."""

    def export(self, content: Tensor) -> bytes:
        raise PoolError("the driver does not export memory here")


class NoOpen(SharedPools):
    """As where the devices do not reach each other."""

    def open(self, handle: bytes, num_bytes: int) -> MappedFile:
        raise PoolError("the driver does not map memory here")
