"""Who is ahead in a run, kept from pick to pick: one module for each sort of rules, and their formulas."""
