"""The interpreter of the project's images, for targets that run there without the stack as input."""

IMAGE_PYTHON = "/usr/bin/python3"

# First lines of a binary's start-up script there, which is Python and, up to `exec`, bash too:
# Bazel's test wrapper needs bash anyway, and the image has little else. The stack is the image's;
# the stamp among the inputs says which one the target was built for.
IMAGE_SHEBANG = """\
#!/bin/bash
''':'
for runfiles in "$0.runfiles" "${0%.runfiles/*}.runfiles" "$RUNFILES_DIR"; do
  for stamp in "$runfiles"/stack_*/stamp.json; do
    [[ -e $stamp && $(<"$stamp") =~ \\"digest\\":\\ \\"([0-9a-f]+)\\" ]] || continue
    wanted=${BASH_REMATCH[1]}
    found=$(/usr/bin/python3 -c 'import eagle3_stack; print(eagle3_stack.DIGEST)' 2>/dev/null)
    if [[ $wanted != "$found" ]]; then
      echo "error: built for the stack $wanted, and this image has ${found:-none}:" >&2
      echo "run it on the image of docker/*.digest, or build, record and push a new one" >&2
      # Without a report Bazel would make one by sed, which the image has not, and tell of that.
      [[ -z ${XML_OUTPUT_FILE:-} ]] || echo "<testsuites/>" > "$XML_OUTPUT_FILE"
      exit 1
    fi
  done
done
exec /usr/bin/python3 "$0" "$@"
'''"""
