package sqlitestore_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/internal/servicetest"
	"github.com/go-idem/idem/internal/tied"
)

// children are what another process does with a file, by name. A child prints a line for each thing that is done.
var children = map[string]func(path string) error{
	"lock":  holdLock,
	"claim": claimMany,
	"order": orderMany,

	"order once": orderOnce,
	"open": func(path string) error {
		store, err := sqlitestore.Open(ctx, path)
		if err == nil {
			err = store.Close()
		}
		return err
	},
}

// runChild is the main function of a child.
func runChild(name, path string) {
	if err := children[name](path); err != nil {
		fmt.Println("error:", err)
	}
}

// child is another process of the test binary.
type child struct {
	*exec.Cmd
	lines *bufio.Scanner // what it prints
	input io.WriteCloser
}

// startChild starts a child. It is killed when the test ends.
func startChild(tb testing.TB, name, path string) *child {
	tb.Helper()
	return startProgram(tb, exec.Command(os.Args[0]), name, path)
}

// startProgram is startChild with a command for the test binary.
func startProgram(tb testing.TB, cmd *exec.Cmd, name, path string) *child {
	tb.Helper()
	cmd.Env = append(os.Environ(), "SQLITESTORE_CHILD="+name, "SQLITESTORE_PATH="+path)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	input, err := cmd.StdinPipe()
	require.NoError(tb, err)
	require.NoError(tb, tied.Start(cmd, syscall.SIGKILL))
	c := &child{cmd, bufio.NewScanner(output), input}
	tb.Cleanup(c.kill)
	return c
}

// kill kills the child, and waits for its end.
func (c *child) kill() {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// line returns the next line that the child prints.
func (c *child) line(tb testing.TB) string {
	tb.Helper()
	require.True(tb, c.lines.Scan(), "the child has ended")
	return c.lines.Text()
}

// holdLock holds the write lock of the file until the input of the process ends.
func holdLock(path string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	fmt.Println("locked")
	_, err = io.ReadAll(os.Stdin)
	return err
}

// keys is how many keys the processes claim that race.
const keys = 100

// numberedClaim returns a claim with the number of its key, and of the same request in every process.
func numberedClaim(number int) driver.Claim {
	c := rival(driver.Claim{Lease: time.Hour, Retention: 2 * time.Hour})
	binary.BigEndian.PutUint64(c.Key[:], uint64(number))
	c.Key = sha256.Sum256(c.Key[:])
	c.Fingerprint = c.Key
	return c
}

// claimMany claims the keys with numbers up to keys, once its input has a line, and prints those that it got.
func claimMany(path string) error {
	store, err := sqlitestore.Open(ctx, path)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	for i := range keys {
		entry, err := store.Begin(ctx, numberedClaim(i))
		if err != nil {
			return err
		}
		if entry.State == driver.Claimed {
			fmt.Println(i)
		}
	}
	fmt.Println("end")
	return nil
}

// orderMany is a service whose handler has one effect in each run, until it is killed. It prints the key of each response that a
// client would have got.
func orderMany(path string) error {
	store, err := sqlitestore.Open(ctx, path)
	if err != nil {
		return err
	}
	engine, err := core.New(core.Config{Store: store, Scope: core.SingleTenant})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		s := &service{Engine: engine, store: store, key: fmt.Sprintf("%d-%d", os.Getpid(), i)}
		fmt.Println("sent", s.key)
		result, err := s.do(s.order)
		if err != nil || result.Response == nil || result.Response.Status != 201 {
			return fmt.Errorf("%+v %w", result, err)
		}
		fmt.Println("done", s.key)
	}
}

func TestOneOfTwoProcessesGetsAKey(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	both := []*child{startChild(t, "claim", path), startChild(t, "claim", path)}
	for _, c := range both {
		require.Equal(t, "ready", c.line(t))
	}
	for _, c := range both {
		_, err := c.input.Write([]byte("\n"))
		require.NoError(t, err)
	}
	owners := map[string]int{}
	for _, c := range both {
		for line := c.line(t); line != "end"; line = c.line(t) {
			owners[line]++
		}
	}
	assert.Len(t, owners, keys)
	for key, n := range owners {
		assert.Equal(t, 1, n, "owners of the key %s", key)
	}
}

// A process is killed at any moment. What it has said is there, and of what it has not said effect and outcome are there or not,
// together.
func TestAProcessThatIsKilledLosesNothingThatItSaid(t *testing.T) {
	t.Parallel()
	path, rounds := newPath(t), 6
	if os.Getenv("SOAK") != "" {
		rounds = 300
	}
	s := serviceOn(t, open(t, path))
	for round := range rounds {
		sent, done := killed(t, path, round)
		for _, s.key = range sent {
			assert.Equal(t, done[s.key] || s.effects() > 0, s.hasOutcome(), "one of effect and outcome is there without the other")
			if done[s.key] {
				s.both()
			}
		}
	}
	var integrity string
	require.NoError(t, s.store.DB().QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&integrity))
	assert.Equal(t, "ok", integrity)
}

// killed runs a child that makes orders, and kills it a while after its order with this number. It returns the keys of its
// orders, and those that are done.
func killed(t *testing.T, path string, orders int) (sent []string, done map[string]bool) {
	c, done := startChild(t, "order", path), map[string]bool{}
	after := time.Duration(time.Now().UnixNano() % int64(5*time.Millisecond))
	for c.lines.Scan() {
		var word, key string
		_, err := fmt.Sscan(c.lines.Text(), &word, &key)
		require.NoError(t, err)
		require.Contains(t, []string{"sent", "done"}, word, c.lines.Text())
		if done[key] = word == "done"; word == "sent" {
			sent = append(sent, key)
		}
		if len(sent) == orders+1 && word == "sent" {
			time.AfterFunc(after, func() { _ = c.Process.Kill() })
		}
	}
	require.Greater(t, len(sent), orders, "the child has not come that far")
	return sent, done
}

// hasOutcome tells whether the record of the service's key is COMPLETED.
func (s *service) hasOutcome() bool {
	s.tb.Helper()
	isRun := false
	result, err := s.Do(ctx, servicetest.Order(s.key), func(ctx context.Context) (*core.Response, error) {
		isRun = true
		return &core.Response{Status: 500}, nil
	})
	require.NoError(s.tb, err)
	return !isRun && result.Replayed
}

func TestALockOfAnotherProcessHoldsNoCallLongerThanItsContext(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	store := open(t, path)
	done, running := claimed(t, store), claimed(t, store)
	require.NoError(t, store.Complete(ctx, done, []byte("kept")))
	c := startChild(t, "lock", path)
	require.Equal(t, "locked", c.line(t))

	h := &hanging{store, running}
	for name, call := range h.calls() {
		if call == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if readers[name] {
				assert.NoError(t, call(ctx), "a call that changes nothing needs no lock")
				return
			}
			endsInTime(t, call)
		})
	}
	assert.Equal(t, "kept", string(begin(t, store, rival(done)).Outcome), "a replay needs no lock")
	open(t, path)

	require.NoError(t, c.input.Close())
	require.NoError(t, c.Wait())
	require.NoError(t, store.Complete(ctx, running, []byte("kept")), "nothing has changed the record")
	var records int
	require.NoError(t, store.DB().QueryRowContext(ctx, "SELECT count(*) FROM idem_record").Scan(&records))
	assert.Equal(t, 2, records, "no call takes effect that has ended during the lock")
}
