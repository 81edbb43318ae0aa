package examples_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/tied"
)

func TestConsumer(t *testing.T) {
	b, server := build(t), redistest.Start(t)
	rdb := server.Client(t)
	add := func(id, payload string) {
		require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "payments", Values: []any{"id", id, "payload", payload}}).Err())
	}
	pending := func() int64 { return rdb.XPending(t.Context(), "payments", "ledger").Val().Count }

	add("p-1", "100")
	first := b.consumer(t, server, "WORK=1h")
	first.says(t, "p-1: run 1")
	require.NoError(t, first.cmd.Process.Kill())
	assert.EqualValues(t, 1, pending(), "a message of a consumer that died stays pending")

	second := b.consumer(t, server, "WORK=")
	second.says(t, "p-1: run 2")
	second.says(t, `p-1: done, result "booked 100", error <nil>`)
	add("p-1", "100")
	second.says(t, `p-1: duplicate, result "booked 100", error <nil>`)
	add("p-1", "200")
	second.says(t, `p-1: dead, result "", error idem: another payload came under this message ID before`)
	add("p-2", "")
	second.says(t, `p-2: failed, result "", error there is no amount`)
	second.says(t, `p-2: dead, result "", error there is no amount`)
	require.Eventually(t, func() bool { return pending() == 0 }, 20*time.Second, 10*time.Millisecond)
	assert.EqualValues(t, 2, rdb.XLen(t.Context(), "payments-dead").Val())
	second.endsOnSIGTERM(t)

	t.Run("an invalid REDIS_URL ends it with a clear message", func(t *testing.T) {
		out, code := b.run(t, "consumer", "REDIS_URL=http://:secret@127.0.0.1")
		assert.Equal(t, 1, code)
		assert.Contains(t, out, "REDIS_URL is not a URL such as redis://")
		assert.NotContains(t, out, "secret")
	})
}

// consumer starts a consumer.
func (b binaries) consumer(t *testing.T, server *redistest.Server, env string) *service {
	t.Helper()
	s := &service{cmd: exec.Command(b.path("consumer")), log: &output{}, ended: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+server.Addr+"/0", env)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	require.NoError(t, tied.Start(s.cmd, syscall.SIGKILL))
	go func() { _ = s.cmd.Wait(); close(s.ended) }()
	t.Cleanup(func() { _ = s.cmd.Process.Signal(syscall.SIGKILL); <-s.ended })
	return s
}

// says waits until the service has written a line that ends so.
func (s *service) says(t *testing.T, line string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(s.log.String(), line+"\n") }, 30*time.Second, 5*time.Millisecond, line)
}
