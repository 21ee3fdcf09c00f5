"""The projection of a live hub: its mirror as rows of the existing tables (`spec/live-hub.md` 10)."""
