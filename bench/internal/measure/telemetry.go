package measure

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-idem/idem/internal/redistest"
)

// Telemetry builds the command observed, and prints by how much the hooks of packages below observe change the CPU of a request.
// The services get the same requests in turns. In rows with -alone the handler makes the calls to the libraries itself: what
// those take is what no package can save. Telemetry must run in the directory bench.
func Telemetry(tb testing.TB) error {
	binary := filepath.Join(tb.TempDir(), "observed")
	if text, err := exec.Command("go", "build", "-o", binary, "./observed").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	redis := redistest.Start(tb)
	printHead("Hooks beside no hooks")
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
		for _, packages := range []string{"slogidem", "promidem", "otelidem", "slogidem,promidem,otelidem"} {
			for _, flag := range c.flags {
				with := candidate{binary, append([]string{flag, packages}, without.args...)}
				used, err := sessionsOf(tb, redis, [3]candidate{without, without, with}, c.workload)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				printRow(fmt.Sprintf("%s, %s %s", c.name, flag, packages), used, ofService)
			}
		}
	}
	return nil
}
