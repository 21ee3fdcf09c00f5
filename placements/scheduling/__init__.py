"""The scheduling core: which clusters, and why. Plain Python: no framework, clock, database or network."""
