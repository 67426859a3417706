"""Attacks on ourselves: a campaign of random problems with known answers, hidden counterexamples, and mutants."""
