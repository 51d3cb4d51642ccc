"""The images themselves."""
