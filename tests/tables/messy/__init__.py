"""44 small files as people have them, and the schema that a person would write beside each."""
