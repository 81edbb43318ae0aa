package faults_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/tied"
)

// childSpec is what a test that needs a process to kill starts this binary again with.
type childSpec struct {
	Redis, Ledger string
	Lease         time.Duration
	KillAt        string        // where the process kills itself: "before begin", "after begin", "after the effect", "after complete"
	Work          time.Duration // how long the handler works; negative: until the process ends
	Spinners      int           // goroutines that leave nothing of the processor
	Drain         time.Duration // how long SIGTERM waits for the handlers
}

const childVariable = "IDEM_FAULTS_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		var spec childSpec
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			panic(err)
		}
		spec.serve()
		return
	}
	os.Exit(m.Run())
}

func (c childSpec) dieAt(point string) {
	if c.KillAt == point {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (c childSpec) config() core.Config {
	cfg := core.Config{Store: redisstore.New(redis.NewClient(&redis.Options{Addr: c.Redis, ContextTimeoutEnabled: true}))}
	cfg.Scope = func(ctx context.Context, r *core.Request) string {
		c.dieAt("before begin")
		return core.SingleTenant(ctx, r)
	}
	cfg.Lease.Duration = c.Lease
	cfg.Keep.Policy = func(r *core.Response) core.Disposition { c.dieAt("after the effect"); return core.DefaultPolicy(r) }
	cfg.Hooks.Begin = func(context.Context, core.Event) { c.dieAt("after begin") }
	cfg.Hooks.Kept = func(context.Context, core.Event) { c.dieAt("after complete") }
	return cfg
}

// serve runs in the child until a signal ends it.
func (c childSpec) serve() {
	engine, err := core.New(c.config())
	if err != nil {
		panic(err)
	}
	var spins atomic.Int64
	for range c.Spinners {
		go func() {
			for {
				spins.Add(1)
			}
		}()
	}
	l := &ledger{path: c.Ledger}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := &http.Server{Handler: idem.HTTP(engine)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run, _ := core.FromContext(r.Context())
		perform(w, r, l, run, func(ctx context.Context, _ core.Run) int {
			if c.Work < 0 {
				select {}
			}
			select {
			case <-time.After(c.Work):
			case <-ctx.Done():
			}
			return http.StatusCreated
		})
	}))}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM) // before anybody knows of this process
	go func() { _ = server.Serve(listener) }()
	fmt.Println("http://" + listener.Addr().String())
	<-terminated
	drain, cancel := context.WithTimeout(context.Background(), c.Drain)
	defer cancel()
	_ = server.Shutdown(drain)
	_ = engine.Close(drain)
}

// child is a running one.
type child struct {
	url string
	cmd *exec.Cmd
}

// spawn starts a child beside s, on the same records and with the same ledger.
func (s *service) spawn(server *redistest.Server, c childSpec) *child {
	s.tb.Helper()
	c.Redis, c.Ledger, c.Lease = server.Addr, s.ledger.path, s.lease
	spec, err := json.Marshal(c)
	require.NoError(s.tb, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(spec))
	if c.Spinners > 0 {
		cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	}
	out, err := cmd.StdoutPipe()
	require.NoError(s.tb, err)
	require.NoError(s.tb, tied.Start(cmd, syscall.SIGKILL))
	s.tb.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(s.tb, err)
	return &child{strings.TrimSpace(line), cmd}
}

func shortLease(c *core.Config) { c.Lease.Duration = time.Second }

func onServerWithShortLease(t *testing.T) (*service, *redistest.Server, *redis.Client) {
	server := redistest.Start(t)
	client := server.Client(t)
	return newService(t, redisstore.New(client), shortLease), server, client
}

