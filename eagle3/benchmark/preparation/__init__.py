"""How fast conversations are prepared, beside how fast their tokenizer is."""
