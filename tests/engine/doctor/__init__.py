"""Tests of the rules of the doctor."""
