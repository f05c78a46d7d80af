{{- /* The prefix of every object's name: the release, with the chart's name unless it is in it. */}}
{{- define "postern.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Objects of the whole cluster carry the namespace too: each may have a release. */}}
{{- define "postern.clusterName" -}}
{{ include "postern.fullname" . }}-{{ .Release.Namespace }}
{{- end }}

{{- /* The gateway selects by these too, and knows its name by its configuration. */}}
{{- define "postern.selector" -}}
app.kubernetes.io/name: postern
app.kubernetes.io/instance: {{ include "postern.fullname" . }}
{{- end }}

{{- /* A version may have a plus, which no label may. */}}
{{- define "postern.labels" -}}
{{- with .Values.commonLabels }}
{{- toYaml . }}
{{ end -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "postern.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "postern.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end }}

{{- /* Whether it serves names of imported services. */}}
{{- define "postern.dns" -}}
{{- if and (.Values.mcs).enabled (default dict .Values.mcs.dns).enabled }}true{{ end -}}
{{- end }}

{{- /* Which other release an object that is there already belongs to; empty: none, or this one. */}}
{{- define "postern.owner" -}}
{{- $release := (index . 0).Release -}}
{{- $notes := dig "metadata" "annotations" dict (index . 1) -}}
{{- $name := get $notes "meta.helm.sh/release-name" -}}
{{- $namespace := get $notes "meta.helm.sh/release-namespace" -}}
{{- if and $name (or (ne $name $release.Name) (ne $namespace $release.Namespace)) -}}
{{ $name }} in namespace {{ $namespace }}
{{- end -}}
{{- end }}

{{- define "postern.accounts" -}}
{{- default (printf "%s-peers" (include "postern.fullname" .)) .Values.issuer.serviceAccount.namespace -}}
{{- end }}

{{- /* NodePort where a load balancer is not to be had as a rule. k3s tells itself by its version, to
       those as well who may not list nodes. */}}
{{- define "postern.serviceType" -}}
{{- if .Values.service.type -}}
{{ .Values.service.type }}
{{- else if contains "k3s" .Capabilities.KubeVersion.Version -}}
NodePort
{{- else -}}
{{- $type := "LoadBalancer" -}}
{{- range (lookup "v1" "Node" "" "").items -}}
{{- if regexMatch "^(kind|k3s)://" (default "" .spec.providerID) -}}
{{- $type = "NodePort" -}}
{{- end -}}
{{- end -}}
{{ $type }}
{{- end -}}
{{- end }}
