"""The commands of the images: each label is a program of that name in /usr/local/bin."""

COMMANDS = [
    "//eagle3:evaluate",
    "//eagle3:extract",
    "//eagle3:inspect",
    "//eagle3:preflight",
    "//eagle3:prepare",
    "//eagle3:serve",
    "//eagle3:train",
]
