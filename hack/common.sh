# shellcheck shell=bash
# What the scripts of this folder share; sourced, never run.

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

require_cluster() {
  command -v kubectl >/dev/null || die "kubectl is not on the PATH: install it"
  local answer
  answer=$(kubectl version --request-timeout=10s 2>&1) ||
    die "no cluster answers (${answer##*$'\n'}): set KUBECONFIG, or choose another context with kubectl config use-context"
}

ensure_namespace() { # name
  [[ -n $(kubectl get namespace "$1" --ignore-not-found -o name) ]] || kubectl create namespace "$1"
}

# Server-side, so that a second run changes nothing; by force, because what these scripts write is theirs to say.
apply() {
  kubectl apply --server-side --force-conflicts --field-manager=pointsman-hack -f -
}
