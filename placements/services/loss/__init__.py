"""What the loss or a change of clusters does to placements: one evaluation for pages, REST and commands."""
