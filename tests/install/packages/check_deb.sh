#!/usr/bin/env bash
# Builds the Debian packages, installs them into a fresh Debian and builds and runs the README's first program there:
# without libtorch (each part says so in one line), with the one it is told of, and with that of the system's Python.
#
# usage: check_deb.sh folder    (the fresh Debian is made in it and removed)
#
# Needs root, debootstrap and the network; skips otherwise. Takes apt's sources from this machine.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

work="$1"
if [[ "${2:-}" != --in-own-namespace ]]; then
  [[ "$(id -u)" -eq 0 ]] || skip "root is needed to make a chroot"
  command -v debootstrap >/dev/null || skip "debootstrap is not installed"
  unshare --mount true 2>/dev/null || skip "no mount namespaces here"
  # All mounts below vanish with this process.
  exec unshare --mount --propagation private "${BASH_SOURCE[0]}" "$work" --in-own-namespace
fi

mkdir -p "$work"
work="$(cd "$work" && pwd)"
root="$work/chroot"
torch="$(find_torch)"
version="$(project_version)"
torch_minor="$(minor_version_of "$torch")"
source /etc/os-release

say "The packages"
"$repository/scripts/build_deb.sh"
debs="$repository/build-deb/packages"
for package in "$debs"/*.deb; do
  dpkg-deb --info "$package"
  dpkg-deb --contents "$package" | grep -v include/accelerate/
done
if command -v lintian >/dev/null; then
  lintian --allow-root --fail-on error,warning "$debs"/*.deb || fail "lintian complains"
else
  echo "lintian is not installed: not run"
fi

say "A fresh $VERSION_CODENAME"
# Those of the distribution itself, not what else this machine has.
sources="$(apt-get indextargets --format '$(ORIGIN) deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
  sed -n 's/^\(Debian\|Ubuntu\) deb/deb/p' | sort -u)"
mirror="$(awk -v suite="$VERSION_CODENAME" '$3 == suite { print $2; exit }' <<<"$sources")"
[[ -n "$mirror" ]] || skip "apt has no source for $VERSION_CODENAME"
rm -rf --one-file-system "$root"
debootstrap --variant=minbase "$VERSION_CODENAME" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 ||
  skip "debootstrap failed: $(tail -n 1 "$work/debootstrap.log")"
printf '%s\n' "$sources" >"$root/etc/apt/sources.list"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
inside() {
  chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
apt_install() { inside apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends "$@"; }
inside apt-get -qq update
mkdir "$root/packages"
cp "$debs"/*.deb "$root/packages/"
program_and_library=("/packages/$(basename "$debs"/accelerate_*.deb)" "/packages/$(basename "$debs"/libaccelerate0_*.deb)")
copy_consumer "$root/consumer"

say "Installed without libtorch"
expect 0 "libaccelerate0: libtorch $torch_minor is missing, which is not a Debian package; when it is there: ln -sfn /path/to/torch /etc/accelerate/libtorch" \
  apt_install "${program_and_library[@]}"
expect 0 "accelerate $version" inside accelerate --version
expect 1 "error: the CMake files of Accelerate are not installed" inside accelerate --cmake-prefix
never libtorch inside ldd /usr/bin/accelerate
never libaccelerate inside ldd /usr/bin/accelerate
inside test -e /usr/share/man/man1/accelerate.1.gz
inside test -e /usr/share/bash-completion/completions/accelerate
missing="libtorch $torch_minor is missing: /etc/accelerate/libtorch does not name its folder"
expect 0 "$missing" inside accelerate env
expect 1 "error: $missing" inside accelerate test --cpu
apt_install "/packages/$(basename "$debs"/libaccelerate-dev_*.deb)" cmake g++ ninja-build >/dev/null
expect 0 "/usr" inside accelerate --cmake-prefix
configure=(cmake -G Ninja -S /consumer -B /consumer/build -Dprogram=/consumer/train.cpp "-Dversion=$version")
expect 1 "No libtorch found (/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/accelerate/libtorch names /etc/accelerate/libtorch, which holds none): give -DTorch_DIR=/path/to/torch, version $torch_minor (Accelerate was built with it)." \
  inside "${configure[@]}"

say "Told of libtorch"
mkdir "$root/opt/python"
mount --bind "$(dirname "$torch")" "$root/opt/python"
inside ln -sfn "/opt/python/$(basename "$torch")" /etc/accelerate/libtorch
require_relative_run_paths "$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)"
never missing inside accelerate env
inside rm -rf /consumer/build
inside "${configure[@]}"
inside cmake --build /consumer/build
inside /consumer/build/train
inside accelerate launch --cpu --num_processes 2 /consumer/build/train
inside /consumer/build/texts
inside accelerate test --cpu --num_processes 2

say "That libtorch is gone"
inside ln -sfn /opt/gone/torch /etc/accelerate/libtorch
missing="libtorch $torch_minor is missing: /etc/accelerate/libtorch names /opt/gone/torch, which holds none"
expect 0 "$missing" inside accelerate env
expect 1 "error: $missing" inside accelerate test --cpu

say "Removed, and installed where Python has torch"
inside apt-get -qq -o Dpkg::Use-Pty=0 purge -y accelerate libaccelerate0 libaccelerate-dev
inside test ! -e /etc/accelerate || fail "purging leaves /etc/accelerate"
apt_install python3 >/dev/null
packages="$(inside python3 -c 'import site; print(site.getsitepackages()[0])')"
inside mkdir -p "$packages"
inside ln -s "/opt/python/$(basename "$torch")" "$packages/torch"
expect 0 "libaccelerate0: libtorch is that of Python, $packages/torch (the link /etc/accelerate/libtorch)" \
  apt_install "${program_and_library[@]}"
inside accelerate test --cpu --num_processes 2

say "Passed"
umount -l "$root/opt/python" "$root/dev" "$root/sys" "$root/proc"
rm -rf --one-file-system "$root"
