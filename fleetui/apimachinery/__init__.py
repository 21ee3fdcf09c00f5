"""Kubernetes objects as text and data: parsing, editing, fields, kinds, errors. No Django."""
