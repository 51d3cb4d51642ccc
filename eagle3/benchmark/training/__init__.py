"""How fast a draft trains, beside how fast speculators trains one."""
