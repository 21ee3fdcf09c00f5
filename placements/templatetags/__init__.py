"""How pages write numbers, times and states."""
