"""Shares of a profile: by process, without waiting threads."""

from ops.bench.hotspots import read_profiles, to_text

STACKS = """\
process 7:"python -m gateway";main (gateway/app.py:3);decode (/x/site-packages/PIL/Image.py:9) 30
process 7:"python -m gateway";main (gateway/app.py:3);decode (/x/site-packages/PIL/Image.py:8) 10
process 7:"python -m gateway";main (gateway/app.py:5);send (gateway/answers/sse.py:2) 60
process 7:"python -m gateway";Condition.wait (threading.py:331) 500
process 7:"python -m gateway";main (gateway/app.py:1);process 8:"worker";step (workers/x.py:2) 5
"""


def test_a_child_is_counted_apart_from_its_parent() -> None:
    profiles = read_profiles(STACKS.splitlines())
    assert list(profiles) == ["7 python -m gateway", "8 worker"]
    assert profiles["8 worker"].own == {"step (workers/x.py)": 5}


def test_waiting_threads_take_no_share() -> None:
    profile = read_profiles(STACKS.splitlines())["7 python -m gateway"]
    assert (profile.num_working, profile.num_waiting) == (100, 500)


def test_lines_of_one_function_are_one_row_under_its_package_path() -> None:
    text = to_text(read_profiles(STACKS.splitlines()), num_rows=5)
    assert " 40.0 %  decode (PIL/Image.py)" in text


def test_a_function_that_holds_everything_is_not_listed() -> None:
    text = to_text(read_profiles(STACKS.splitlines()), num_rows=5)
    assert "main (gateway/app.py)" not in text
    assert text.count("send (gateway/answers/sse.py)") == 2


def test_the_busiest_process_comes_first() -> None:
    lines = to_text(read_profiles(STACKS.splitlines()), num_rows=1).splitlines()
    assert lines[0] == "7 python -m gateway: 100 samples at work, 500 waiting"
