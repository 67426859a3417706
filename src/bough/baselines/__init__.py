"""Other ways to decide a property, to stand beside the search. Their names stand here, where reading them loads nothing
else.
"""

METHODS = {
    "mip-planet": "big-M mixed-integer program over Wong-Kolter and interval bounds (the paper's MIPplanet)",
    "mip-tight": "the same over bounds tightened layer by layer: interval, linear, LP (Tjeng et al. 2019)",
    "relu-bab": "branch and bound over LP bounds with a naive rule (Planet and ReluBaB style)",
    "marabou": "the Marabou verifier on the same instance, where maraboupy is installed",
}
MIXED = ("mip-planet", "mip-tight")
BY_OTHERS = (*MIXED, "marabou")  # decided by a solver of others, not by bough's own search
NAIVE_RULE = "widest"  # of relu-bab, unless another is asked for
