import pytest

from config.limits import LimitSettings
from config.settings import ServerSettings
from gateway.edge.admit import ASSUMED_PIXELS, MAX_SCORES, SMALL_BYTES, Admission
from gateway.edge.keys import KeyLimits
from gateway.edge.limits import Account
from gateway.edge.pace import Pace
from gateway.errors import BadRequest, Overloaded

ACCOUNT = Account(b"", KeyLimits())


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_request_over_the_limit_is_refused_with_both_numbers() -> None:
    admission = Admission(ServerSettings(max_running_requests=2))
    first = admission.admit(ACCOUNT)
    admission.admit(ACCOUNT)
    with pytest.raises(Overloaded, match="2 are in work; the limit max_running_requests is 2"):
        admission.admit(ACCOUNT)
    first.release()
    admission.admit(ACCOUNT)


def test_bytes_are_bounded_over_all_requests_and_given_back() -> None:
    limit = 1 << 20
    admission = Admission(ServerSettings(max_bytes_in_flight=limit))
    first, second = admission.admit(ACCOUNT), admission.admit(ACCOUNT)
    first.hold(SMALL_BYTES + limit - 10)
    second.hold(SMALL_BYTES)
    second.hold(10)
    with pytest.raises(Overloaded, match=f"max_bytes_in_flight is {limit}"):
        second.hold(1)
    first.keep(SMALL_BYTES + limit - 15)
    second.hold(5)
    first.release()
    second.hold(limit - 15)
    second.release()
    assert (admission.num_running, admission.num_bytes) == (0, 0)


def test_small_bodies_get_in_whatever_large_ones_take_up() -> None:
    admission = Admission(ServerSettings(max_bytes_in_flight=1 << 20))
    admission.admit(ACCOUNT).hold(SMALL_BYTES + (1 << 20))
    small = admission.admit(ACCOUNT)
    small.hold(SMALL_BYTES - 1)
    small.hold(1)
    with pytest.raises(Overloaded):
        small.hold(1)


def test_what_is_told_of_prompts_is_bounded_by_request_and_counts_as_bytes() -> None:
    admission = Admission(ServerSettings(max_bytes_in_flight=1 << 20))
    one, other = admission.admit(ACCOUNT), admission.admit(ACCOUNT)
    one.score(5000)
    assert one.num_bytes > 5 * SMALL_BYTES
    with pytest.raises(Overloaded, match="max_bytes_in_flight"):
        other.score(5000)
    one.release()
    other.score(5000)
    with pytest.raises(BadRequest, match=f"limit is {MAX_SCORES}"):
        other.score(MAX_SCORES - 4999)
    other.release()
    assert admission.num_bytes == 0


def test_a_request_counts_once_for_each_of_its_choices() -> None:
    admission = Admission(ServerSettings(max_running_requests=4))
    one, several = admission.admit(ACCOUNT), admission.admit(ACCOUNT)
    several.expect(3, 0)
    with pytest.raises(Overloaded) as refusal:
        admission.admit(ACCOUNT)
    assert refusal.value.extra() == {
        "limit": {"name": "max_running_requests", "value": 4, "limit": 4}
    }
    one.release()
    late = admission.admit(ACCOUNT)
    with pytest.raises(Overloaded):
        late.expect(2, 0)
    late.release()
    several.release()
    assert admission.num_running == 0


def test_a_request_with_more_choices_than_places_is_served_by_itself() -> None:
    admission = Admission(ServerSettings(max_running_requests=2))
    admission.admit(ACCOUNT).expect(8, 0)


def test_requests_with_images_leave_a_quarter_of_the_places_to_text() -> None:
    admission = Admission(ServerSettings(max_running_requests=8))
    for _ in range(6):
        admission.admit(ACCOUNT).expect(1, 2)
    with pytest.raises(Overloaded, match="6 are in work; the limit max_image_requests is 6"):
        admission.admit(ACCOUNT).expect(1, 1)
    admission.admit(ACCOUNT).expect(1, 0)


def test_images_are_let_in_until_their_pixels_are_too_many() -> None:
    admission = Admission(ServerSettings(), LimitSettings(max_queued_pixels=3 * ASSUMED_PIXELS))
    first, second = admission.admit(ACCOUNT), admission.admit(ACCOUNT)
    first.expect(1, 2)
    first.measure(10)
    first.measure(2 * ASSUMED_PIXELS - 10)
    second.expect(1, 1)
    assert admission.num_pixels == 3 * ASSUMED_PIXELS
    late = admission.admit(ACCOUNT)
    with pytest.raises(Overloaded, match="max_queued_pixels"):
        late.expect(1, 1)
    first.finish_images()
    first.finish_images()
    late.expect(1, 1)
    for permit in (first, second, late):
        permit.release()
    assert (admission.num_pixels, admission.num_with_images) == (0, 0)


@pytest.mark.parametrize("mark", ['"image_url"', '"image_tensors"'])
def test_a_body_with_images_counts_and_is_refused_before_it_is_read(mark: str) -> None:
    admission = Admission(ServerSettings(), LimitSettings(max_image_requests=1))
    first, text, images = (admission.admit(ACCOUNT) for _ in range(3))
    body = f"{{{mark}: 1}}".encode()
    first.look_at(body)
    text.look_at(b'{"text": "an image_url"}')
    with pytest.raises(Overloaded, match="max_image_requests"):
        images.look_at(body)
    first.expect(1, 0)  # it had none after all
    images.look_at(body)
    images.expect(2, 3)
    assert (admission.num_with_images, admission.num_pixels) == (2, 3 * ASSUMED_PIXELS)
    images.release()
    assert (admission.num_with_images, admission.num_pixels) == (0, 0)


def test_how_long_to_wait_is_told_by_how_fast_images_were_done_lately() -> None:
    clock = Clock()
    admission = Admission(ServerSettings(), LimitSettings(max_queued_pixels=1), pace=Pace(clock))
    done, waiting = admission.admit(ACCOUNT), admission.admit(ACCOUNT)
    done.expect(1, 1)
    done.finish_images()
    waiting.expect(1, 1)
    waiting.measure(4 * ASSUMED_PIXELS)
    with pytest.raises(Overloaded) as refusal:
        admission.admit(ACCOUNT).expect(1, 1)
    soon = refusal.value.retry_after_seconds
    clock.now += 5  # nothing is done any more
    with pytest.raises(Overloaded) as refusal:
        admission.admit(ACCOUNT).expect(1, 1)
    later = refusal.value.retry_after_seconds
    assert soon is not None
    assert later is not None
    assert 1 < soon < later <= 60


def test_prompts_and_answers_may_want_a_multiple_of_what_caches_hold() -> None:
    admission = Admission(ServerSettings(), LimitSettings(max_kv_demand=2))
    first, second = admission.admit(ACCOUNT), admission.admit(ACCOUNT)
    first.demand(500, 100)  # by itself anything is let in
    with pytest.raises(Overloaded, match="500 are in work; the limit max_kv_demand is 200"):
        second.demand(1, 100)
    first.release()
    second.demand(150, 100)
    second.release()
    assert admission.num_tokens == 0


def test_releasing_twice_gives_back_once() -> None:
    admission = Admission(ServerSettings())
    permit, other = admission.admit(ACCOUNT), admission.admit(ACCOUNT)
    permit.hold(SMALL_BYTES + 5)
    permit.release()
    permit.release()
    assert (admission.num_running, admission.num_bytes) == (1, 0)
    other.release()
