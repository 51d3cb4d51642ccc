"""From data of any common form to a folder of token ids and loss masks."""
