"""All numbered experiments of the paper's tables and figures, one after another, into one folder: which failed is said.

    python experiments/all.py --scale smoke --out OUT [--only 10 --only 11] [any option of the experiments]

Runs are shared and never repeated, so the command goes on where it was cut off. Exit status 1 if an experiment failed.
"""

import argparse
import runpy
import sys
import time
import traceback
from pathlib import Path

FIRST = 10  # those before have options of their own
INTERRUPTED, DEFECT = 3, 4


def main() -> int:
    """Run each; libraries are loaded once for all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", metavar="NUMBER", help="may be given again; all by default")
    options, others = parser.parse_known_args()
    listed = sorted(p for p in Path(__file__).parent.glob("[0-9][0-9]_*.py") if int(p.name[:2]) >= FIRST)
    chosen = [path for path in listed if options.only is None or path.name[:2] in options.only]
    words = ["--out", str(options.out), "--resume", *(word for word in others if word != "--resume")]
    failed, begun = [], time.monotonic()
    for path in chosen:
        started = time.monotonic()
        status = run(path, words)
        seconds = time.monotonic() - started
        print(f"{path.name}: {'done' if not status else f'FAILED, status {status}'} in {seconds:.0f} s", flush=True)
        if status:
            failed.append(path.name)
        if status == INTERRUPTED:
            break
    print(f"{len(chosen) - len(failed)} of {len(chosen)} experiments in {time.monotonic() - begun:.0f} s", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed or not chosen else 0


def run(path: Path, words: list[str]) -> int:
    """The exit status of a script."""
    before = sys.argv
    sys.argv = [str(path), *words]
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception:  # noqa: BLE001 - the others are to run all the same
        traceback.print_exc()
        return DEFECT
    finally:
        sys.argv = before
    return 0


if __name__ == "__main__":
    sys.exit(main())
