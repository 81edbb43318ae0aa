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
// The services get the same requests in turns. With -alone the handler makes the calls to the libraries itself, so that row is what
// no package can save. The row "without, again" is a second process without hooks: what it differs by is not a
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
		flags    []string
	}{
		{"net/http, new keys", allNew, nil, []string{"-observe", "-alone"}},
		{"net/http, replays", allReplays, nil, []string{"-observe"}},
		{"Fiber, new keys", allNew, []string{"-fiber"}, []string{"-observe"}},
		{"Fiber, replays", allReplays, []string{"-fiber"}, []string{"-observe"}},
	} {
		without := candidate{binary, append([]string{"-redis", redis.Addr}, c.args...)}
		fmt.Fprintf(out, "%s\n", c.name)
		for _, packages := range []string{"slogidem", "promidem", "otelidem", "slogidem,promidem,otelidem"} {
			for _, flag := range c.flags {
				with := candidate{binary, append([]string{flag, packages}, without.args...)}
				used, err := sessionsOf(tb, redis, [3]candidate{without, without, with}, c.workload)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				fmt.Fprintf(out, "  %-8s %-27s %s of %.1f; without, again: %s\n", flag, packages,
					difference(used[2], used[0], turns), median(used[0]), difference(used[1], used[0], turns))
			}
		}
	}
	return nil
}

// sessionsOf returns the CPU of each candidate in the turns of all sessions. Each begins with an empty Redis.
func sessionsOf(tb testing.TB, redis *redistest.Server, all [3]candidate, w workload) (used [3][]float64, err error) {
	for range sessions {
		if err := redis.Client(tb).FlushAll(context.Background()).Err(); err != nil {
			return used, err
		}
		if err := session(&used, all, w); err != nil {
			return used, err
		}
	}
	return used, nil
}
