# Debian packages without installing any: sourced by tools/node/build and tools/bare.
#
# Packages are unpacked into a folder and laid over /usr in a mount namespace, where a program finds its libraries in the
# usual places, also when it starts itself again with an empty environment. The machine is not changed: lists of packages
# and archives are kept in a scratch folder, and the namespace ends with its command.

# unpack SCRATCH TARGET PACKAGE…: fetch packages from the sources that this machine has, and unpack them.
unpack() {
  local scratch=$1 target=$2
  shift 2
  mkdir -p "$scratch/lists/partial" "$scratch/archives/partial" "$target"
  local options=(-qq -o "Dir::State::lists=$scratch/lists" -o "Dir::Cache=$scratch" -o "Dir::Cache::archives=$scratch/archives"
                 -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  (cd "$scratch/archives" && apt-get "${options[@]}" download "$@")
  local package
  for package in "$scratch"/archives/*.deb; do dpkg -x "$package" "$target"; done
  rm -rf "$scratch"
}

# with_packages UNPACKED COMMAND…: run a command where the unpacked packages are in /usr.
with_packages() {
  local unpacked=$1
  shift
  unshare --mount --pid --fork --mount-proc --propagation=private \
    sh -c 'mount -t overlay -o "lowerdir=$1/usr:/usr" overlay /usr && shift && exec "$@"' with_packages "$unpacked" "$@"
}

# bootstrap UNPACKED TARGET PACKAGE,PACKAGE…: make a Debian root; debootstrap and wget are among the unpacked packages.
bootstrap() {
  local mirror
  mirror=$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources 2>/dev/null ||
    awk '$1 == "deb" {print $2; exit}' /etc/apt/sources.list)
  with_packages "$1" debootstrap --variant=minbase --include="$3" bookworm "$2" ${mirror:+"$mirror"}
}
