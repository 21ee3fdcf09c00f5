"""The project: settings, URLs, servers, and what both apps share; no domain code."""

import gc

# Collecting as often as by default takes a fifth of the time that a command needs to start.
gc.set_threshold(10_000, 10, 10)

__version__ = "0.1.0"
LOCAL_HUB_NAME = "local"
