"""How many CUDA devices this process may use, asked from the driver without importing torch."""

import ctypes


def count_gpus() -> int:
    """CUDA devices that CUDA_VISIBLE_DEVICES leaves visible; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value
