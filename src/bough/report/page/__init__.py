"""Records and traces enter, one HTML page leaves that needs nothing else: no network, no second file.

`payload.py` decides what the page knows, `document.py` puts it together with the scripts in `assets/`, which draw it.
"""

from bough.report.page.document import document as document
from bough.report.page.payload import payload as payload
from bough.report.page.points import PagePoint as PagePoint
from bough.report.page.points import read_points as read_points

__all__ = ["PagePoint", "document", "payload", "read_points"]
