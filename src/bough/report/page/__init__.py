"""Records and traces enter, one HTML page leaves that needs nothing else: no network, no second file.

`payload.py` decides what the page knows, `document.py` puts it together with the scripts in `assets/`, which draw it.
"""
