"""Callers' own names of images in, what they showed under them out."""

from collections import OrderedDict
from dataclasses import dataclass

from gateway.errors import ImageRejected
from gateway.prompts.prompt import SourceForm
from workers.families.plan import ImagePlan

MAX_NAMES = 65_536  # about 0.8 kB each, of the longest names 2 kB


@dataclass(frozen=True, slots=True)
class Shown:
    """An image that was encoded: where to look for it, and what stands for its header."""

    digest: bytes
    plan: ImagePlan
    form: SourceForm  # a name of one form means nothing in the other


class NameBook:
    """The image that each name stood for last; the names used latest. Owned by the event loop.

    A name is only a hint. It is learnt from a request that showed the image as well, it means
    nothing to other tenants, and where both come the image decides.
    """

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._max_names = max_names
        # With the arrival of the request that showed it.
        self._shown: OrderedDict[tuple[bytes, str], tuple[int, Shown]] = OrderedDict()

    def learn(self, tenant: bytes, name: str, shown: Shown, arrival: int) -> None:
        """Note what a request showed under a name, unless one that came later did so before.

        Args:
            tenant: whose request it is.
            name: the caller's.
            shown: the image.
            arrival: tells the order in which requests came, whenever they get this far.
        """
        latest, _ = self._shown.get((tenant, name), (arrival, shown))
        if arrival < latest:
            return
        self._shown[tenant, name] = arrival, shown
        self._shown.move_to_end((tenant, name))
        if len(self._shown) > self._max_names:
            self._shown.popitem(last=False)

    def find(self, tenant: bytes, name: str) -> Shown | None:
        """What the tenant showed last under the name."""
        if (tenant, name) not in self._shown:
            return None
        self._shown.move_to_end((tenant, name))
        return self._shown[tenant, name][1]


def image_not_kept(index: int, param: str) -> ImageRejected:
    """What a caller is told who sent a name whose image is not there, or never was."""
    return ImageRejected(
        "no image is kept under this uuid; send the image with it",
        index=index,
        stage="fetch",
        param=param,
        code="image_not_kept",
    )
