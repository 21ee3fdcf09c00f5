"""`make screenshots`: pictures of the main pages of a console of its own, to be looked at one by one."""
