"""What the hub decided, replayed here, and where it differs."""
