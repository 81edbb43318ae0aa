package processtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// silent is a test that a violation does not fail.
type silent struct{ testing.TB }

func (silent) Errorf(string, ...any) {}

// A soak whose service forgets an outcome has a violation, whatever the service answers then.
func TestASoakSeesThatAnOutcomeIsLost(t *testing.T) {
	for name, then := range map[string]struct {
		status     int
		body       string
		violations int64
	}{
		"a replay":                  {201, `{"key":"k","fence":1}`, 0},
		"another run":               {201, `{"key":"k","fence":2}`, 1},
		"another run, which failed": {503, "failed", 1},
		"the store is away":         {503, "store-unavailable", 1},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if asked++; asked > 1 {
					w.WriteHeader(then.status)
					_, _ = fmt.Fprint(w, then.body)
					return
				}
				w.WriteHeader(201)
				_, _ = fmt.Fprint(w, `{"key":"k","fence":1}`)
			}))
			t.Cleanup(server.Close)
			s := &soak{t: silent{t}, path: filepath.Join(t.TempDir(), "effects"), seen: map[string]string{}}
			require.NoError(t, os.WriteFile(s.path, nil, 0o600))
			addr := func() string { return strings.TrimPrefix(server.URL, "http://") }
			require.True(t, s.send(server.Client(), addr(), "k"))
			s.sendUntil(time.Now(), server.Client(), addr, "k")
			assert.Equal(t, then.violations, s.violations.Load())
		})
	}
}
