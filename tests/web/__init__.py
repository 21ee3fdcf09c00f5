"""Tests of the pages, as a browser gets them."""
