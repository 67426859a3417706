"""The decision, learnt: what a rule sees, the network that scores it, its labels, its training, and the rule itself."""
