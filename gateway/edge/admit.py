"""A request in, a `Permit` out, or a refusal in microseconds: full means refuse, with a number.

All is counted before the work that it stands for: places when a request comes, bytes as they come
in, images as soon as the body is read, though not yet their sizes. Requests with images get no more
than a share of the places, and bodies that are small get in whatever images take up: so a flood of
images leaves room for text.
"""

from dataclasses import dataclass, field

from config.limits import LimitSettings
from config.settings import ServerSettings
from gateway.edge.limits import Account
from gateway.edge.pace import Pace
from gateway.errors import BadRequest, Overloaded

ASSUMED_PIXELS = 1 << 20  # of an image whose header was not read yet
SMALL_BYTES = 64 << 10  # of each request, which do not count
MAX_SCORES = 1 << 18  # numbers that one request may be told of its prompts' own tokens
_SCORE_BYTES = 200  # of one of them, on its way to the client
# A body above this is taken to have images without a look, where that matters.
_SEARCHED_BYTES = 1 << 20
_MARKS = (b'"image_url"', b'"image_tensors"', b'"input_image"')
_TEXT_PART = 4  # one place of so many is for text alone
_MAX_RETRY_SECONDS = 60


@dataclass(slots=True)
class Admission:
    """Counts what all requests hold at once. Owned by the gateway's event loop."""

    settings: ServerSettings
    limits: LimitSettings = field(default_factory=LimitSettings)
    num_running: int = 0  # answers: a request counts once for each of its choices
    num_with_images: int = 0  # of these
    num_bytes: int = 0
    num_pixels: int = 0  # of images that are not encoded yet
    num_tokens: int = 0  # that prompts and answers may come to hold of the KV caches
    pace: Pace = field(default_factory=Pace)  # pixels that are done

    def admit(self, account: Account) -> "Permit":
        """Take a place for one request, which goes on this account.

        Raises:
            Overloaded: `max_running_requests` are in work.
        """
        self._check("max_running_requests", self.num_running, self.settings.max_running_requests)
        self.num_running += 1
        return Permit(self, account)

    def check_images(self) -> None:
        """Raise Overloaded where requests with images are not let in now."""
        self._check("max_image_requests", self.num_with_images, self.max_image_requests)
        retry_seconds = min(self.pace.seconds_for(self.num_pixels), _MAX_RETRY_SECONDS)
        limit = self.limits.max_queued_pixels
        self._check("max_queued_pixels", self.num_pixels, limit, retry_seconds)

    @property
    def max_image_requests(self) -> int:
        """Places that requests with images may take."""
        num_places = self.settings.max_running_requests
        return self.limits.max_image_requests or num_places - num_places // _TEXT_PART

    def _check(self, name: str, value: int, limit: int, retry_seconds: float = 1.0) -> None:
        if value >= limit:
            raise Overloaded.by(name, value, limit, retry_seconds)


@dataclass(slots=True)
class Permit:
    """One request's place and what it holds. Owned by the request's task."""

    admission: Admission
    account: Account
    num_choices: int = 1
    num_bytes: int = 0
    num_with_images: int = 0  # of the choices; 0 or all
    num_pixels: int = 0
    num_tokens: int = 0
    num_scores: int = 0
    released: bool = False

    def hold(self, num_bytes: int) -> None:
        """Count bytes of a body or of encoded images that the request is going to hold.

        Raises:
            Overloaded: all requests together would hold more than the limit.
        """
        counted = max(0, self.num_bytes + num_bytes - SMALL_BYTES) - self._counted_bytes
        held, limit = self.admission.num_bytes, self.admission.settings.max_bytes_in_flight
        if counted and held + counted > limit:
            raise Overloaded.by("max_bytes_in_flight", held, limit)
        self.admission.num_bytes += counted
        self.num_bytes += num_bytes

    def keep(self, num_bytes: int) -> None:
        """Give back all but these: the body is unpacked, and its images are what remains."""
        before = self._counted_bytes
        self.num_bytes = num_bytes
        self.admission.num_bytes += self._counted_bytes - before

    def look_at(self, body: bytes) -> None:
        """Count a body that looks as if it had images, which reading it may have to wait to tell.

        Raises:
            Overloaded: requests with images are not let in now.
        """
        if len(body) > _SEARCHED_BYTES or any(mark in body for mark in _MARKS):
            self.admission.check_images()
            self._count_images(1, 1)

    def expect(self, num_choices: int, num_images: int) -> None:
        """Count the choices and images that the body asks for.

        Raises:
            Overloaded: there is no room for them.
        """
        more, running = num_choices - 1, self.admission.num_running
        limit = self.admission.settings.max_running_requests
        if running + more > limit and running > 1:  # by itself a request is let in
            raise Overloaded.by("max_running_requests", running, limit)
        if num_images and not self.num_with_images:
            self.admission.check_images()
        self.admission.num_running += more
        self.num_choices = num_choices
        self._count_images(num_choices if num_images else 0, num_images)

    def measure(self, num_pixels: int) -> None:
        """One image has turned out to be so large."""
        self._count_pixels(num_pixels - ASSUMED_PIXELS)

    def finish_images(self) -> None:
        """All images are encoded. Calling it twice does nothing."""
        self.admission.pace.add(self.num_pixels)
        self._count_pixels(-self.num_pixels)

    def demand(self, num_tokens: int, kv_cache_tokens: int) -> None:
        """Count tokens that prompt and answers may come to hold of KV caches of this size.

        Raises:
            Overloaded: all requests together would want too much.
        """
        wanted = self.admission.num_tokens
        limit = int(self.admission.limits.max_kv_demand * kv_cache_tokens)
        if wanted and wanted + num_tokens > limit:
            raise Overloaded.by("max_kv_demand", wanted, limit)
        self.admission.num_tokens += num_tokens
        self.num_tokens += num_tokens

    def score(self, num_scores: int) -> None:
        """Count what is going to be told of the tokens of one prompt.

        Raises:
            BadRequest: it is more than one request may be told.
            Overloaded: all requests together would hold more bytes than the limit.
        """
        self.num_scores += num_scores
        if self.num_scores > MAX_SCORES:
            raise BadRequest(
                f"echo with logprobs would tell {self.num_scores} numbers or more about the "
                f"prompts, 1 + logprobs for each token and choice; the limit is {MAX_SCORES}",
                param="logprobs",
            )
        self.hold(num_scores * _SCORE_BYTES)

    def release(self) -> None:
        """Give everything back. Calling it twice does nothing."""
        if self.released:
            return
        self.released = True
        self.keep(0)
        self._count_images(0, 0)
        self.admission.num_running -= self.num_choices
        self.admission.num_tokens -= self.num_tokens

    @property
    def _counted_bytes(self) -> int:
        return max(0, self.num_bytes - SMALL_BYTES)

    def _count_images(self, num_with_images: int, num_images: int) -> None:
        self.admission.num_with_images += num_with_images - self.num_with_images
        self.num_with_images = num_with_images
        self._count_pixels(num_images * ASSUMED_PIXELS - self.num_pixels)

    def _count_pixels(self, num_pixels: int) -> None:
        self.num_pixels += num_pixels
        self.admission.num_pixels += num_pixels
