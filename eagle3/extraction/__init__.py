"""From a target and data to a store of hidden states: plan, run, commit."""
