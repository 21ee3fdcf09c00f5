"""Live hubs: their mirrored objects as rows of the tables of this console."""
