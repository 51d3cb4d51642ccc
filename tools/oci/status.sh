#!/bin/sh
# Workspace status of a release: what the labels of the images say.
set -eu

changes=$(git status --porcelain)
if [ -n "$changes" ]; then
  echo "a release names its commit, and the checkout differs from it; commit or stash:" >&2
  echo "$changes" >&2
  exit 1
fi
commit=$(git rev-parse HEAD)
seconds=$(git show -s --no-show-signature --format=%ct HEAD)
echo "STABLE_COMMIT $commit"
echo "STABLE_COMMIT_TIME $seconds"
