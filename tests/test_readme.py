import re
from pathlib import Path

from gateway.start.listing import settings_table

README = Path(__file__).parent.parent / "README.md"


def test_the_settings_table_is_in_step_with_the_settings() -> None:
    """To mend it: `python -m ops.settings_table`."""
    text = README.read_text(encoding="utf-8")
    table = text.split("<!-- settings -->\n")[1].split("<!-- /settings -->")[0]
    assert table == settings_table()


def test_relative_links_of_every_readme_resolve() -> None:
    for path in README.parent.rglob("README.md"):
        if ".venv" in path.parts:
            continue
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path}: {target}"
