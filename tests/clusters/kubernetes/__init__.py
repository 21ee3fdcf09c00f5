"""Tests of the driver of real Kubernetes clusters."""
