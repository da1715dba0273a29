{{- define "pointsman.name" -}}
{{ printf "%s-operator" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "pointsman.selector" -}}
app.kubernetes.io/name: pointsman
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pointsman.labels" -}}
{{ include "pointsman.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* Labels as a flag takes them: a=b,c=d. */ -}}
{{- define "pointsman.pairs" -}}
{{- $pairs := list }}
{{- range $name, $value := . }}
{{- $pairs = append $pairs (printf "%s=%s" $name $value) }}
{{- end }}
{{- join "," $pairs }}
{{- end }}

{{- define "pointsman.owning" -}}
{{ printf "%s-inference-crds" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* A role, by its kind and name, and who has it. */ -}}
{{- define "pointsman.binding" -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name | default (include "pointsman.name" .root) }}
subjects:
  - kind: ServiceAccount
    name: {{ include "pointsman.name" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
