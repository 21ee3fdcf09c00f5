"""Pages and fragments by noun: they show what services prepared."""
