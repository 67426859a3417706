"""Runs made up for tests: small records with only what statistics read."""

from typing import Any


def run(method: str, prop: str, seconds: float | None = 1.0, **more: Any) -> dict[str, Any]:
    """A run that verified property `prop` of network `net.onnx`, unless told otherwise."""
    known = {
        "network": "nets/net.onnx",
        "property": prop,
        "method": method,
        "timeout": 100.0,
        "verdict": "verified",
        "seconds": seconds,
        "branches": 10,
        "bounds": 21,
        "bounder": "dual",
        "error": None,
        "learnt_decisions": 0,
        "backup_decisions": 0,
    }
    return {**known, **more}


def timeout(method: str, prop: str, seconds: float = 100.0, **more: Any) -> dict[str, Any]:
    """A run that ran out of time."""
    return run(method, prop, seconds, verdict="timeout", **more)


def failure(method: str, prop: str, **more: Any) -> dict[str, Any]:
    """A run that crashed."""
    nothing = {"verdict": None, "branches": None, "bounds": None, "error": "MemoryError: too much"}
    return run(method, prop, None, **{**nothing, **more})
