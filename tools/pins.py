"""Write requirements-release.txt: what a release depends on, every version pinned, with the hashes of all its files.

    python tools/pins.py [--out requirements-release.txt]

Names are those that the installed packages ask for, from bough's own dependencies on; versions are those of
constraints.txt, or the installed ones; hashes are the registry's, of all files of a version, for every platform. A
machine whose PyTorch is a CPU build lacks the packages that the default build needs for CUDA: the file made there says
so.
"""

# ruff: noqa: T201, INP001 - a program

import argparse
import re
import sys
import urllib.request
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from pip._internal.models.index import PyPI
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

REGISTRY = PyPI.simple_url  # pip's own default
HEAD = """# The dependencies of a release with the hashes of their files, by `make pins`, for Linux and Python {python}.
# pip install --require-hashes -r requirements-release.txt && pip install --no-deps bough
"""
CPU = """# Made beside a CPU build of PyTorch: the packages of CUDA are not listed.
"""


def pinned() -> dict[str, str]:
    """The versions of constraints.txt."""
    lines = (line.split("#")[0].strip() for line in Path("constraints.txt").read_text(encoding="utf-8").splitlines())
    requirements = [Requirement(line) for line in lines if line]
    applicable = [r for r in requirements if r.marker is None or r.marker.evaluate()]
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in applicable}


def closure() -> list[str]:
    """The names of all that bough needs."""
    waiting, names = [Requirement("bough")], set[str]()
    while waiting:
        requirement = waiting.pop()
        extras = requirement.extras or {""}
        more = [Requirement(text) for text in requires(requirement.name) or ()]
        needed = [r for r in more if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in extras)]
        waiting += [r for r in needed if canonicalize_name(r.name) not in names]
        names |= {canonicalize_name(r.name) for r in needed}
    return sorted(names)


def hashes(name: str, chosen: str) -> list[str]:
    """SHA-256 of every file of a version."""
    with urllib.request.urlopen(f"{REGISTRY}/{name}/", timeout=60) as answer:  # noqa: S310 - https
        page = answer.read().decode()
    stem = rf"{re.sub('[-_.]', '[-_.]', name)}-{re.escape(chosen)}(?:-[^\"/]*\.whl|\.tar\.gz|\.zip)"
    digests = re.findall(rf'/{stem}#sha256=([0-9a-f]{{64}})"', page, re.IGNORECASE)
    if not digests:
        raise SystemExit(f"the registry has no file of {name} {chosen}")
    return sorted(set(digests))


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description="pin the dependencies of a release")
    parser.add_argument("--out", type=Path, default=Path("requirements-release.txt"))
    options = parser.parse_args()
    versions, lines = pinned(), [HEAD.format(python=".".join(map(str, sys.version_info[:2])))]
    try:
        names = closure()
        if "+cpu" in version("torch"):
            lines.append(CPU)
    except PackageNotFoundError as error:
        raise SystemExit(f"{error.name} is not installed here; run `make demo` first") from None
    for name in names:
        chosen = versions.get(name) or version(name).split("+")[0]
        listed = " \\\n".join(f"    --hash=sha256:{digest}" for digest in hashes(name, chosen))
        lines.append(f"{name}=={chosen} \\\n{listed}\n")
    options.out.write_text("".join(lines), encoding="utf-8")
    print(f"{options.out}: {len(names)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
