import subprocess
import sys

HEAVY = ("torch", "torchvision", "transformers")


def test_the_gateway_process_holds_no_torch() -> None:
    code = (
        "import sys, gateway.__main__\n"
        "from config.settings import DEMO_MODEL\n"
        "from gateway.prompts.checkpoint import load_checkpoint\n"
        "load_checkpoint(DEMO_MODEL)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
