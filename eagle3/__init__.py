"""Extracts hidden states from large target models and trains EAGLE-3 drafts on them."""
