"""The transport follows from the fleet and the devices; what cannot be had is refused."""

from typing import Literal

import pytest

from config.workers import parse_workers
from workers.transport import TransportError, choose_transport, is_shared


def everywhere(_device: int, _other: int) -> bool:
    return True


def nowhere(device: int, other: int) -> bool:
    return device == other


GPUS = "cuda:0:vision+language,cuda:1:vision,cuda:1:language"


@pytest.mark.parametrize(
    ("wanted", "workers", "chosen"),
    [
        ("auto", GPUS, "cuda_ipc"),
        ("auto", "cuda:vision+language", "cuda_ipc"),
        ("auto", "cpu:vision+language", "cpu"),
        ("auto", "cuda:0:vision,cpu:language", "cpu"),
        ("auto", "cpu:vision,cuda:0:vision+language", "cpu"),
        ("cpu", GPUS, "cpu"),
        ("cuda_ipc", GPUS, "cuda_ipc"),
    ],
)
def test_auto_keeps_embeddings_on_devices_where_all_workers_can(
    wanted: Literal["auto", "cpu", "cuda_ipc"], workers: str, chosen: str
) -> None:
    assert choose_transport(wanted, parse_workers(workers), everywhere, "linux") == chosen


@pytest.mark.parametrize(
    ("workers", "platform", "reason"),
    [
        ("cuda:0:vision,cpu:language", "linux", "worker-1 is on the device cpu"),
        (GPUS, "darwin", "this is darwin"),
        (GPUS, "linux", "cuda:1 cannot read the memory of cuda:0"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_setting_and_the_reason(
    workers: str, platform: str, reason: str
) -> None:
    specs = parse_workers(workers)
    with pytest.raises(TransportError, match=f"FOVEA_FEATURE_TRANSPORT=cuda_ipc .*: .*{reason}"):
        choose_transport("cuda_ipc", specs, nowhere, platform)
    assert choose_transport("auto", specs, nowhere, platform) == "cpu"


def test_only_pairs_of_an_engine_and_an_owner_need_to_reach_each_other() -> None:
    def second_reads_first(device: int, other: int) -> bool:
        return (device, other) == (1, 0)

    specs = parse_workers("cuda:0:vision,cuda:1:language")
    assert choose_transport("auto", specs, second_reads_first, "linux") == "cuda_ipc"
    specs = parse_workers("cuda:1:vision,cuda:0:language")
    assert choose_transport("auto", specs, second_reads_first, "linux") == "cpu"


def test_a_pool_is_shared_if_another_worker_has_an_engine() -> None:
    specs = parse_workers("cpu:vision+language,cpu:vision,cpu:language")
    assert [is_shared(index, specs) for index in range(3)] == [True, True, False]
    assert not is_shared(0, parse_workers("cpu:vision+language"))
    assert not is_shared(0, parse_workers("cpu:vision+language,cpu:vision"))
