#!/bin/sh
# Unpacks the image that lies beside this script: sh install.sh ROOT
# Needs sh, coreutils, xargs, tar and gzip. Layers packed by zstd are unpacked by the image's own Python,
# with the module in zstandard.tar.gz beside this script. Afterwards: ROOT/run-in-image COMMAND...
set -eu

# Without the slash that may end it: names beside it are made of it.
target=${1:-}
target=${target%"${target##*[!/]}"}
if [ $# -ne 1 ] || [ -z "$target" ] || [ -e "$target" ]; then
  echo "usage: sh install.sh ROOT, a folder that is not there yet" >&2
  exit 2
fi
bundle=$(cd "$(dirname "$0")" && pwd)
cd "$bundle"
echo "checking the parts" >&2
if ! xargs -P "$(nproc)" -d '\n' -n 4 sh -c 'printf "%s\n" "$@" | sha256sum --quiet --check -' - \
  < SHA256SUMS; then
  echo "error: a part is damaged or missing: copy it again" >&2
  exit 1
fi
cd "$OLDPWD"

partial=$target.partial
unpackers=
trap 'rm -rf "$partial"' EXIT
# Processes in the background hear no Ctrl-C, and dash leaves without its EXIT trap. The last of them
# may not be in the list yet.
end_unpackers() {
  unpackers="$unpackers ${!:-}"
  # shellcheck disable=SC2086 # a list of numbers
  kill $unpackers 2> /dev/null || :
  # shellcheck disable=SC2086
  wait $unpackers 2> /dev/null || :
}
trap 'end_unpackers; exit 130' INT TERM HUP
# What a killed run left.
rm -rf "$partial"
mkdir -p "$partial/root"
unpack() {
  echo "unpacking ${1##*/}" >&2
  # In the place of the shell: what is killed is tar.
  exec tar -x --no-same-owner -C "$partial/root" -f -
}
unzstd() {
  usr=$partial/root/usr
  PYTHONPATH=$partial/zstandard "$usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" \
    --argv0 "$usr/bin/python3" "$usr/bin/python3.13" -s -B -c '
import sys, zstandard
zstandard.ZstdDecompressor().copy_stream(sys.stdin.buffer, sys.stdout.buffer, write_size=1 << 22)'
}
for first in "$bundle"/layer-??.part-000; do
  layer=${first%.part-000}
  cat "$layer".part-* | gzip -dc | unpack "$layer"
done
# All at once: no path is in two layers.
for first in "$bundle"/layer-??.zst.part-000; do
  [ -e "$first" ] || continue
  if [ -z "$unpackers" ]; then
    mkdir "$partial/zstandard"
    gzip -dc "$bundle/zstandard.tar.gz" | tar -x -C "$partial/zstandard" -f -
  fi
  layer=${first%.part-000}
  cat "$layer".part-* | unzstd | unpack "$layer" &
  unpackers="$unpackers $!"
done
for unpacker in $unpackers; do
  wait "$unpacker" || { echo "error: a layer could not be unpacked: is the disk full?" >&2; exit 1; }
done
rm -rf "$partial/zstandard"
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

# The 64-bit driver's libraries: of the loader's list, and of folders that it is told of otherwise.
driver_libraries() {
  ldconfig -p 2>/dev/null | while IFS= read -r line; do
    case $line in
      *libcuda.so.*x86-64*"=> "* | *libnvidia-*.so*x86-64*"=> "*) echo "${line##*=> }" ;;
    esac
  done
  IFS=:
  for folder in ${LD_LIBRARY_PATH:-} /usr/local/nvidia/lib64; do
    for library in "$folder"/libcuda.so.1 "$folder"/libnvidia-*.so*; do
      if [ -e "$library" ]; then
        echo "$library"
      fi
    done
  done
}

root=$here/root
mount --bind "$root" "$root"
for folder in dev proc sys tmp; do
  mount --rbind "/$folder" "$root/$folder"
done
mount --bind "$IMAGE_FOLDER" "$root/mnt"
# What an engine brings, too: without these no name of a host is found.
for name in hosts resolv.conf; do
  if [ -e "/etc/$name" ] && touch "$root/etc/$name" 2> /dev/null; then
    mount --bind "$(readlink -f "/etc/$name")" "$root/etc/$name" || :
  fi
done
# The host's driver: its libraries go into a folder that is searched first, and nowhere else.
driver=
for library in $(driver_libraries); do
  if [ -z "$driver" ]; then
    driver=/run/driver
    mount -t tmpfs driver "$root/run"
    mkdir "$root$driver"
  fi
  target=$root$driver/$(basename "$library")
  # A name may come twice; the first is the one that the loader takes.
  if [ -e "$target" ]; then
    continue
  fi
  : > "$target"
  mount --bind "$(readlink -f "$library")" "$target"
done
# Triton links its starters of kernels with -lcuda; hosts without CUDA's tools lack that name.
if [ -n "$driver" ] && [ ! -e "$root$driver/libcuda.so" ]; then
  ln -s libcuda.so.1 "$root$driver/libcuda.so"
fi

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
mv "$partial" "$target"
echo "ready: $target/run-in-image extract --help" >&2
