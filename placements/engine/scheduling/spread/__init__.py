"""Spread strategies: one module for the rules of each semantics."""
