import pytest

from config.settings import ServerSettings
from gateway.admit import Admission
from gateway.errors import Overloaded
from gateway.keys import KeyLimits
from gateway.limits import Account

ACCOUNT = Account(b"", KeyLimits())


def test_a_request_over_the_limit_is_refused_with_both_numbers() -> None:
    admission = Admission(ServerSettings(max_running_requests=2))
    first = admission.admit(ACCOUNT)
    admission.admit(ACCOUNT)
    with pytest.raises(Overloaded, match="2 requests are running; the limit is 2"):
        admission.admit(ACCOUNT)
    first.release()
    admission.admit(ACCOUNT)


def test_bytes_are_bounded_over_all_requests_and_given_back() -> None:
    limit = 1 << 20
    admission = Admission(ServerSettings(max_bytes_in_flight=limit))
    first, second = admission.admit(ACCOUNT), admission.admit(ACCOUNT)
    first.hold(limit - 10)
    second.hold(10)
    with pytest.raises(Overloaded, match=f"the limit is {limit}"):
        second.hold(1)
    first.keep(limit - 15)
    second.hold(5)
    first.release()
    second.hold(limit - 15)
    second.release()
    assert (admission.num_running, admission.num_bytes) == (0, 0)


def test_releasing_twice_gives_back_once() -> None:
    admission = Admission(ServerSettings())
    permit, other = admission.admit(ACCOUNT), admission.admit(ACCOUNT)
    permit.hold(5)
    permit.release()
    permit.release()
    assert (admission.num_running, admission.num_bytes) == (1, 0)
    other.release()
