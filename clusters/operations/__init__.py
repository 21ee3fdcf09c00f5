"""Operations on member clusters; page, REST, admin, command and task call the same ones."""
