"""A request in, a `Permit` out, or a refusal in microseconds: full means refuse, with a number."""

from dataclasses import dataclass, field

from config.settings import ServerSettings
from gateway.errors import Overloaded
from gateway.limits import Account


@dataclass(slots=True)
class Admission:
    """Counts what all requests hold at once. Owned by the gateway's event loop."""

    settings: ServerSettings
    num_running: int = 0
    num_bytes: int = 0

    def admit(self, account: Account) -> "Permit":
        """Take a place for one request, which goes on this account.

        Raises:
            Overloaded: `max_running_requests` are in work.
        """
        limit = self.settings.max_running_requests
        if self.num_running >= limit:
            raise Overloaded(f"{self.num_running} requests are running; the limit is {limit}")
        self.num_running += 1
        return Permit(self, account)


@dataclass(slots=True)
class Permit:
    """One request's place and the bytes it holds. Owned by the request's task."""

    admission: Admission
    account: Account
    num_bytes: int = field(default=0)
    released: bool = field(default=False)

    def hold(self, num_bytes: int) -> None:
        """Count bytes of a body or of encoded images that the request is going to hold.

        Raises:
            Overloaded: all requests together would hold more than the limit.
        """
        limit = self.admission.settings.max_bytes_in_flight
        held = self.admission.num_bytes
        if held + num_bytes > limit:
            raise Overloaded(
                f"{num_bytes} more bytes do not fit: {held} are in flight, the limit is {limit}"
            )
        self.admission.num_bytes += num_bytes
        self.num_bytes += num_bytes

    def keep(self, num_bytes: int) -> None:
        """Give back all but these: the body is unpacked, and its images are what remains."""
        self.admission.num_bytes -= self.num_bytes - num_bytes
        self.num_bytes = num_bytes

    def release(self) -> None:
        """Give everything back. Calling it twice does nothing."""
        if not self.released:
            self.released = True
            self.admission.num_running -= 1
            self.keep(0)
