"""What pyproject.toml asks for goes into two files for pip, each a layer of the image.

`python requirements.py PYPROJECT FOLDER` writes FOLDER/torch.txt, the large pair, and
FOLDER/others.txt, all else that serving needs, traces included. They change less often than
pyproject.toml does: a builder uses its layers again as long as their text stays the same.
"""

import re
import sys
import tomllib
from pathlib import Path

PAIR = ("torch", "torchvision")


def split(pyproject: str) -> dict[str, list[str]]:
    """The requirements in pyproject's text, by the name of the file they go into."""
    project = tomllib.loads(pyproject)["project"]
    asked = sorted([*project["dependencies"], *project["optional-dependencies"]["otel"]])
    files: dict[str, list[str]] = {"torch.txt": [], "others.txt": []}
    for requirement in asked:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        files["torch.txt" if name in PAIR else "others.txt"].append(requirement)
    return files


def main(pyproject: str, folder: str) -> None:
    """Write the files into a folder that is made if it is not there."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, requirements in split(Path(pyproject).read_text(encoding="utf-8")).items():
        text = "".join(f"{each}\n" for each in requirements)
        (Path(folder) / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
