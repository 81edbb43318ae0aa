package adapters_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/adaptertest"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/tied"
)

// A test that needs processes to kill starts this binary again as a service; child says which.
const child = "IDEM_TEST_CHILD" // framework, address of Redis, scope, lease, "again" or "refuse" after a crash

func TestMain(m *testing.M) {
	if spec := strings.Fields(os.Getenv(child)); len(spec) == 5 {
		runChild(spec[0], spec[1], spec[2], spec[3], spec[4] == "refuse")
		return
	}
	if spec := strings.Fields(os.Getenv(soakChild)); len(spec) == 3 {
		runSoakChild(spec[0], spec[1], spec[2])
		return
	}
	os.Exit(m.Run())
}

// runChild serves until it is killed. Its handler counts its runs in Redis, beside the store, and on a path that begins
// with /slow it answers when the test says so there, with /stream all but the beginning of its answer.
func runChild(name, addr, scope, leaseText string, refuse bool) {
	d, err := time.ParseDuration(leaseText)
	if err != nil {
		panic(err)
	}
	redisClient := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	cfg := core.Config{Store: redisstore.New(redisClient), Scope: func(context.Context, *core.Request) string { return scope }}
	adaptertest.Lease(d)(&cfg)
	if refuse {
		cfg.Lease.OnUnknown = core.RefuseUnknown
	}
	engine, err := core.New(cfg)
	if err != nil {
		panic(err)
	}
	l := adaptertest.Listen(&testing.T{})
	for _, f := range frameworks {
		if f.Name == name {
			f.Start(engine, effectIn(redisClient, scope), adaptertest.Setup{Listen: l})
		}
	}
	fmt.Println(l.Addr())
	select {}
}

func effectIn(client *redis.Client, scope string) adaptertest.Handler {
	return func(r adaptertest.Request) adaptertest.Response {
		ctx := context.Background()
		n := client.Incr(ctx, scope+":runs").Val()
		await := func() { client.BLPop(ctx, 0, fmt.Sprint(scope, ":go:", n)) }
		text := fmt.Sprintf("run %d takeover %t", n, adaptertest.RunOf(r).Takeover)
		if strings.HasPrefix(r.Path, "/stream") {
			return adaptertest.Response{Status: 201, Chunks: []string{"begin ", text}, Before: func() {
				await()
				if client.Exists(ctx, scope+":panic").Val() > 0 {
					panic("while it streams")
				}
			}}
		}
		if strings.HasPrefix(r.Path, "/slow") {
			await()
		}
		return adaptertest.Response{Status: 201, Body: text}
	}
}

// cluster is some processes of one service on one Redis.
type cluster struct {
	t     *testing.T
	redis *redis.Client
	addr  string
	f     adaptertest.Framework
	scope string
}

func newCluster(t *testing.T, f adaptertest.Framework) *cluster {
	server := redistest.Shared(t)
	return &cluster{t, server.Client(t), server.Addr, f, fmt.Sprintf("%s-%d", f.Name, time.Now().UnixNano())}
}

// process is one of them.
type process struct {
	*adaptertest.Service
	cmd *exec.Cmd
}

func (c *cluster) spawn(leaseText string) process { return c.spawnWith(leaseText, "again") }

func (c *cluster) spawnWith(leaseText, afterCrash string) process {
	c.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+strings.Join([]string{c.f.Name, c.addr, c.scope, leaseText, afterCrash}, " "))
	out, err := cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, tied.Start(cmd, syscall.SIGKILL))
	c.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(c.t, err)
	addr := strings.TrimSpace(line)
	return process{&adaptertest.Service{TB: c.t, URL: "http://" + addr, Addr: addr, Client: adaptertest.NewClient()}, cmd}
}

// slow sends a request whose handler waits for finish; again where a busy machine did not reach the store in time.
func (p process) slow() (r adaptertest.Reply, err error) {
	r.Status = http.StatusServiceUnavailable
	for err == nil && r.Status == http.StatusServiceUnavailable {
		r, err = p.Try(p.Client, "POST", "/slow", "B", "Idempotency-Key", "K")
	}
	return r, err
}

func (p process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (c *cluster) runs() int {
	n, _ := c.redis.Get(context.Background(), c.scope+":runs").Int()
	return n
}

// waitForRun waits until the handler has been entered n times.
func (c *cluster) waitForRun(n int) {
	require.Eventually(c.t, func() bool { return c.runs() >= n }, 10*time.Second, time.Millisecond)
}

// finish lets the n-th run answer.
func (c *cluster) finish(n int) {
	require.NoError(c.t, c.redis.RPush(context.Background(), fmt.Sprint(c.scope, ":go:", n), 1).Err())
}

func forEachFramework(t *testing.T, test func(*testing.T, *cluster)) {
	for _, f := range frameworks {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			test(t, newCluster(t, f))
		})
	}
}

