"""Checks of the checkout itself: format, types, shell, house rules."""
