{{- define "fleetui.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The prefix of all names: that of the release, with the name of the chart unless it is in there. */}}
{{- define "fleetui.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" }}
{{- else if contains (include "fleetui.name" .) .Release.Name }}
{{- .Release.Name | trunc 45 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "fleetui.name" .) | trunc 45 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "fleetui.selector" -}}
app.kubernetes.io/name: {{ include "fleetui.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fleetui.labels" -}}
{{ include "fleetui.selector" . }}
app.kubernetes.io/part-of: fleetui
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "fleetui.secret" -}}
{{- default (include "fleetui.fullname" .) .Values.secret.name }}
{{- end }}

{{- define "fleetui.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "fleetui.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "fleetui.url" -}}
{{- if .Values.publicUrl }}
{{- .Values.publicUrl }}
{{- else }}
{{- printf "%s://%s" (ternary "https" "http" .Values.https) (first .Values.hosts) }}
{{- end }}
{{- end }}

{{/* The settings of an identity provider: those that are set, since an empty one is refused. */}}
{{- define "fleetui.oidc" -}}
{{- with .Values.oidc }}
{{- if .issuer }}
{{- $settings := dict "ISSUER" .issuer "NAME" .name "CLIENT_ID" .clientId "SCOPES" .scopes }}
{{- $settings = merge $settings (dict "NAME_CLAIM" .nameClaim "ROLE_CLAIM" .roleClaim "ROLES" .roles) }}
{{- range $name, $value := $settings }}
{{- if $value }}
FLEETUI_OIDC_{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "fleetui.image" -}}
{{- with .Values.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A variable from a key of a Secret: a list of its name, the Secret and the key. */}}
{{- define "fleetui.env.secret" }}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef: {name: {{ index . 1 }}, key: {{ index . 2 }}}
{{- end }}

{{/* A variable from the ConfigMap: a list of its name and the root. */}}
{{- define "fleetui.env.setting" }}
- name: {{ index . 0 }}
  valueFrom:
    configMapKeyRef: {name: {{ include "fleetui.fullname" (index . 1) }}, key: {{ index . 0 }}}
{{- end }}

{{/* The variables that every part needs. */}}
{{- define "fleetui.env" }}
{{- $secret := include "fleetui.secret" . }}
{{- include "fleetui.env.secret" (list "DATABASE_URL" (default $secret .Values.database.secret.name) .Values.database.secret.key) }}
{{- include "fleetui.env.secret" (list "CELERY_BROKER_URL" (default $secret .Values.broker.secret.name) .Values.broker.secret.key) }}
{{- include "fleetui.env.secret" (list "FLEETUI_SECRET_KEY" $secret "FLEETUI_SECRET_KEY") }}
{{- include "fleetui.env.secret" (list "FLEETUI_CREDENTIAL_KEYS" $secret "FLEETUI_CREDENTIAL_KEYS") }}
{{- include "fleetui.env.setting" (list "HOSTS" .) }}
{{- include "fleetui.env.setting" (list "FLEETUI_HTTPS" .) }}
{{- end }}

{{/* Labels and annotations of a pod, which starts again when its settings change: a dict of root and part. */}}
{{- define "fleetui.pod.metadata" -}}
{{- $values := index .root.Values .part }}
labels:
  {{- include "fleetui.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .part }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/settings: {{ include (print .root.Template.BasePath "/settings.yaml") .root | sha256sum }}
  {{- with $values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* What the specs of all pods have before their container: a dict of root and part. */}}
{{- define "fleetui.pod" -}}
{{- $values := index .root.Values .part -}}
serviceAccountName: {{ include "fleetui.serviceAccount" .root }}
automountServiceAccountToken: {{ .root.Values.serviceAccount.token }}
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: data # locks, the schedule of the clock, counts of requests: nothing that has to stay
    emptyDir: {sizeLimit: 256Mi}
  - name: tmp
    emptyDir: {sizeLimit: 256Mi}
{{- end }}

{{- define "fleetui.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "fleetui.selector" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/* What all containers have beside their arguments and variables: a dict of root and part. */}}
{{- define "fleetui.container" -}}
image: {{ include "fleetui.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
resources:
  {{- toYaml (index .root.Values .part).resources | nindent 2 }}
securityContext:
  {{- toYaml .root.Values.containerSecurityContext | nindent 2 }}
volumeMounts:
  - {name: data, mountPath: /var/lib/fleetui}
  - {name: tmp, mountPath: /tmp}
{{- end }}
