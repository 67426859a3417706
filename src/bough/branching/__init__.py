"""Where to split. The names of the rules stand here, where reading them loads nothing else."""

RULES = {
    "babsr": "the paper's hand-made rule: estimated gain of the Wong-Kolter bound (Bunel et al. 2020)",
    "random": "any ambiguous ReLU, by --seed",
}
