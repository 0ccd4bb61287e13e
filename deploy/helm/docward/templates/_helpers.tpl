{{- define "docward.selector" -}}
app.kubernetes.io/name: docward
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "docward.metadata" -}}
name: {{ .Release.Name }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "docward.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
