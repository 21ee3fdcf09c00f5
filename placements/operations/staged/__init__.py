"""Staged runs: strategies and runs come in, hands are laid on them, workers advance them."""
