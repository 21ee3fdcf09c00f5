"""The scheduler: filters, scores, spread strategies, the picker, and the record of a decision."""
