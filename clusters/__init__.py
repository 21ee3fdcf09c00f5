"""The member clusters of the fleet, and how to talk to one."""
