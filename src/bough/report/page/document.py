"""Data, scripts and styles become one document.

Whatever a file is called, it stays data: the payload is JSON in which no `<` is left, the scripts only ever set text,
and the content security policy names the hashes of our own script and style, and allows nothing else, the network
included.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

# In this order: later files use what earlier ones define.
SCRIPTS = (
    *("base", "model", "table", "plot", "charts", "overview"),
    *("tree", "heat", "treeview", "explorer", "pictures", "instance", "main"),
)
HARMLESS = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})  # the same strings, to a reader of JSON


def document(data: Mapping[str, Any]) -> str:
    """The whole page as text."""
    style = _asset("style.css")
    body = "\n".join(f"// {name}.js\n{_asset(f'{name}.js')}" for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{body}\n}})();\n'
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:"
    parts = {"policy": policy, "style": style, "data": embedded(data), "script": script}
    # Pieces of the template and parts take turns, so nothing inside a part is taken for a place of another.
    pieces = re.split(r"@(policy|style|data|script)@", _asset("page.html"))
    return "".join(parts[piece] if k % 2 else piece for k, piece in enumerate(pieces))


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that may stand inside a script element: plain ASCII (so U+2028 is escaped) without `<`, `>` and `&`."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(HARMLESS)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return files("bough.report.page").joinpath("assets", name).read_text(encoding="utf-8")
