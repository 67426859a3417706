"""What experiments make of many runs: statistics, tables, plots, and what the paper prints (docs/statistics.md)."""
