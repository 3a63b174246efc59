{{- define "gaunt.settings" -}}
{{- $peers := list -}}
{{- if and .Values.tokenSecret (gt (int .Values.aggregator.replicas) 1) -}}
{{- range until (int .Values.aggregator.replicas) -}}
{{- $peers = append $peers (printf "%s-%d.%s-peer.%s.svc" $.Release.Name . $.Release.Name $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
[cluster]
name = {{ .Values.aggregator.cluster | default .Release.Name | quote }}

# The headless service has one address record for each ready pod of gaunt-node.
[gather]
period = {{ .Values.aggregator.period | quote }}

[[gather.groups]]
name = "nodes"
port = {{ .Values.node.port }}
dns_sd = [{ name = "{{ .Release.Name }}-node.{{ .Release.Namespace }}.svc", type = "A", refresh = "30s" }]

[serve]
listen = "0.0.0.0:{{ .Values.aggregator.port }}"
names = {{ concat (list .Release.Name (printf "%s.%s" .Release.Name .Release.Namespace) (printf "%s.%s.svc" .Release.Name .Release.Namespace) (printf "%s.%s.svc.cluster.local" .Release.Name .Release.Namespace)) .Values.aggregator.names $peers | toJson }}
state_folder = "/var/lib/gaunt"
{{- if .Values.tokenSecret }}
token_file = "/etc/gaunt/token/token"
{{- end }}
{{- if $peers }}

# All aggregators: each leaves itself out.
[serve.peers]
urls = [{{ range $index, $peer := $peers }}{{ if $index }}, {{ end }}"http://{{ $peer }}:{{ $.Values.aggregator.port }}"{{ end }}]
{{- end }}
{{- with .Values.aggregator.settings }}

{{ . }}
{{- end }}
{{- end }}
