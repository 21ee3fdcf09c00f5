"""What goes in and comes out, field by field: for the schema, and to render rows. No rule lives here."""
