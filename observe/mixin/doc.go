// Package mixin has a Grafana dashboard (dashboard.json) and Prometheus alerts (alerts.yaml) for the metrics of observe/promidem. It
// has no code.
package mixin
