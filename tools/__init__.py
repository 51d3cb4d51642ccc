"""Everything that sets up, builds and checks the workspace."""
