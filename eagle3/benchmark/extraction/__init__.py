"""How fast states leave a target, compared with a target that gives none."""
