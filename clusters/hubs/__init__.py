"""Live hubs: KubeFleet API servers that this console mirrors (`rules/live-hub.md`)."""
