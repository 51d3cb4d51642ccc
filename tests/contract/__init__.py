"""Contracts between this project and the private names of the packages it stands on."""
