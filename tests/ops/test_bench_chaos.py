"""The chaos bench: what it counts as wrong, and a short run of it."""

import base64
import io
import random

import httpx
import pytest
from PIL import Image

from ops.bench.chaos.__main__ import judge, main
from ops.bench.chaos.catalogue import _uri, bad_body, make_questions
from ops.bench.chaos.faults import Fault
from ops.bench.chaos.memory import Sample, settled, slope
from ops.bench.chaos.traffic import Outcome, _compare, _refusal

KILL = Fault("SIGKILL", 100.0, 103.0)


def outcome(verdict: str, begun_at: float, ended_at: float, fault: str = "") -> Outcome:
    return Outcome("whole", verdict, begun_at, ended_at, fault)


def test_an_error_of_a_death_is_excused_only_beside_one() -> None:
    beside = [outcome("worker_lost", 90, 101), outcome("not_ready", 104, 105)]
    apart = [outcome("worker_lost", 80, 99), outcome("not_ready", 120, 121)]
    assert judge(beside, [KILL]) == []
    assert len(judge(apart, [KILL])) == 2
    assert len(judge(beside, [])) == 2


def test_wrong_answers_and_pools_that_do_not_recover_are_told() -> None:
    assert judge([outcome("right", 90, 101)], [KILL]) == []
    wrongs = judge([outcome("wrong", 90, 101, "a is not b")], [Fault("SIGSTOP", 90, None)])
    assert wrongs == ["whole: a is not b", "SIGSTOP: the pool did not recover"]


def test_answers_are_compared_in_all_their_choices() -> None:
    assert _compare(("a", "b"), ("a", "b")) == ("right", "")
    assert _compare(("a", "c"), ("a", "b"))[0] == "wrong"


def test_a_refusal_without_a_known_code_is_a_fault() -> None:
    known = httpx.Response(503, json={"error": {"code": "worker_lost"}})
    strange = httpx.Response(500, json={"error": {"code": "internal_error"}})
    assert _refusal(known) == ("worker_lost", "")
    assert _refusal(strange)[1].startswith("500")
    assert _refusal(httpx.Response(502, text="bad gateway"))[0] == "broken"


def test_questions_are_the_same_for_a_seed_and_new_files_have_the_same_pixels() -> None:
    questions = make_questions(3, 12)
    assert questions == make_questions(3, 12)
    assert {len(each.pictures) for each in questions} >= {0, 1}
    (pictured,) = [each for each in questions if each.pictures][:1]
    plain = pictured.body("m", streamed=False, nonce=None)
    assert plain != pictured.body("m", streamed=False, nonce=5)
    assert b'"image_url"' in plain
    assert len(bad_body("m", random.Random(1))) > 50


def test_a_comment_changes_a_picture_s_bytes_alone() -> None:
    (pictured,) = [each for each in make_questions(3, 12) if each.pictures][:1]
    files = [base64.b64decode(_uri(pictured.pictures[0], n).split(",")[1]) for n in (None, 1, 2)]
    assert len(set(files)) == 3
    pixels = {Image.open(io.BytesIO(each)).convert("RGB").tobytes() for each in files}
    assert len(pixels) == 1


def test_the_slope_is_that_of_the_settled_part() -> None:
    samples = [Sample(at, 100 - at if at < 30 else 70 + at / 60) for at in range(100)]
    rest = settled(samples)
    assert rest[0].at == 30
    assert slope(rest) == pytest.approx(1.0)
    assert slope(rest[:1]) == 0


@pytest.mark.slow
def test_half_a_minute_of_chaos_leaves_nothing_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a model, so that a machine with one core gets through some faults in that time."""
    arguments = ("--minutes", "0.4", "--rest-seconds", "3", "--seed", "11", "--questions", "20")
    status = main([*arguments, "--main", "tests.fake_gateway"])
    told = capsys.readouterr().out
    assert status == 0, told
    assert "0 things that must not happen" in told
    assert "SIG" in told
