"""Everything that changes placements and resources; each operation is one wish, and every door calls it."""
