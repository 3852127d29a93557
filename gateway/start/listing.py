"""Settings in, text out: for `fovea config` and for the README's table."""

from config.settings import Settings, fields, variable


def settings_listing(settings: Settings) -> str:
    """One line `NAME=value` per setting, with its meaning as a comment above."""
    lines = []
    for section, name, field in fields():
        value = getattr(getattr(settings, section), name)
        lines.append(f"# {field.description}\n{variable(name)}={value}\n")
    return "\n".join(lines)


def settings_table() -> str:
    """The settings as a Markdown table: variable, default, meaning."""
    rows = ["| Variable | Default | Meaning |", "|---|---|---|"]
    for _, name, field in fields():
        default = "" if name == "model" else field.default
        rows.append(f"| `{variable(name)}` | {_cell(default)} | {field.description} |")
    return "\n".join(rows) + "\n"


def _cell(value: object) -> str:
    return f"`{value}`" if str(value) else ""
