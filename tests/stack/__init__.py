"""The stacks themselves: do they import, and are they what they claim to be?"""
