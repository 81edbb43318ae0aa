package mixin

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/needs"
	"github.com/go-idem/idem/internal/telemetry"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// find returns the first group of all matches.
func find(pattern, text string) (all []string) {
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, match[1])
	}
	return all
}

// Each alert fires on the series that it is for, and not on others like them.
func TestTheAlertsFireWhenTheyShould(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		needs.Missing(t, "NO PROMTOOL: this test of the alerts needs it on the PATH (Debian: apt-get install prometheus, or make tools)")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		out, err := exec.Command("promtool", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

func TestEachAlertHasTestsAndARunbook(t *testing.T) {
	rules, tests := read(t, "alerts.yaml"), read(t, "alerts_test.yaml")
	alerts := find(`- alert: (\w+)`, rules)
	require.NotEmpty(t, alerts)
	for _, alert := range alerts {
		assert.Contains(t, tests, "- name: "+alert+" fires\n")
		assert.Contains(t, tests, "- name: "+alert+" does not fire\n")
	}
	var anchors []string
	for _, heading := range find(`(?m)^#+ (.+)$`, read(t, "../../docs/operations.md")) {
		kept := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading), "")
		anchors = append(anchors, strings.ReplaceAll(kept, " ", "-"))
	}
	books := find(`runbook_url: \S+/docs/operations\.md#(\S+)`, rules)
	assert.Len(t, books, len(alerts), "each alert has a runbook")
	for _, anchor := range books {
		assert.Contains(t, anchors, anchor)
	}
}

// The metrics of rules and dashboard are those of promidem, with labels that they have, or those of redis_exporter.
func TestEachMetricExists(t *testing.T) {
	known := map[string][]string{
		"redis_memory_used_bytes": nil, "redis_memory_max_bytes": nil, "redis_evicted_keys_total": nil,
	}
	for _, i := range telemetry.All {
		name := i.PrometheusName()
		known[name] = i.Attributes
		if i.Kind == telemetry.Histogram {
			known[name+"_bucket"], known[name+"_count"], known[name+"_sum"] = append(slices.Clone(i.Attributes), "le"), i.Attributes, i.Attributes
		}
	}
	for _, text := range []string{read(t, "alerts.yaml"), read(t, "alerts_test.yaml"), strings.ReplaceAll(read(t, "dashboard.json"), `\"`, `"`)} {
		used := regexp.MustCompile(`\b((?:idem|redis)_[a-z_]+)(\{[^}]*\})?`).FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, used)
		for _, metric := range used {
			labels, ok := known[metric[1]]
			assert.True(t, ok || metric[1] == "redis_exporter", metric[1])
			for _, label := range find(`(\w+)(?:=~|!=|=)"`, metric[2]) {
				if strings.HasPrefix(metric[1], "idem_") {
					assert.Contains(t, labels, label, metric[0])
				}
			}
		}
	}
}

func TestTheDashboardIsWhole(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "dashboard.json")), &dashboard))
	require.Len(t, dashboard.Panels, 12)
	for i, panel := range dashboard.Panels {
		assert.Equal(t, i+1, panel.ID)
		assert.NotEmpty(t, panel.Targets, panel.Title)
		assert.LessOrEqual(t, panel.GridPos.X+panel.GridPos.W, 24, panel.Title)
		for _, target := range panel.Targets {
			isOfRare := strings.Contains(target.Expr, "increase(")
			assert.Equal(t, isOfRare, strings.Contains(target.Expr, " unless "), "the event with which a series begins: %s", target.Expr)
		}
	}
	for _, i := range telemetry.All {
		if i != telemetry.WaitDuration { // its requests are in idem_requests_total
			assert.Contains(t, read(t, "dashboard.json"), i.PrometheusName(), "each instrument has a panel")
		}
	}
}
