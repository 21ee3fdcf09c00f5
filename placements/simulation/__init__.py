"""Scheduling without a database: files and recorded cases in, decisions out."""
