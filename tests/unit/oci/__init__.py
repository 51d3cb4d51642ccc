"""How images are assembled, on made-up packages."""
