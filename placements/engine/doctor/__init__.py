"""The placement doctor: what is wrong, without effect or risky in a policy and in the labels of a fleet."""
