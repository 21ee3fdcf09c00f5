"""What people may have written to a live hub: catalogue, plans, previews (`spec/live-hub.md` 13.1, 13.2)."""
