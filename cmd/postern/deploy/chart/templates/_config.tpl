{{- /* The gateway's configuration: only what was told, so that its own defaults hold. */}}
{{- define "postern.config" -}}
{{- $fullname := include "postern.fullname" . -}}
apiVersion: postern.dev/v1alpha1
kind: Gateway
metadata:
  name: {{ required "name is missing: what shall other clusters call this one? For example --set name=edge" .Values.name | quote }}
spec:
  stateDir: /var/lib/postern
  {{- if (default dict .Values.key).existingSecret }}
  privateKeyFile: /etc/postern-key/private.key
  {{- end }}
  listen:
    port: {{ int .Values.gateway.port }}
  {{- with int .Values.gateway.mtu }}
  mtu: {{ . }}
  {{- end }}
  {{- with int .Values.gateway.connectionsPerSecond }}
  limits:
    connectionsPerSecond: {{ . }}
  {{- end }}
  admin:
    socket: /run/postern/postern.sock
  http:
    address: {{ printf ":%d" (int .Values.metrics.port) | quote }}
  {{- $discovery := include "postern.discovery" . | fromYaml }}
  {{- with $discovery }}
  discovery:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.proxy }}
  proxy:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $services := include "postern.services" . | fromYaml }}
  {{- with $services }}
  services:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  kubernetes:
    release: {{ $fullname }}
    service: {{ $fullname }}
    peerServices: {{ .Values.peerServices }}
    {{- with .Values.peerServicesFrom }}
    peerServicesFrom:
      {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if (.Values.mcs).enabled }}
    mcs:
      {{- if .Values.mcs.allNamespaces }}
      allNamespaces: true
      {{- else }}
      {{- if not .Values.mcs.namespaces }}
      {{- fail "mcs.enabled needs to know where: --set mcs.namespaces='{shop}', or mcs.allNamespaces=true" }}
      {{- end }}
      namespaces:
        {{- toYaml .Values.mcs.namespaces | nindent 6 }}
      {{- end }}
      {{- if include "postern.dns" . }}
      dns:
        listen: ":10053"
      {{- end }}
    {{- end }}
    leaseSeconds: {{ int .Values.leaseSeconds }}
{{- end }}

{{- define "postern.discovery" -}}
{{- $out := dict -}}
{{- range $key, $value := .Values.discovery -}}
{{- if $value -}}
{{- $_ := set $out $key $value -}}
{{- end -}}
{{- end -}}
{{- if not .Values.discovery.dns.domains -}}
{{- $out = omit $out "dns" -}}
{{- end -}}
{{- toYaml $out -}}
{{- end }}

{{- define "postern.services" -}}
{{- $out := dict -}}
{{- if .Values.services.apiServer.enabled -}}
{{- $_ := set $out "apiServer" (omit .Values.services.apiServer "enabled") -}}
{{- end -}}
{{- $issuer := dict -}}
{{- if eq .Values.issuer.type "serviceAccount" -}}
{{- $_ := set $issuer "serviceAccount" (dict "namespace" (include "postern.accounts" .) "ttl" .Values.issuer.ttl) -}}
{{- else if eq .Values.issuer.type "csr" -}}
{{- $_ := set $issuer "csr" (dict "ttl" .Values.issuer.ttl) -}}
{{- end -}}
{{- $auth := dict -}}
{{- if $issuer -}}
{{- $_ := set $auth "issuer" $issuer -}}
{{- end -}}
{{- if .Values.outOfBand.enabled -}}
{{- $open := dict "listen" (printf ":%d" (int .Values.outOfBand.port)) -}}
{{- if .Values.outOfBand.tlsSecret -}}
{{- $_ := set $open "tls" (dict "certFile" "/etc/postern-auth/tls.crt" "keyFile" "/etc/postern-auth/tls.key") -}}
{{- end -}}
{{- $_ := set $auth "outOfBand" $open -}}
{{- end -}}
{{- $_ := set $out "auth" $auth -}}
{{- with .Values.services.named -}}
{{- $_ := set $out "named" . -}}
{{- end -}}
{{- toYaml $out -}}
{{- end }}
