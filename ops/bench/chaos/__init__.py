"""A gateway under mixed traffic while its workers are killed; `python -m ops.bench.chaos -h`."""
