package redistest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/go-idem/idem/internal/needs"
)

//go:embed clock/clock.c
var clockSource []byte

// otherClock returns the environment of a server whose clock is ahead, or behind. It needs Linux and the C compiler that the
// race detector needs, too.
func otherClock(tb testing.TB, ahead time.Duration) []string {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("NO OTHER CLOCK: only Linux can give a server one")
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		needs.Missing(tb, "NO CC: this test needs a C compiler on the PATH")
	}
	dir := tb.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	must(tb, os.WriteFile(source, clockSource, 0o600))
	if out, err := exec.Command(compiler, "-O1", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		tb.Fatalf("redistest: %v: %s", err, out)
	}
	return []string{"LD_PRELOAD=" + library, fmt.Sprintf("CLOCK_AHEAD=%d", int(ahead.Seconds()))}
}
