#!/usr/bin/env bash
# Build the image, bring the operator of this tree on the cluster, and with it the full sample; wait until it serves.
#
# Nothing is deleted: stacks that run keep running, and what did not change is not restarted. It may be run again.
#
#   ./hack/redeploy-with-fixes.sh
#   IMG=registry.example/pointsman:1 ./hack/redeploy-with-fixes.sh     push there, and run every part from there
#   BUILD=never ./hack/redeploy-with-fixes.sh                          the nodes have the image already
#   TIMEOUT=600s ./hack/redeploy-with-fixes.sh                         how long each wait may take
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/common.sh
source hack/common.sh

BUILD=${BUILD:-auto}
TIMEOUT=${TIMEOUT:-300s}
IMG=${IMG:-}
own=docker.io/library/pointsman:local
sample=config/samples/sim_v1alpha1_simulatordeployment_full.yaml
namespace=llm-d-sim
stack=simulatordeployment/llm-sim-full
operator=(deployment/pointsman-operator -n pointsman-system)

[[ $# == 0 ]] || die "takes no arguments: IMG, BUILD and TIMEOUT are variables"
[[ $IMG =~ ^[^[:space:]\|\&]*$ ]] || die "IMG=$IMG is not the name of an image"
[[ $BUILD == auto || $BUILD == never ]] || die "BUILD=$BUILD is neither auto nor never"

# One image is every part, so with IMG every name is replaced by it; and pickers get a token, so it must be trusted.
with_image() {
  local repository=${IMG%@*}
  [[ ${repository##*/} != *:* ]] || repository=${repository%:*}
  if [[ -n $IMG ]]; then
    sed -E "s|^([- ]*image: ).*|\1$IMG|; s|(--trusted-image-prefixes=.*)|\1,$repository|"
  else
    cat
  fi
}
images() { # the names that the nodes will look for
  if [[ -n $IMG ]]; then echo "$IMG"; else sed -nE 's/^[- ]*image: //p' config/manager/manager.yaml "$sample" | sort -u; fi
}

find_builder() {
  local name
  for name in docker podman; do
    # A client without its service builds nothing.
    if command -v $name >/dev/null && $name info >/dev/null 2>&1; then echo $name; return; fi
  done
}

build() {
  local builder name context
  builder=$(find_builder)
  if [[ -z $builder ]]; then
    echo "neither docker nor podman can build here: the nodes must have $(images | paste -sd' ')"
    return
  fi
  "$builder" build --tag "${IMG:-$own}" .
  if [[ -n $IMG ]]; then "$builder" push "$IMG"; return; fi
  context=$(kubectl config current-context)
  for name in $(images); do
    [[ $name == "$own" ]] || "$builder" tag "$own" "$name"
    case $context in
      kind-*) kind load docker-image "$name" --name "${context#kind-}" ;;
      minikube) minikube image load "$name" ;;
      docker-desktop | rancher-desktop) ;; # the nodes use the builder's own images
      *) die "do not know how to bring $name to the nodes of context $context: set IMG to a name in a registry of theirs, or BUILD=never" ;;
    esac
  done
  built=yes
}

# The same name with other content: Pods that run would keep the old one.
restart() { # deployments…
  if [[ -n $built && -n $(kubectl get "$@" --ignore-not-found -o name 2>/dev/null) ]]; then kubectl rollout restart "$@"; fi
}

explain() { # what
  echo "$1 within $TIMEOUT; what it says:" >&2
  kubectl get "$stack" -n $namespace --ignore-not-found \
    -o 'jsonpath={range .status.conditions[?(@.status=="False")]}  {.type}: {.message}{"\n"}{end}' >&2
  kubectl get pods -n pointsman-system >&2
  die "see also: kubectl logs ${operator[*]}"
}

require_cluster
built=
[[ $BUILD == never ]] || build
restart "${operator[@]}"
restart deployment -n $namespace -l app.kubernetes.io/managed-by=pointsman-operator
kubectl kustomize config/default | with_image | apply
kubectl wait --for=condition=Established crd/simulatordeployments.sim.llm-d.io --timeout="$TIMEOUT"
kubectl rollout status "${operator[@]}" --timeout="$TIMEOUT" || explain "the operator did not start"

ensure_namespace $namespace
with_image <"$sample" | apply
generation=$(kubectl get "$stack" -n $namespace -o 'jsonpath={.metadata.generation}')
kubectl wait "$stack" -n $namespace --timeout="$TIMEOUT" \
  --for="jsonpath={.status.observedGeneration}=$generation" >/dev/null || explain "the operator did not take up the stack"
kubectl wait "$stack" -n $namespace --timeout="$TIMEOUT" --for=condition=Ready || explain "the stack is not ready"

cat <<TEXT

watch it:    kubectl get simulatordeployment -n $namespace -w
its Pods:    kubectl get pods -n $namespace
the picker:  kubectl logs -n $namespace -l component=epp -f
a request:   kubectl port-forward -n $namespace svc/infra-sim-inference-gateway 8080:8080
             curl -i http://127.0.0.1:8080/v1/completions -H 'content-type: application/json' -d '{"model": "random", "prompt": "test", "max_tokens": 5}'
TEXT
