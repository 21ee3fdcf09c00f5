"""What this console makes of live hubs: their mirrored objects as rows of its own tables."""
