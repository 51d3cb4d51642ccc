#!/bin/sh
# On a bare GPU machine, beside the files of all folders that //tests/gpu:bundle wrote:
#   sh run.sh unpack               verifies and unpacks; the code alone where the image is there
#   sh run.sh [--detach] [--gpus 0,1] GROUP...   runs groups of tests and measurements
#   sh run.sh list | status | wait SECONDS | report
#   sh run.sh exec COMMAND...      one command of the image; ./python3 is `exec python3`
# Results lie in results/ beside this script; with the logs of the groups they are copied to $OUT, where
# that is set. Where the image's root cannot be entered (no right to mount, or EAGLE3_IN_PLACE=1), its own
# Python runs in place.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
image=$here/image
workspace=$image/root/opt/eagle3/eagle3_training
results=$here/results

unpack() {
  began=$(date +%s)
  if [ ! -e "$image" ]; then
    sh "$here/install.sh" "$image"
  fi
  if ! (cd "$here" && sha256sum --quiet --check code.tar.gz.sha256); then
    echo "error: code.tar.gz is damaged: copy it again" >&2
    exit 1
  fi
  # Over the image's own files; what a commit removed must not stay. The models do.
  find "$workspace" -mindepth 1 -maxdepth 1 ! -name third_party -exec rm -rf {} +
  gzip -dc "$here/code.tar.gz" | tar -x --no-same-owner -C "$workspace" -f -
  mkdir -p "$results"
  # For scripts that take the name of a Python.
  printf '#!/bin/sh\nexec sh "%s/run.sh" exec python3 "$@"\n' "$here" > "$here/python3"
  chmod +x "$here/python3"
  find_mode
  echo "unpacked in $(($(date +%s) - began)) s; $(cat "$results/mode")" >&2
}

find_mode() {
  # As the image has it; its Python needs no launcher in its root, which has no sh.
  ln -sfn python3.13 "$image/root/usr/bin/python3"
  if [ -z "${EAGLE3_IN_PLACE:-}" ] && "$image/run-in-image" python3 -V > /dev/null 2> "$results/mode.log"; then
    echo "in the image's root" > "$results/mode"
    return
  fi
  write_launcher
  if [ -n "${EAGLE3_IN_PLACE:-}" ]; then
    echo "in place, as EAGLE3_IN_PLACE asks" > "$results/mode"
  else
    echo "in place, as the image's root cannot be entered: $(tail -n 1 "$results/mode.log")" > "$results/mode"
  fi
}

# The image's Python where it lies: it brings its own C library, and the processes that it starts
# are started by this file again.
write_launcher() {
  rm -f "$image/root/usr/bin/python3"
  cat > "$image/root/usr/bin/python3" << 'PYTHON'
#!/bin/sh
self=$0
if [ -L "$self" ]; then self=$(readlink -f "$self"); fi
usr=${self%/bin/*}
exec "$usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --argv0 "$self" "$usr/bin/python3.13" "$@"
PYTHON
  chmod +x "$image/root/usr/bin/python3"
  mkdir -p "$image/bin"
  ln -sfn ../root/usr/bin/python3 "$image/bin/python3"
}

# Becomes a command with the image's environment, in the folder of the code; signals reach it.
enter() {
  cd "$results"
  case $(cat mode) in
    "in the"*)
      # There the current folder is /mnt, wherever it lies here.
      exec "$image/run-in-image" env -C "${workspace#"$image/root"}" EAGLE3_RESULTS=/mnt "$@"
      ;;
  esac
  set -a
  # shellcheck disable=SC1091 # written by install.sh
  . "$image/environment"
  set +a
  root=$image/root
  export HOME="$here/home" SSL_CERT_FILE="$root$SSL_CERT_FILE" RUNFILES_DIR="$root$RUNFILES_DIR"
  export PATH="$image/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
  # Triton's C compiler must be this machine's: the image's looks for its parts in the root.
  unset CC LD_PRELOAD PYTHONHOME
  mkdir -p "$HOME"
  export PYTHONPATH="$workspace:$root/usr/local/lib/python3.13/dist-packages"
  export EAGLE3_RESULTS="$results"
  cd "$workspace"
  exec "$@"
}

if [ "${1:-}" = unpack ]; then
  unpack
  exit
fi
if [ ! -e "$results/mode" ]; then
  echo "error: nothing is unpacked yet: sh $0 unpack" >&2
  exit 2
fi
if [ "${1:-}" = exec ]; then
  shift
  enter "$@"
fi
code=0
(enter python3 -m tests.gpu.proof "$@") || code=$?
if [ -n "${OUT:-}" ] && [ -d "$OUT" ]; then
  for file in "$results"/report.* "$results"/files/* "$results"/groups/*.log; do
    [ ! -e "$file" ] || cp "$file" "$OUT/"
  done
fi
exit "$code"