// CON-03 over processes.
func TestTwoHundredParallelRequestsOverThreeProcessesRunTheHandlerOnce(t *testing.T) {
	forEachFramework(t, func(t *testing.T, c *cluster) {
		processes := []process{c.spawn("30s"), c.spawn("30s"), c.spawn("30s")}
		replies := make(chan adaptertest.Reply, 200)
		for i := range 200 {
			go func() {
				r, err := processes[i%3].Try(processes[i%3].Client, "POST", "/orders", "B", "Idempotency-Key", "K")
				assert.NoError(t, err)
				replies <- r
			}()
		}
		firsts := 0
		for range 200 {
			switch r := <-replies; {
			case r.Status == http.StatusCreated:
				assert.Equal(t, "run 1 takeover false", r.Body)
				if !r.Replayed() {
					firsts++
				}
			default:
				assert.Equal(t, http.StatusConflict, r.Status, r.Body)
			}
		}
		assert.Equal(t, 1, firsts)
		assert.Equal(t, 1, c.runs())
	})
}

func TestAKilledProcessIsTakenOverAfterItsLease(t *testing.T) {
	forEachFramework(t, func(t *testing.T, c *cluster) {
		a, b := c.spawn("1s"), c.spawn("1s")
		go func() { _, _ = a.slow() }()
		c.waitForRun(1)
		a.signal(syscall.SIGKILL)
		c.finish(2)

		r := b.Send("POST", "/slow", "B", "Idempotency-Key", "K")
		require.Equal(t, http.StatusConflict, r.Status, "LSE-01: inside the lease the outcome is not known")
		require.Equal(t, "1", r.Header.Get("Retry-After"))
		require.Eventually(t, func() bool {
			r = b.Send("POST", "/slow", "B", "Idempotency-Key", "K")
			return r.Status == http.StatusCreated
		}, 5*time.Second, 10*time.Millisecond, "LSE-01: after the lease a retry runs")
		require.Equal(t, "run 2 takeover true", r.Body, "the handler must know that the effect may have happened")
		require.Equal(t, 2, c.runs())
	})
}

// LSE-02.
func TestAKilledProcessLeavesAnUnknownOutcomeIfOnUnknownIsSet(t *testing.T) {
	forEachFramework(t, func(t *testing.T, c *cluster) {
		a, b := c.spawnWith("500ms", "refuse"), c.spawnWith("500ms", "refuse")
		go func() { _, _ = a.slow() }()
		c.waitForRun(1)
		a.signal(syscall.SIGKILL)
		var r adaptertest.Reply
		require.Eventually(t, func() bool {
			r = b.Send("POST", "/slow", "B", "Idempotency-Key", "K")
			return strings.Contains(r.Body, "outcome-unknown")
		}, 10*time.Second, 10*time.Millisecond)
		for range 3 {
			require.Equal(t, http.StatusConflict, r.Status)
			require.Contains(t, r.Body, "outcome-unknown")
			r = b.Send("POST", "/slow", "B", "Idempotency-Key", "K")
		}
		require.Equal(t, 1, c.runs())
	})
}

func TestAPausedProcessCannotTouchItsSuccessorsRecord(t *testing.T) {
	forEachFramework(t, func(t *testing.T, c *cluster) {
		a, b := c.spawn("600ms"), c.spawn("600ms")
		first := adaptertest.Async(func() adaptertest.Reply {
			r, err := a.slow()
			assert.NoError(t, err)
			return r
		})
		c.waitForRun(1)
		a.signal(syscall.SIGSTOP)
		c.finish(2)
		var second adaptertest.Reply
		require.Eventually(t, func() bool {
			second = b.Send("POST", "/slow", "B", "Idempotency-Key", "K")
			return second.Status == http.StatusCreated
		}, 5*time.Second, 10*time.Millisecond)
		a.signal(syscall.SIGCONT)
		c.finish(1)

		late := <-first
		assert.Equal(t, http.StatusConflict, late.Status, "LSE-04: the late answer is not the outcome: %s", late.Body)
		assert.Contains(t, late.Body, "claim-lost")
		replay := b.Send("POST", "/slow", "B", "Idempotency-Key", "K")
		assert.Equal(t, second.Body, replay.Body, "the record stays the successor's")
		assert.True(t, replay.Replayed())
		assert.Equal(t, 2, c.runs())
	})
}
