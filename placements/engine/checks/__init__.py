"""Checks: what is wrong, without effect or risky in policies and in the labels of a fleet."""
