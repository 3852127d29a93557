import pytest

from config.workers import WorkerSpec, parse_workers


def test_auto_is_one_worker_per_gpu_with_both_roles() -> None:
    specs = parse_workers("auto", num_gpus=2)
    assert [spec.device for spec in specs] == ["cuda:0", "cuda:1"]
    assert all(spec.roles == ("vision", "language") for spec in specs)


def test_auto_without_a_gpu_is_one_cpu_worker() -> None:
    assert parse_workers("auto") == (WorkerSpec("worker-0", "cpu", ("vision", "language")),)


def test_roles_may_be_split_over_devices() -> None:
    specs = parse_workers("cpu:vision, cuda:3:vision ,cpu:language")
    assert [(spec.name, spec.device, spec.roles) for spec in specs] == [
        ("worker-0", "cpu", ("vision",)),
        ("worker-1", "cuda:3", ("vision",)),
        ("worker-2", "cpu", ("language",)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cpu",
        "cpu:",
        "cpu:vision",
        "cpu:language",
        "cpu:vision+vision,cpu:language",
        "cpu:vision+audio,cpu:language",
        "cuda:x:vision+language",
        "cpu:vision+language,",
    ],
)
def test_what_cannot_work_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"role|DEVICE"):
        parse_workers(text)
