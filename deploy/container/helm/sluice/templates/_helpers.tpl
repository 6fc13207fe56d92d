{{- define "sluice.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "sluice.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Shared memory: the arena, the index, and smaller files. */}}
{{- define "sluice.shmMiB" -}}
{{ add (int64 .Values.memoryMiB) (int64 .Values.indexMiB) 128 }}
{{- end }}

{{/* A node needs at least memory, index, 256 MiB and 64 MiB for each rank; 128 MiB of these are counted as shared memory. */}}
{{- define "sluice.limitMiB" -}}
{{ add (include "sluice.shmMiB" . | int64) (max (int64 .Values.overheadMiB) (add 128 (mul 64 (int64 .Values.ranks)))) }}
{{- end }}

{{/* Directories of the machine that the pod mounts, as lines of "NAME MOUNT". */}}
{{- define "sluice.directories" -}}
run /run/sluice/{{ .Values.instance }}
shm /dev/shm/sluice
{{- if gt (int64 .Values.disk.sizeGiB) 0 }}
disk /var/lib/sluice/{{ .Values.instance }}
{{- end }}
{{- end }}

{{- define "sluice.config" -}}
ranks = {{ .Values.ranks }}
memory = {{ .Values.memoryMiB }}MiB
index_memory = {{ .Values.indexMiB }}MiB
{{- if gt (int64 .Values.disk.sizeGiB) 0 }}
disk = {{ .Values.disk.sizeGiB }}GiB
disk_path = {{ printf "/var/lib/sluice/%s" .Values.instance | quote }}
{{- end }}
{{- if .Values.metrics.port }}
metrics_listen = 0.0.0.0:{{ .Values.metrics.port }}
{{- end }}
{{- if .Values.events.port }}
events_listen = 0.0.0.0:{{ .Values.events.port }}
{{- end }}
{{- if .Values.gpu.enabled }}
device = auto
{{- end }}
{{- if .Values.cluster.enabled }}
fabric = tcp
cluster_keys = /etc/sluice/keys
{{- if or .Values.cluster.directoryUrl .Values.cluster.directoryUrlSecret }}
directory = redis
{{- with .Values.cluster.directoryUrl }}
directory_url = {{ . | quote }}
{{- end }}
{{- else }}
peers = {{ required "cluster.enabled wants cluster.directoryUrl, cluster.directoryUrlSecret or cluster.peers" .Values.cluster.peers | quote }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{ $name }} = {{ kindIs "string" $value | ternary (quote $value) $value }}
{{- end }}
{{- end }}
