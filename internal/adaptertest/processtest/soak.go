package processtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/adaptertest"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/tied"
)

// soakLease is short, so that many leases end.
const soakLease = 2 * time.Second

// effect is one line of the log: a run of a handler began or ended, or an outcome was not taken at once.
type effect struct {
	What     string // "begin", "end", "away"
	Key      string
	Fence    int64
	Takeover bool
}

// careful begins the keys of operations that must rather stay open than run again when nobody knows what became of a run.
const careful = "careful-"

// soakChild is the environment of a process of the soak: framework, address of Redis, path of the log.
const soakChild = "IDEM_TEST_SOAK"

// runSoakChild serves until it is killed.
func runSoakChild(f adaptertest.Framework, addr, path string) {
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	note := func(e effect) {
		line, _ := json.Marshal(e)
		_, _ = log.Write(append(line, '\n')) // one short write: lines of two processes do not mix
	}
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	cfg := core.Config{Store: redisstore.New(client, redisstore.Batch()), Scope: core.SingleTenant}
	cfg.Lease.Duration, cfg.Limits.StoreTimeout, cfg.Wait.Timeout = soakLease, soakLease/2, soakLease/4
	cfg.Lease.OnUnknown = func(_ context.Context, r *core.Request) (*core.Response, error) {
		if strings.HasPrefix(r.Header("Idempotency-Key")[0], careful) {
			return nil, core.ErrOutcomeUnknown
		}
		return nil, nil
	}
	cfg.Hooks.StoreError = func(_ context.Context, e core.Event) {
		if e.Status != 0 {
			note(effect{What: "away", Fence: e.Fence})
		}
	}
	engine, err := core.New(cfg)
	if err != nil {
		panic(err)
	}
	l := adaptertest.Listen(&testing.T{})
	f.Start(engine, soakHandler(note), adaptertest.Setup{Listen: l})
	fmt.Println(l.Addr())
	select {}
}

// soakHandler works for a moment, fails now and then, and answers with its fence, which tells its run from every other.
func soakHandler(note func(effect)) adaptertest.Handler {
	return func(r adaptertest.Request) adaptertest.Response {
		run := adaptertest.RunOf(r)
		key := r.Header("Idempotency-Key")
		note(effect{"begin", key, run.Fence, run.Takeover})
		defer note(effect{"end", key, run.Fence, run.Takeover})
		work := time.Duration(rand.ExpFloat64() * float64(5*time.Millisecond))
		if rand.IntN(50) == 0 {
			work = soakLease * 3 / 2 // longer than a lease
		}
		select {
		case <-time.After(work):
		case <-r.Ctx.Done():
		}
		if rand.IntN(20) == 0 {
			return adaptertest.Response{Status: 503, Body: "failed"}
		}
		return adaptertest.Response{Status: 201, Body: fmt.Sprintf(`{"key":%q,"fence":%d}`, key, run.Fence)}
	}
}

// soak is one run of it.
type soak struct {
	t      testing.TB
	server *redistest.Server
	path   string
	until  time.Time

	mu        sync.Mutex
	processes []*soakProcess
	seen      map[string]string // key -> the outcome that a client has seen

	requests, runs, replays, conflicts, unknowns, failures, refused, lost, violations atomic.Int64
	faults                                                                            map[string]int
}

type soakProcess struct {
	framework, addr string
	cmd             *exec.Cmd
}

