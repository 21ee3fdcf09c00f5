"""Everything that changes member clusters; each operation is one wish, and every door calls it."""
