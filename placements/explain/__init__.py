"""Renderers of a decision: sentences, tables, text. The record holds codes; the words are here."""