func TestAProcessThatIsKilledAtAnyPoint(t *testing.T) {
	for _, c := range []struct {
		point            string
		records, effects int // that the process has left
		replayed         bool
	}{
		{"before begin", 0, 0, false},
		{"after begin", 1, 0, false},
		{"after the effect", 1, 1, false},
		{"after complete", 1, 1, true},
	} {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			s, server, client := onServerWithShortLease(t)
			dying := s.spawn(server, childSpec{KillAt: c.point})
			killed := time.Now()
			_, err := send(dying.url, "K")
			require.Error(t, err, "the process was not killed")
			require.EqualValues(t, c.records, client.DBSize(ctx).Val())
			s.ran("K", c.effects)
			a := s.soon("K", 20*time.Second)
			assert.Equal(t, c.replayed, a.replayed)
			if c.records == 1 && !c.replayed {
				assert.GreaterOrEqual(t, time.Since(killed), s.lease, "the lease was not over")
				assert.Contains(t, a.body, "attempt 2 takeover true")
			}
			s.replays("K")
			s.promises(false)
		})
	}
}

func TestAProcessThatIsPausedForLessThanItsLeaseKeepsItsOutcome(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newService(t, redisstore.New(server.Client(t)), func(c *core.Config) { c.Lease.Duration = 5 * time.Second })
	paused := s.spawn(server, childSpec{Work: 300 * time.Millisecond})
	done := make(chan answer)
	go func() { done <- s.postTo(paused.url, "K") }()
	require.Eventually(t, func() bool { return s.ledger.count(t, "K") == 1 }, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, paused.cmd.Process.Signal(syscall.SIGSTOP))
	time.Sleep(time.Second)
	assert.Equal(t, "in-progress", s.post("K").code)
	require.NoError(t, paused.cmd.Process.Signal(syscall.SIGCONT))
	s.created(<-done)
	s.replays("K")
	s.ran("K", 1)
	s.promises(false)
}

func TestAProcessWithoutProcessorTimeNoticesALostLease(t *testing.T) {
	t.Parallel()
	s, server, _ := onServerWithShortLease(t)
	starved := s.spawn(server, childSpec{Work: 3 * time.Second, Spinners: 2})
	done := make(chan answer)
	go func() {
		a := s.postTo(starved.url, "K")
		for a.status == http.StatusServiceUnavailable && s.ledger.count(t, "K") == 0 { // not even begin was in time
			a = s.postTo(starved.url, "K")
		}
		done <- a
	}()
	require.Eventually(t, func() bool { return s.ledger.count(t, "K") == 1 }, 30*time.Second, 5*time.Millisecond)
	for s.post("K").status != http.StatusCreated {
		time.Sleep(20 * time.Millisecond)
	}
	a := <-done
	if a.status != http.StatusCreated {
		assert.Contains(t, []string{"claim-lost", "store-unavailable"}, a.code, "its answer is not the outcome")
	}
	s.promises(false)
}

func TestATerminatedProcessDrainsAndLeavesNoKeyStuck(t *testing.T) {
	t.Parallel()
	s, server, _ := onServerWithShortLease(t)
	ending := s.spawn(server, childSpec{Work: 500 * time.Millisecond, Drain: 20 * time.Second})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() { s.created(s.postTo(ending.url, fmt.Sprint("K", i))) })
	}
	require.Eventually(t, func() bool { return len(s.ledger.effects(t)) == 10 }, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, ending.cmd.Process.Signal(syscall.SIGTERM))
	wg.Wait()
	for i := range 10 {
		s.replays(fmt.Sprint("K", i))
	}
	require.NoError(t, ending.cmd.Wait(), "it must end by itself")
	s.promises(false)
}

func TestAShutdownThatDoesNotWaitLeavesTheKeyToTheLease(t *testing.T) {
	t.Parallel()
	s, server, _ := onServerWithShortLease(t)
	ending := s.spawn(server, childSpec{Work: -1, Drain: 100 * time.Millisecond})
	go func() { _, _ = send(ending.url, "K") }()
	require.Eventually(t, func() bool { return s.ledger.count(t, "K") == 1 }, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, ending.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, ending.cmd.Wait())
	a := s.soon("K", 20*time.Second)
	assert.Contains(t, a.body, "attempt 2 takeover true")
	s.promises(false)
}
