"""`fovea serve`, but for its payloads: `python -m ops.bench.deferral.serve_eager`."""

from gateway import __main__ as fovea
from gateway import forms, server
from ops.bench.deferral.eager import EagerPatches


def main() -> None:
    """Serve with patches made in the gateway."""
    # Where the gateway takes its rule from; this process does nothing else.
    vars(server)["ResizedPixels"] = lambda: EagerPatches(forms.ResizedPixels())
    fovea.main()


if __name__ == "__main__":
    main()
