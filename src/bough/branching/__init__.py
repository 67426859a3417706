"""Where to split. The names of the rules stand here, where reading them loads nothing else."""

RULES = {
    "babsr": "the paper's hand-made rule: estimated gain of the Wong-Kolter bound (Bunel et al. 2020)",
    "babsr-min": "its later form, which looks at the lesser gain of the two children",
    "fsb": "per layer the best by both of its scores, then one cheap bound of their children (De Palma et al. 2021)",
    "kfsb": "the eight best over all layers by each score, children weighed by the product of their gains",
    "strong": "bounds both children of every ReLU; greatest relative improvement (Lu & Kumar 2020, Eq. 8)",
    "strong-min": "the same, by the worse of both children",
    "strong-max": "the same, by the better of both children",
    "strong-product": "the same, by the product of what both children gain, as kfsb weighs them",
    "strong-tree": "the same, by how large a tree of such splits would be; shallower trees",
    "strong-subset": "strong among the 64 best by babsr and at random 5% of each layer, by --seed",
    "gradient": "the ReLU that the output can depend on most steeply (Neurify, Wang et al. 2018)",
    "earliest": "the first ambiguous ReLU of the earliest layer that has one",
    "widest": "the ambiguous ReLU with the widest bounds",
    "random": "any ambiguous ReLU, by --seed",
    "babsb": "halves an input: both halves of each are bounded (Bunel et al. 2018); for few inputs",
    "smear": "halves the input on which the bound depends most: coefficient times width",
    "shadow": "the same with the LP's coefficients, the shadow prices of the box's sides (Royo et al. 2019)",
    "longest": "halves the input that is the largest part of what it was",
    "combined": "halves an input or splits a ReLU, whichever promises more",
    "gnn": "a graph neural network that learnt from strong branching (Lu & Kumar 2020), with babsr as its fail-safe",
    "gnn-r": "the same without primal and dual values (the paper's GNN-R)",
    "gnn-online": "gnn, corrected during the search by the decisions that babsr beat",
    "learnt-local": "learnt as gnn, but every ReLU is seen by itself: no messages",
}

INPUT_RULES = ("babsb", "smear", "shadow", "longest", "combined")
"""Rules that halve input boxes, which needs bounds that can."""

LEARNT_RULES = ("gnn", "gnn-r", "gnn-online", "learnt-local")
"""Rules that need weights."""
