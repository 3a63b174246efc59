{{- define "gaunt.settings" -}}
{{- $peers := list -}}
{{- if and .Values.security.enabled (gt (int .Values.aggregator.replicas) 1) -}}
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
{{- if .Values.security.enabled }}
scheme = "https"
allow = {{ .Values.node.networks | toJson }}
tls = { ca_file = "/etc/gaunt/security/ca.pem", server_name = "gaunt-node", cert_file = "/etc/gaunt/security/client-gaunt.pem", key_file = "/etc/gaunt/security/client-gaunt.key" }
{{- end }}
dns_sd = [{ name = "{{ .Release.Name }}-node.{{ .Release.Namespace }}.svc", type = "A", refresh = "30s" }]

[serve]
listen = "0.0.0.0:{{ .Values.aggregator.port }}"
names = {{ concat (list .Release.Name (printf "%s.%s" .Release.Name .Release.Namespace) (printf "%s.%s.svc" .Release.Name .Release.Namespace) (printf "%s.%s.svc.cluster.local" .Release.Name .Release.Namespace)) .Values.aggregator.names $peers | toJson }}
state_folder = "/var/lib/gaunt"
{{- if .Values.security.enabled }}
web_config = "/etc/gaunt/web.yml"
token_file = "/etc/gaunt/security/token"
read_needs_role = true
{{- end }}
{{- if $peers }}

# All aggregators: each leaves itself out.
[serve.peers]
urls = [{{ range $index, $peer := $peers }}{{ if $index }}, {{ end }}"https://{{ $peer }}:{{ $.Values.aggregator.port }}"{{ end }}]
tls = { ca_file = "/etc/gaunt/security/ca.pem" }
{{- end }}
{{- with .Values.aggregator.settings }}

{{ . | trim }}
{{- end }}
{{- end }}

{{- define "gaunt.nodeSettings" -}}
{{- if .Values.security.enabled -}}
web_config = "/etc/gaunt/web.yml"
{{ end -}}
{{ .Values.node.settings | trim }}
{{- end }}

{{- define "gaunt.tls" -}}
tls_server_config:
  cert_file: security/{{ . }}.pem
  key_file: security/{{ . }}.key
{{- end }}
