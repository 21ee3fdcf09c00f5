"""Tests of the scheduling core: no database, no clock, milliseconds."""
