"""Operations and queries, by subject."""
