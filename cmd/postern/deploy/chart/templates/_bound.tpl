{{- /* What every binding of the gateway's own rights says. */}}
{{- define "postern.bound" -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ include "postern.fullname" .context }}
  namespace: {{ .context.Release.Namespace }}
{{- end }}
