#!/bin/sh
# Unpacks the image that lies beside this script: sh install.sh ROOT
# Needs sh, coreutils, tar and gzip. Afterwards: ROOT/run-in-image COMMAND...
set -eu

if [ $# -ne 1 ] || [ -e "$1" ]; then
  echo "usage: sh install.sh ROOT, a folder that is not there yet" >&2
  exit 2
fi
bundle=$(cd "$(dirname "$0")" && pwd)
cd "$bundle"
echo "checking the parts" >&2
if ! sha256sum --quiet --check SHA256SUMS; then
  echo "error: a part is damaged or missing: copy it again" >&2
  exit 1
fi
cd "$OLDPWD"

partial=$1.partial
trap 'rm -rf "$partial"' EXIT
mkdir -p "$partial/root"
for first in "$bundle"/layer-*.part-000; do
  echo "unpacking $(basename "${first%.part-000}")" >&2
  cat "${first%.part-000}".part-* | gzip -dc | tar -x --no-same-owner -C "$partial/root" -f -
done
cp "$bundle/environment" "$partial/environment"

cat > "$partial/run-in-image" <<'RUN'
#!/bin/sh
# Runs a command in the image, with this machine's GPUs, /tmp, network and current folder (as /mnt).
# Needs unshare and mount of util-linux; who is not root gets a user namespace.
set -eu
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${IMAGE_NAMESPACE:-}" ]; then
  export IMAGE_NAMESPACE=1 IMAGE_FOLDER="$PWD"
  if [ "$(id -u)" = 0 ]; then
    exec unshare --mount "$0" "$@"
  fi
  exec unshare --user --map-root-user --mount "$0" "$@"
fi

# Of the lines of `ldconfig -p`, the paths of the 64-bit driver's libraries.
driver_libraries() {
  while IFS= read -r line; do
    case $line in
      *libcuda.so.*x86-64*"=> "* | *libnvidia-*.so*x86-64*"=> "*) echo "${line##*=> }" ;;
    esac
  done
}

root=$here/root
mount --bind "$root" "$root"
for folder in dev proc sys tmp; do
  mount --rbind "/$folder" "$root/$folder"
done
mount --bind "$IMAGE_FOLDER" "$root/mnt"
# The host's driver: its libraries go into a folder that is searched first, and nowhere else.
driver=
for library in $(ldconfig -p 2>/dev/null | driver_libraries); do
  if [ -z "$driver" ]; then
    driver=/run/driver
    mount -t tmpfs driver "$root/run"
    mkdir "$root$driver"
  fi
  target=$root$driver/$(basename "$library")
  : > "$target"
  mount --bind "$(readlink -f "$library")" "$target"
done

chroot=$(command -v chroot)
set -a
# shellcheck disable=SC1091 # written beside this script
. "$here/environment"
set +a
unset IMAGE_NAMESPACE IMAGE_FOLDER LD_LIBRARY_PATH LD_PRELOAD PYTHONHOME PYTHONPATH
if [ -n "$driver" ]; then
  export LD_LIBRARY_PATH="$driver" TRITON_LIBCUDA_PATH="$driver"
fi
exec "$chroot" "$root" /usr/bin/env -C /mnt PWD=/mnt "$@"
RUN
chmod +x "$partial/run-in-image"
mv "$partial" "$1"
echo "ready: $1/run-in-image extract --help" >&2
