"""The project's own claims, attacked: what someone inside a study can make of what it saw."""
