// Package processtest has the tests that every adapter passes with processes of its own, which are killed, stopped, or die: one after
// the other, and all at once in a soak.
package processtest

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/adaptertest"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/tied"
)

// A test that needs processes to kill starts this binary again as a service; child says which.
const child = "IDEM_TEST_CHILD" // framework, address of Redis, scope, lease, "again" or "refuse" after a crash

// Main runs the tests of a package, or a service of one of the frameworks if a test has started this process. A package whose tests
// call Run or Soak calls it in TestMain, with the same frameworks.
func Main(m *testing.M, frameworks ...adaptertest.Framework) {
	if spec := specOf(child); len(spec) == 5 {
		runChild(find(frameworks, spec[0]), spec[1], spec[2], spec[3], spec[4] == "refuse")
		return
	}
	if spec := specOf(soakChild); len(spec) == 3 {
		runSoakChild(find(frameworks, spec[0]), spec[1], spec[2])
		return
	}
	os.Exit(m.Run())
}

// specOf returns what setSpec has put into an environment variable.
func specOf(name string) []string { return strings.Split(os.Getenv(name), "\t") }

// setSpec tells a process which service it runs.
func setSpec(cmd *exec.Cmd, name string, spec ...string) {
	cmd.Env = append(os.Environ(), name+"="+strings.Join(spec, "\t"))
}

// find returns the framework with a name.
func find(frameworks []adaptertest.Framework, name string) adaptertest.Framework {
	return frameworks[slices.IndexFunc(frameworks, func(f adaptertest.Framework) bool { return f.Name == name })]
}

// runChild serves until it is killed. Its handler counts its runs in Redis, beside the store, and on a path that begins
// with /slow it answers when the test says so there, with /stream all but the beginning of its answer.
func runChild(f adaptertest.Framework, addr, scope, leaseText string, refuse bool) {
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
	f.Start(engine, effectIn(redisClient, scope), adaptertest.Setup{Listen: l})
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
	setSpec(cmd, child, c.f.Name, c.addr, c.scope, leaseText, afterCrash)
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
