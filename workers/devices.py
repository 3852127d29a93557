"""What CUDA devices this process may use, asked from the driver without importing torch."""

import ctypes


def count_gpus() -> int:
    """CUDA devices that CUDA_VISIBLE_DEVICES leaves visible; 0 without a driver."""
    driver = _open_driver()
    count = ctypes.c_int(0)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def can_reach(device: int, other: int) -> bool:
    """Whether one CUDA device reads the memory of another; both are numbers as torch's."""
    if device == other:
        return True
    driver = _open_driver()
    reaches = ctypes.c_int(0)
    if driver is None or driver.cuDeviceCanAccessPeer(ctypes.byref(reaches), device, other) != 0:
        return False
    return bool(reaches.value)


def device_bytes(device: int) -> int | None:
    """Memory of one CUDA device by torch's number, in all; None if the driver does not say."""
    driver = _open_driver()
    handle, size = ctypes.c_int(0), ctypes.c_size_t(0)
    if driver is None or driver.cuDeviceGet(ctypes.byref(handle), device) != 0:
        return None
    return size.value if driver.cuDeviceTotalMem_v2(ctypes.byref(size), handle) == 0 else None


def _open_driver() -> ctypes.CDLL | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None
