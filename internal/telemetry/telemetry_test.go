package telemetry

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
)

var update = flag.Bool("update", false, "write the table of instruments into docs/telemetry.md")

const (
	page  = "../../docs/telemetry.md"
	begin = "<!-- instruments: go test ./internal/telemetry -update -->\n"
	end   = "<!-- end of instruments -->\n"
)

// table lists the instruments as docs/telemetry.md does.
func table() string {
	text := "| OpenTelemetry | Prometheus | kind, unit | attributes | what it measures |\n| --- | --- | --- | --- | --- |\n"
	for _, i := range All {
		text += fmt.Sprintf("| `%s` | `%s` | %s, %s | %s | %s |\n",
			i.Name, i.PrometheusName(), i.Kind, i.Unit, "`"+strings.Join(i.Attributes, "`, `")+"`", i.Description)
	}
	return text
}

func TestThePageListsEachInstrument(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok, "docs/telemetry.md has a place for the table")
	was, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+table()+end+after), 0o600))
		return
	}
	assert.Equal(t, table(), was, "go test ./internal/telemetry -update")
}

func TestErrorsHaveFewTypes(t *testing.T) {
	for _, known := range errorTypes {
		assert.Equal(t, known.name, ErrorType(fmt.Errorf("wrapped: %w", known.err)))
	}
	assert.Equal(t, "other", ErrorType(errors.New("key 7 is gone")))
	assert.Empty(t, ErrorType(nil))
}

// values records what it gets as text.
type values []string

func (v *values) Series(i *Instrument, _ bool, attributes Values) Series {
	return func(_ context.Context, value float64) {
		*v = append(*v, strings.TrimSpace(fmt.Sprint(i.Name, " ", value, " ", strings.Join(attributes[:], " "))))
	}
}

func TestWaitsEndAtTheBeginOrTheDoneThatFollows(t *testing.T) {
	for name, test := range map[string]struct {
		play func(core.Hooks)
		want []string
	}{
		"a run": {func(h core.Hooks) {
			h.Begin(context.Background(), core.Event{Waited: 1e9})
			h.Done(context.Background(), core.Event{Result: "run", End: "kept", Waited: 1e9, Took: 2e9})
		}, []string{
			"idem.run.active 1", "idem.wait.active -1", "idem.requests 1 run", "idem.wait.duration 1 run", "idem.run.active -1",
			"idem.run.duration 2 kept false",
		}},
		"a replay": {func(h core.Hooks) {
			h.Done(context.Background(), core.Event{Result: "replay", Waited: 1e9})
		}, []string{"idem.requests 1 replay", "idem.wait.duration 1 replay", "idem.wait.active -1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got values
			test.play(Hooks(&got, core.Hooks{}))
			assert.Equal(t, test.want, []string(got))
		})
	}
}
