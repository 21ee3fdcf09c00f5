"""Live hubs: KubeFleet API servers that this console mirrors (`spec/live-hub.md`)."""
