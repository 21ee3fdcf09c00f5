"""How documents from outside are read: fields and their syntax, faults with paths, plain and safe data."""
