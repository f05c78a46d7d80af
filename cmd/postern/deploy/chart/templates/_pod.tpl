{{- /* A pod that Pod Security "restricted" admits. Nothing in it can be written but two
       directories in memory: no key is ever on the node's disk. */}}
{{- define "postern.pod" -}}
serviceAccountName: {{ include "postern.fullname" . }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
# A Service called postern would set variables that begin as the gateway's own do.
enableServiceLinks: false
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- with default (ternary "ClusterFirstWithHostNet" "" (default false .Values.hostNetwork)) .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "postern.podSecurityContext" . | nindent 2 }}
terminationGracePeriodSeconds: {{ int .Values.terminationGracePeriodSeconds }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- if .Values.affinity }}
  {{- toYaml .Values.affinity | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "postern.selector" . | nindent 12 }}
  {{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
- name: postern
  {{- include "postern.container" . | nindent 2 }}
volumes:
- name: config
  configMap:
    name: {{ include "postern.fullname" . }}
# The gateway makes directories of its own below, with mode 0700: one that everybody may write
# to, as these are, it refuses.
- name: run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
- name: state
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- with default dict .Values.key }}
{{- if .existingSecret }}
- name: key
  secret:
    secretName: {{ .existingSecret }}
    items: [{key: {{ .key }}, path: private.key}]
    defaultMode: 0440
{{- end }}
{{- end }}
{{- if and .Values.outOfBand.enabled .Values.outOfBand.tlsSecret }}
- name: auth
  secret:
    secretName: {{ .Values.outOfBand.tlsSecret }}
    defaultMode: 0440
{{- end }}
{{- range .Values.secretMounts }}
- name: secret-{{ .name }}
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* OpenShift gives each namespace users of its own, and admits no other. */}}
{{- define "postern.podSecurityContext" -}}
{{- $context := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- if not (.Capabilities.APIVersions.Has "security.openshift.io/v1") -}}
{{- $context = merge $context (dict "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532) -}}
{{- end -}}
{{- toYaml (mergeOverwrite $context (default dict .Values.podSecurityContext)) -}}
{{- end }}

{{- define "postern.container" -}}
image: {{ include "postern.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [gateway, --config=/etc/postern/gateway.yaml, --log-format={{ .Values.log.format }}, --log-level={{ .Values.log.level }}]
env:
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: POD_IPS
  valueFrom: {fieldRef: {fieldPath: status.podIPs}}
- name: HOST_IP
  valueFrom: {fieldRef: {fieldPath: status.hostIP}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
ports:
- name: gateway
  containerPort: {{ int .Values.gateway.port }}
  protocol: UDP
  {{- with int .Values.hostPort }}
  hostPort: {{ . }}
  {{- end }}
- {name: http, containerPort: {{ int .Values.metrics.port }}, protocol: TCP}
{{- if .Values.outOfBand.enabled }}
- {name: auth, containerPort: {{ int .Values.outOfBand.port }}, protocol: TCP}
{{- end }}
{{- if include "postern.dns" . }}
- {name: dns, containerPort: 10053, protocol: UDP}
- {name: dns-tcp, containerPort: 10053, protocol: TCP}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
# None of these asks about peers: a gateway whose peers are all away is fine.
startupProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 1
  failureThreshold: 120
livenessProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
# Each second and at once: Services forget a gateway that stops before it resets what is left, after 2 s.
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 1
  timeoutSeconds: 10
  failureThreshold: 1
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
- {name: config, mountPath: /etc/postern, readOnly: true}
- {name: run, mountPath: /run}
- {name: state, mountPath: /var/lib}
{{- if (default dict .Values.key).existingSecret }}
- {name: key, mountPath: /etc/postern-key, readOnly: true}
{{- end }}
{{- if and .Values.outOfBand.enabled .Values.outOfBand.tlsSecret }}
- {name: auth, mountPath: /etc/postern-auth, readOnly: true}
{{- end }}
{{- range .Values.secretMounts }}
- {name: secret-{{ .name }}, mountPath: /etc/postern-secrets/{{ .name }}, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
