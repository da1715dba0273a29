#!/usr/bin/env bash
# Give the picker of a stack its account and the right to read Pods and inference resources.
#
# The operator does the same for every stack with a picker, so this is for clusters that have no operator yet, or
# another one. What a stack owns is left alone: the operator keeps it right. What is made here belongs to no one, and
# the first stack that needs it takes it over. Running it again changes nothing.
#
#   NS_SIM=llm-d-sim ./hack/create-epp-rbac.sh
set -euo pipefail

NS_SIM=${NS_SIM:-llm-d-sim}
name=gaie-sim-epp
# shellcheck source=hack/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[[ $# == 0 ]] || die "takes no arguments: set NS_SIM to the namespace of the simulators"
[[ $NS_SIM =~ ^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$ ]] || die "NS_SIM=$NS_SIM is not the name of a namespace: use a-z, 0-9 and -"

manifest() { # kind
  cat <<YAML
metadata:
  name: $name
  namespace: $NS_SIM
  annotations:
    sim.llm-d.io/owner: anyone
YAML
  case $1 in
    serviceaccount) cat <<YAML ;;
apiVersion: v1
kind: ServiceAccount
YAML
    role) cat <<YAML ;;
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
rules:
  - apiGroups: [""]
    resources: [pods]
    verbs: [list, watch]
  - apiGroups: [inference.networking.k8s.io]
    resources: [inferencepools]
    verbs: [list, watch]
  - apiGroups: [inference.networking.x-k8s.io]
    resources: [inferenceobjectives, inferencemodelrewrites]
    verbs: [list, watch]
  - apiGroups: [llm-d.ai]
    resources: [inferenceobjectives, inferencemodelrewrites]
    verbs: [list, watch]
YAML
    rolebinding) cat <<YAML ;;
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: $name
subjects:
  - kind: ServiceAccount
    name: $name
    namespace: $NS_SIM
YAML
  esac
}

require_cluster
ensure_namespace "$NS_SIM"
for kind in serviceaccount role rolebinding; do
  owner=$(kubectl get "$kind" "$name" -n "$NS_SIM" --ignore-not-found \
    -o 'jsonpath={.metadata.annotations.sim\.llm-d\.io/owner}')
  if [[ -n $owner && $owner != anyone ]]; then
    echo "$kind/$name belongs to $owner and is kept right by the operator: left as it is"
  else
    manifest "$kind" | apply
  fi
done
