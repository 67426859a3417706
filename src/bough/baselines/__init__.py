"""Other ways to decide a property, to stand beside the search; `base.KNOWN_BASELINES` knows them by name."""
