#!/usr/bin/env bash
# Move this chart to another version of its bundle: scripts/update-bundle.sh VERSION [--source SOURCE] [--accept-breaking] …
# Shows what changes (version, images, definitions, rights) and then changes all of it or nothing. Overlays stay.
folder=$(CDPATH="" cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
PATH="$PATH:$folder/../../.venv/bin" # a clone in which `make install` has run
command -v "${POINTSMAN:=pointsman}" >/dev/null || { echo "update-bundle: no pointsman on the PATH: install it, or set POINTSMAN to the program" >&2; exit 2; }
exec "$POINTSMAN" platform update-bundle "$folder" "$@"
