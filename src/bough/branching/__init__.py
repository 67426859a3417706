"""Where to split: one file for each rule, or for a few that are alike; `base.KNOWN_RULES` knows them by name."""
