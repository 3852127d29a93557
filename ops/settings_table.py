"""Write the settings table of the README anew: `python -m ops.settings_table`."""

from pathlib import Path

from gateway.start.listing import settings_table

README = Path(__file__).parent.parent / "README.md"


def main() -> None:
    before, rest = README.read_text(encoding="utf-8").split("<!-- settings -->\n")
    behind = rest.split("<!-- /settings -->")[1]
    text = f"{before}<!-- settings -->\n{settings_table()}<!-- /settings -->{behind}"
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