// Soak sends mixed traffic to two processes of each framework on one Redis while random faults happen to them, and checks what is
// promised against a log of effects that is not in Redis. It lasts for length with the other tests, for 30 minutes with SOAK=1, or as
// long as SOAK_FOR says. SOAK_SEED repeats a run's faults.
func Soak(t *testing.T, length time.Duration, frameworks ...adaptertest.Framework) {
	if os.Getenv("SOAK") != "" {
		length = 30 * time.Minute
	}
	if d, err := time.ParseDuration(os.Getenv("SOAK_FOR")); err == nil {
		length = d
	}
	seed, err := strconv.ParseUint(os.Getenv("SOAK_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("SOAK_SEED=%d", seed)
	s := &soak{
		t: t, server: redistest.Start(t, "--appendonly", "yes"), path: filepath.Join(t.TempDir(), "effects"),
		until: time.Now().Add(length), seen: map[string]string{}, faults: map[string]int{},
	}
	for _, f := range frameworks {
		for range 2 {
			s.processes = append(s.processes, s.spawn(f.Name))
		}
	}
	t.Cleanup(func() {
		for _, p := range s.processes {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	var clients sync.WaitGroup
	for i := range 16 {
		clients.Go(func() { s.client(rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	s.breakThings(rand.New(rand.NewPCG(seed, 1<<32)))
	clients.Wait()
	s.judge()
}

// spawn starts a process.
func (s *soak) spawn(framework string) *soakProcess {
	cmd := exec.Command(os.Args[0])
	setSpec(cmd, soakChild, framework, s.server.Addr, s.path)
	out, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, tied.Start(cmd, syscall.SIGKILL))
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(s.t, err)
	return &soakProcess{framework, strings.TrimSpace(line), cmd}
}

func (s *soak) pick(random *rand.Rand) *soakProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[random.IntN(len(s.processes))]
}

// client sends operations one after the other, each to processes of all frameworks until it has an outcome, and then now
// and then an old one again.
func (s *soak) client(random *rand.Rand) {
	var old []string
	c := adaptertest.NewClient()
	c.Timeout = 3 * soakLease
	defer c.CloseIdleConnections()
	for n := 0; time.Now().Before(s.until); n++ {
		key := fmt.Sprintf("%d-%d", random.Uint64(), n)
		if random.IntN(8) == 0 {
			key = careful + key
		}
		if len(old) > 0 && random.IntN(4) == 0 {
			key = old[random.IntN(len(old))]
		}
		if !s.sendUntil(s.until.Add(10*soakLease), c, func() string { return s.pick(random).addr }, key) {
			return
		}
		old = append(old, key)
	}
}

// send sends an operation once, and tells whether there is an outcome, or will be none.
func (s *soak) send(c *http.Client, addr, key string) bool {
	s.requests.Add(1)
	svc := &adaptertest.Service{TB: s.t, URL: "http://" + addr}
	r, err := svc.Try(c, "POST", "/orders", "B", "Idempotency-Key", key)
	switch {
	case err != nil:
		s.lost.Add(1)
	case r.Status == http.StatusCreated:
		s.sees(key, r)
		return true
	case r.Status == http.StatusConflict && strings.Contains(r.Body, "outcome-unknown"):
		s.unknowns.Add(1)
		if !strings.HasPrefix(key, careful) || s.outcomeOf(key) != "" && !s.excused(key) {
			s.violate("%s: %s", key, r.Body)
		}
		return true // nobody can find out more
	case r.Status == http.StatusConflict:
		s.conflicts.Add(1)
	case r.Status == http.StatusServiceUnavailable && r.Body == "failed":
		s.failures.Add(1)
		if s.outcomeOf(key) != "" && !s.excused(key) {
			s.violate("%s ran again, and a client has its outcome", key)
			return true
		}
	case r.Status == http.StatusServiceUnavailable:
		s.refused.Add(1)
	default:
		s.violate("%s: %d %s", key, r.Status, r.Body)
	}
	return false
}

// sendUntil sends an operation again and again, each time to the process at addr, until there is an outcome. It reports false, and
// a violation, if there is none at the deadline.
func (s *soak) sendUntil(deadline time.Time, c *http.Client, addr func() string, key string) bool {
	for !s.send(c, addr(), key) {
		if time.Now().After(deadline) {
			s.violate("%s: no outcome ten leases after the last fault", key)
			return false
		}
		time.Sleep(rand.N(100 * time.Millisecond))
	}
	return true
}

// sees notes the outcome that a client has, which must be the one that others have.
func (s *soak) sees(key string, r adaptertest.Reply) {
	if r.Replayed() {
		s.replays.Add(1)
	}
	if !strings.Contains(r.Body, strconv.Quote(key)) {
		s.violate("%s: the outcome of another key: %s", key, r.Body)
	}
	s.mu.Lock()
	before, known := s.seen[key]
	s.seen[key] = r.Body
	s.mu.Unlock()
	if known && before != r.Body && !s.excused(key) {
		s.violate("%s: %s, and %s before", key, r.Body, before)
	}
}

// outcomeOf returns the outcome of key that a client has seen, "" for none.
func (s *soak) outcomeOf(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[key]
}

func (s *soak) violate(format string, args ...any) {
	s.violations.Add(1)
	s.t.Errorf("violation: "+format, args...)
}

// breakThings does until the end.
func (s *soak) breakThings(random *rand.Rand) {
	client := s.server.Client(s.t)
	ctx := context.Background()
	for time.Now().Before(s.until) {
		time.Sleep(time.Duration(100+random.IntN(400)) * time.Millisecond)
		p := s.pick(random)
		fault := []string{"kill", "stop", "cut", "flush scripts", "hang"}[random.IntN(5)]
		s.faults[fault]++
		switch fault {
		case "kill":
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
			heir := s.spawn(p.framework)
			s.mu.Lock()
			s.processes[slices.Index(s.processes, p)] = heir
			s.mu.Unlock()
		case "stop":
			_ = p.cmd.Process.Signal(syscall.SIGSTOP)
			time.AfterFunc(soakLease*5/4, func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) })
		case "cut":
			client.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes")
		case "flush scripts":
			client.ScriptFlush(ctx)
		case "hang":
			s.server.Pause()
			time.Sleep(soakLease / 8)
			s.server.Resume()
		}
	}
}

// effects reads the log.
func (s *soak) effects() (all []effect) {
	content, err := os.ReadFile(s.path)
	require.NoError(s.t, err)
	for line := range bytes.Lines(content) {
		var e effect
		require.NoError(s.t, json.Unmarshal(line, &e))
		all = append(all, e)
	}
	return all
}

// excused: an outcome of key was shown while the store was away, which is the one exception to "held back until kept".
func (s *soak) excused(key string) bool {
	ran := map[int64]bool{}
	for _, e := range s.effects() {
		if e.Key == key {
			ran[e.Fence] = true
		}
		if e.What == "away" && ran[e.Fence] {
			return true
		}
	}
	return false
}

// judge checks the log, and every outcome once more, and prints the table.
func (s *soak) judge() {
	type keyLog struct {
		fence   int64
		running bool
		ran     int
	}
	keys, takeovers := map[string]*keyLog{}, 0
	for _, e := range s.effects() {
		if e.What == "away" {
			continue
		}
		k := keys[e.Key]
		if k == nil {
			k = &keyLog{}
			keys[e.Key] = k
		}
		switch e.What {
		case "begin":
			s.runs.Add(1)
			if e.Takeover {
				takeovers++
			}
			if e.Takeover && strings.HasPrefix(e.Key, careful) {
				s.violate("%s ran again, and nobody knows what became of the run before", e.Key)
			}
			if e.Fence <= k.fence {
				s.violate("%s: a run with fence %d after %d", e.Key, e.Fence, k.fence)
			}
			if k.running && !e.Takeover {
				s.violate("%s: two runs at once, and the second does not know", e.Key)
			}
			k.fence, k.running = e.Fence, true
			k.ran++
		case "end":
			k.running = k.running && k.fence != e.Fence
		}
	}
	c := adaptertest.NewClient()
	defer c.CloseIdleConnections()
	for key := range keys {
		if s.seen[key] != "" {
			s.sendUntil(time.Now().Add(10*soakLease), c, func() string { return s.processes[0].addr }, key)
		}
	}
	require.NotEmpty(s.t, s.faults)
	s.everyRecordEnds()
	once := 0
	for _, k := range keys {
		if k.ran == 1 {
			once++
		}
	}
	s.print(len(keys), once, takeovers)
}

// everyRecordEnds: nothing stays in the store for ever.
func (s *soak) everyRecordEnds() {
	ctx, client := context.Background(), s.server.Client(s.t)
	for names := client.Scan(ctx, 0, "*", 1000).Iterator(); names.Next(ctx); {
		if client.TTL(ctx, names.Val()).Val() == -1 {
			s.violate("%s has no TTL", names.Val())
		}
	}
}

func (s *soak) print(keys, once, takeovers int) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range []struct {
		name string
		n    any
	}{
		{"requests", s.requests.Load()}, {"keys", keys}, {"handler runs", s.runs.Load()}, {"keys that ran once", once},
		{"replays", s.replays.Load()}, {"409 in progress", s.conflicts.Load()}, {"409 outcome unknown", s.unknowns.Load()},
		{"503 of the handler", s.failures.Load()},
		{"503 of the engine", s.refused.Load()}, {"answers lost", s.lost.Load()}, {"takeovers", takeovers},
		{"faults", fmt.Sprint(s.faults)}, {"violations", s.violations.Load()},
	} {
		fmt.Fprintf(w, "%s\t%v\n", row.name, row.n)
	}
	_ = w.Flush()
	s.t.Logf("\n%s", b.String())
}
