"""The patches of BuildGrid 0.9.1, in the order they apply."""

BUILDGRID_PATCHES = [
    "//third_party/buildgrid:patches/01-name-the-missing-pool.patch",
    "//third_party/buildgrid:patches/02-do-not-cache-failures.patch",
    "//third_party/buildgrid:patches/03-cancel-what-nobody-waits-for.patch",
]
