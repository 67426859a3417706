"""Versions, devices and solvers found: what to paste into a bug report."""

import importlib.util
import os
import platform

from bough.report.record import revision, versions

OPTIONAL = {
    "gurobipy": "Gurobi",
    "pyscipopt": "SCIP",
    "maraboupy": "Marabou",
    "vnnlib": "VNN-LIB 2.0",
    "ray": "Ray",
    "triton": "Triton",
}


def describe() -> str:
    """A few lines about this installation and machine; names no user and no folder."""
    import torch

    lines = [f"{name:12s} {number}" for name, number in versions().items()]
    lines.append(f"{'revision':12s} {revision() or 'installed package'}")
    lines.append(f"{'system':12s} {platform.system()} {platform.machine()}, {os.cpu_count()} cores")
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none; bounds run on the CPU"
    lines.append(f"{'GPU':12s} {device}")
    for module, title in OPTIONAL.items():
        lines.append(f"{title:12s} {'found' if importlib.util.find_spec(module) else 'not installed (optional)'}")
    return "\n".join(lines)
