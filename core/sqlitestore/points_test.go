package sqlitestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/sqlitestore"
)

// points counts the points of a child at which it may die.
type points struct {
	passed, diesAt int64
}

// pass ends the process without any clean-up if this is the point at which it dies.
func (p *points) pass(name string) {
	if atomic.AddInt64(&p.passed, 1) == p.diesAt {
		fmt.Println("dies", name)
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
		select {} // nothing happens between the signal and the end
	}
}

// orderOnce is a service that opens the file, handles one order with an effect, and ends. It dies at the point with the
// number that the file is named by: before a row changes, before a transaction is committed, and between the calls of the run.
func orderOnce(path string) error {
	number, err := strconv.ParseInt(filepath.Base(path), 10, 64)
	if err != nil {
		return err
	}
	p := &points{diesAt: number}
	sqlite.RegisterConnectionHook(func(conn sqlite.ExecQuerierContext, _ string) error {
		hooks := conn.(sqlite.HookRegisterer)
		hooks.RegisterPreUpdateHook(func(sqlite.SQLitePreUpdateData) { p.pass("before a row changes") })
		hooks.RegisterCommitHook(func() int32 { p.pass("before a commit"); return 0 })
		return nil
	})
	store, err := sqlitestore.Open(ctx, path)
	if err != nil {
		return err
	}
	p.pass("after the file is open")
	if _, err := store.DB().ExecContext(ctx, "CREATE TABLE effect (key TEXT NOT NULL)"); err != nil {
		return err
	}
	cfg := core.Config{Store: store, Scope: core.SingleTenant}
	cfg.Hooks.Kept = func(context.Context, core.Event) { p.pass("after the outcome is kept") }
	engine, err := core.New(cfg)
	if err != nil {
		return err
	}
	s := &service{Engine: engine, store: store, key: "order"}
	_, err = s.do(func(ctx context.Context) (*core.Response, error) {
		p.pass("after the claim")
		if err := s.inTx(ctx); err != nil {
			return nil, err
		}
		p.pass("after the effect")
		return created()
	})
	if err == nil {
		fmt.Println("done")
	}
	return err
}

// A process dies at each point from the making of the file on. Its effect and its outcome are there together or not at all, and an outcome that was reported
// is there.
func TestAProcessThatDiesAtAnyPointLeavesEffectAndOutcomeTogether(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for number, isDone := 1, false; !isDone; number++ {
		path := filepath.Join(t.TempDir(), strconv.Itoa(number))
		c, last := startChild(t, "order once", path), ""
		for c.lines.Scan() {
			last = c.lines.Text()
		}
		isDone = last == "done"
		require.True(t, isDone || strings.HasPrefix(last, "dies "), "%d: %s", number, last)
		seen[last]++
		s := serviceOn(t, open(t, path))
		s.key = "order"
		assert.Equal(t, s.effects() > 0, s.hasOutcome(), "%d: %s: one of effect and outcome is there without the other", number, last)
		assert.Equal(t, isDone || last == "dies after the outcome is kept", s.effects() > 0, "%d: %s", number, last)
	}
	for _, point := range []string{
		"before a row changes", "before a commit", "after the file is open", "after the claim", "after the effect", "after the outcome is kept",
	} {
		assert.Positive(t, seen["dies "+point], point)
	}
}
