"""What pages and API read: the hub, the records of decisions, lists."""
