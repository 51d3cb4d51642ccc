#!/bin/sh
# Workspace status of a release: what the labels of the images say.
set -eu
echo "STABLE_COMMIT $(git rev-parse HEAD)"
echo "STABLE_COMMIT_TIME $(git show -s --format=%ct HEAD)"
