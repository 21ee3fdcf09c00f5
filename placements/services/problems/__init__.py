"""What is wrong with a hub: found at one place, kept in one table, read by everyone."""
