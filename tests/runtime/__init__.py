"""Tests of what runs around the console: its processes, queue, first start and settings."""
