package measure

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-idem/idem/internal/redistest"
)

// Telemetry builds the command observed, and writes how much CPU a request takes without hooks, and with those of packages below observe.
// The services get the same requests in turns. The row "without, again" is a second process without hooks: what it differs by is not a
// difference of the hooks. Telemetry must run in the directory bench.
func Telemetry(tb testing.TB, out io.Writer) error {
	binary := filepath.Join(tb.TempDir(), "observed")
	if text, err := exec.Command("go", "build", "-o", binary, "./observed").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	redis := redistest.Start(tb)
	fmt.Fprintf(out, "CPU of the service in µs per request, by %d turns of %d requests.\n", sessions*turns, turnClients*turnEach)
	fmt.Fprintf(out, "Differences are medians of all turns; the range is that of the medians of %d sessions.\n\n", sessions)
	for _, c := range []struct {
		name     string
		workload workload
		args     []string
	}{
		{"net/http, new keys", allNew, nil},
		{"net/http, replays", allReplays, nil},
		{"Fiber, new keys", allNew, []string{"-fiber"}},
		{"Fiber, replays", allReplays, []string{"-fiber"}},
	} {
		for i, packages := range []string{"slogidem", "promidem", "otelidem", "slogidem,promidem,otelidem"} {
			without := candidate{binary, append([]string{"-redis", redis.Addr}, c.args...)}
			with := candidate{binary, append([]string{"-observe", packages}, without.args...)}
			var used [3][]float64
			for range sessions {
				if err := redis.Client(tb).FlushAll(context.Background()).Err(); err != nil {
					return err
				}
				if err := session(&used, [3]candidate{without, without, with}, c.workload); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
			if i == 0 {
				fmt.Fprintf(out, "%s: without telemetry %.1f\n", c.name, median(used[0]))
			}
			fmt.Fprintf(out, "  %-27s %s; without, again: %s\n", packages, difference(used[2], used[0], turns), difference(used[1], used[0], turns))
		}
	}
	return nil
}
