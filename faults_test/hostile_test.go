package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
)

// besieged is a service on a server of its own that counts, and writes nothing down: these tests look at what is left behind.
type besieged struct {
	*service
	redis  *redis.Client
	client *http.Client
	runs   atomic.Int64
	inside atomic.Int64 // requests that have no answer yet

	heap       int64 // before the test
	goroutines int
	calm       goleak.Option
	began      time.Time
	most       [len(watched)]atomic.Uint64 // that each of watched came to
}

// watched is what grows while clients are many: theirs, too, for they are in this process.
var watched = [...]string{"/memory/classes/total:bytes", "/sched/goroutines:goroutines"}

// besiege starts a service whose store may take its time, on a machine that is busy with its clients.
func besiege(t *testing.T, change ...func(*core.Config)) *besieged {
	t.Helper()
	server := redistest.Start(t)
	patient := func(c *core.Config) { c.Lease.Duration, c.Limits.StoreTimeout = 2*time.Minute, 30*time.Second }
	generous := func(o *redis.Options) { o.ReadTimeout, o.PoolTimeout = 30*time.Second, 30*time.Second }
	b := &besieged{
		service: newService(t, redisstore.New(server.Client(t, generous)), append(change, patient)...),
		redis:   server.Client(t),
		client:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
	}
	b.http.Close()
	inner := idem.HTTP(b.engine)(http.HandlerFunc(b.handle))
	b.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.inside.Add(1)
		defer b.inside.Add(-1)
		inner.ServeHTTP(w, r)
	}))
	b.http.Config.Protocols = protocols(true)
	b.http.Start()
	require.Equal(t, 201, b.sends(t, "warm").status)
	require.NoError(t, b.redis.FlushDB(ctx).Err())
	b.runs.Store(0)
	b.client.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	b.watch(t)
	b.heap, b.goroutines, b.calm, b.began = liveHeap(), runtime.NumGoroutine(), goleak.IgnoreCurrent(), time.Now()
	return b
}

// protocols is HTTP/2 without TLS, beside HTTP/1 or alone: over one connection of it go many requests at once.
func protocols(http1 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetUnencryptedHTTP2(true)
	return p
}

// watch keeps the peaks of what is watched until the test ends.
func (b *besieged) watch(t *testing.T) {
	t.Helper()
	var samples [len(watched)]metrics.Sample
	for i := range watched {
		samples[i].Name = watched[i]
	}
	ended, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(ended); <-stopped })
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-ended:
				tick.Stop()
				return
			case <-tick.C:
			}
			metrics.Read(samples[:])
			for i := range samples {
				b.most[i].Store(max(b.most[i].Load(), samples[i].Value.Uint64()))
			}
		}
	}()
}

func (b *besieged) handle(w http.ResponseWriter, r *http.Request) {
	b.runs.Add(1)
	run, _ := core.FromContext(r.Context())
	b.mu.Lock()
	do := b.do
	b.mu.Unlock()
	w.WriteHeader(do(r.Context(), run))
	_, _ = io.WriteString(w, `{"paid":true}`)
}

// sends sends a request that must be answered.
func (b *besieged) sends(t *testing.T, key string) answer {
	t.Helper()
	a, err := b.tries(ctx, key)
	require.NoError(t, err)
	return a
}

func (b *besieged) tries(ctx context.Context, key string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", b.http.URL, strings.NewReader(`{"amount":100}`))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := b.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(res)
}

// dials opens a connection for what a proper client would not send.
func (b *besieged) dials(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", b.http.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// liveHeap is what the process holds on to.
func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a sync.Pool has survives the first
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// quiet checks that so many records are left, each with an outcome and an end, and nothing else: no request, no goroutine.
func (b *besieged) quiet(t *testing.T, records int) {
	t.Helper()
	t.Logf("%v, at most %d MiB and %d goroutines", time.Since(b.began).Round(10*time.Millisecond), b.most[0].Load()>>20, b.most[1].Load())
	b.client.CloseIdleConnections()
	redistest.Eventually(t, "every request is answered", func() bool { return b.inside.Load() == 0 })
	redistest.Eventually(t, "no goroutine is left", func() bool { return goleak.Find(b.calm) == nil })
	var names []string
	for scan := b.redis.Scan(ctx, 0, "*", 1000).Iterator(); scan.Next(ctx); {
		names = append(names, scan.Val())
	}
	assert.Len(t, names, records)
	for len(names) > 0 {
		n := min(len(names), 1000)
		b.settled(t, names[:n])
		names = names[n:]
	}
}

// settled checks that no record is a claim, and that each ends by itself.
func (b *besieged) settled(t *testing.T, names []string) {
	t.Helper()
	const completed = "2" // the second byte of a record is its state
	pipe := b.redis.Pipeline()
	for _, name := range names {
		pipe.GetRange(ctx, name, 1, 1)
		pipe.PTTL(ctx, name)
	}
	replies, err := pipe.Exec(ctx)
	require.NoError(t, err)
	for i := 0; i < len(replies); i += 2 {
		assert.Equal(t, completed, replies[i].(*redis.StringCmd).Val(), names[i/2])
		assert.Positive(t, replies[i+1].(*redis.DurationCmd).Val(), names[i/2])
	}
}

// many is n, or more where there is time.
func many(n, soak int) int {
	if os.Getenv("SOAK") != "" {
		return soak
	}
	return n
}

// raced is true under the race detector.
var raced bool

// each calls send n times, for so many clients at once.
func each(n, atOnce int, send func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				send(i)
			}
		})
	}
	wg.Wait()
}

func TestAFloodOfUniqueKeysCostsTheProcessNothingAndTheServerARecordEach(t *testing.T) {
	b := besiege(t)
	require.Equal(t, 201, b.sends(t, "K").status)
	one := b.redis.MemoryUsage(ctx, recordOf(t, b.redis)).Val()
	used := func() (n int64) {
		_, _ = fmt.Sscan(infoField(t, b.redis, "used_memory_dataset"), &n)
		return n
	}
	const pace = 1000 // connections and buffers are there after so many
	b.floods(t, 0, pace)
	before, heap := used(), liveHeap()
	n := many(20_000, 100_000)
	b.floods(t, pace, n)
	perKey, more := float64(used()-before)/float64(n-pace), liveHeap()-heap
	t.Logf("%.0f bytes a key in Redis, %d for one alone; %d bytes more in the process", perKey, one, more)
	assert.InEpsilon(t, one, perKey, 0.5)
	assert.LessOrEqual(t, one, int64(400))
	assert.Less(t, more, int64((n-pace)*50), "the process holds on to something of each key")
	b.quiet(t, n+1)
}

// floods sends a request for each number, under keys as long as they may be.
func (b *besieged) floods(t *testing.T, from, to int) {
	t.Helper()
	var created atomic.Int64
	runs := b.runs.Load()
	each(to-from, 32, func(i int) {
		if a, err := b.tries(ctx, fmt.Sprintf("%0255d", from+i)); err == nil && a.status == 201 && !a.replayed {
			created.Add(1)
		}
	})
	b.client.CloseIdleConnections()
	redistest.Eventually(t, "the connections are closed", func() bool { return runtime.NumGoroutine() < b.goroutines+8 })
	require.EqualValues(t, to-from, created.Load())
	require.EqualValues(t, to-from, b.runs.Load()-runs)
}

func TestWaitersAreBoundedAndTheirPlacesFreeWhenTheyHangUp(t *testing.T) {
	const perKey, most, keys = 16, 64, 10
	b := besiege(t, func(c *core.Config) {
		c.Wait = core.WaitConfig{Timeout: 5 * time.Minute, MaxPerKey: perKey, Max: most} // nobody waits so long here
	})
	b.client.Transport = &http.Transport{Protocols: protocols(false)}
	firsts, finish := b.hold(t, keys)
	n := many(2_000, 10_000)

	crowd := newCrowd(b, t)
	crowd.send(n/2, func(int) string { return "K0" })
	crowd.refusedAre(n/2 - perKey)
	crowd.send(n/2, func(i int) string { return fmt.Sprint("K", 1+i%(keys-1)) })
	crowd.refusedAre(n - most)
	assert.NotEmpty(t, b.redis.PubSubChannels(ctx, "*").Val())
	redistest.Eventually(t, "only who waits holds something", func() bool { return runtime.NumGoroutine()-b.goroutines < 8*(most+keys) })
	assert.Less(t, liveHeap()-b.heap, int64(16<<20+n<<10), "a goroutine that has ended leaves half a kilobyte with the runtime")

	crowd.hangUp()
	crowd.wg.Wait()
	assert.EqualValues(t, n-most, crowd.refused.Load(), "more were refused while places were free, or fewer")
	assert.EqualValues(t, most, crowd.gone.Load())
	redistest.Eventually(t, "the places are free", func() bool { return b.inside.Load() == keys })
	redistest.Eventually(t, "the server has nobody to tell", func() bool { return len(b.redis.PubSubChannels(ctx, "*").Val()) == 0 })

	late := newCrowd(b, t)
	late.send(perKey, func(int) string { return "K0" })
	redistest.Eventually(t, "they wait", func() bool { return b.inside.Load() == keys+perKey })
	finish()
	late.wg.Wait()
	assert.EqualValues(t, perKey, late.replayed.Load(), "a place was not freed")
	for range keys {
		assert.Equal(t, 201, (<-firsts).status)
	}
	assert.EqualValues(t, keys, b.runs.Load())
	b.quiet(t, keys)
}

func TestAsManyWaitersAsAreLetInAreFreedOrAnswered(t *testing.T) {
	const keys = 10
	n := many(1_000, 10_000)
	if raced {
		n = 1_000
	}
	b := besiege(t, func(c *core.Config) { c.Wait = core.WaitConfig{Timeout: 5 * time.Minute, MaxPerKey: n, Max: n} })
	b.client.Transport = &http.Transport{Protocols: protocols(false)}
	firsts, finish := b.hold(t, keys)
	key := func(i int) string { return fmt.Sprint("K", i%keys) }

	leaving, staying := newCrowd(b, t), newCrowd(b, t)
	leaving.send(n/2, key)
	staying.send(n/2, key)
	redistest.Eventually(t, "all wait", func() bool { return b.inside.Load() == int64(keys+n) })
	redistest.Eventually(t, "the server tells each key once", func() bool { return len(b.redis.PubSubChannels(ctx, "*").Val()) == keys })
	each := (liveHeap() - b.heap) / int64(n)
	t.Logf("%d bytes for each of %d who wait, the client's part included", each, n)
	assert.Less(t, each, int64(64<<10))
	assert.Less(t, runtime.NumGoroutine()-b.goroutines, 6*(n+keys))

	leaving.hangUp()
	leaving.wg.Wait()
	assert.EqualValues(t, n/2, leaving.gone.Load())
	redistest.Eventually(t, "half of them have hung up", func() bool { return b.inside.Load() == int64(keys+n/2) })
	finish()
	staying.wg.Wait()
	assert.EqualValues(t, n/2, staying.replayed.Load())
	for range keys {
		assert.Equal(t, 201, (<-firsts).status)
	}
	assert.EqualValues(t, keys, b.runs.Load())
	b.quiet(t, keys)
}

// hold begins a run for each of K0, K1 and so on; they end when finish is called, and their answers come then.
func (b *besieged) hold(t *testing.T, keys int) (answers <-chan answer, finish func()) {
	t.Helper()
	leave, first := make(chan struct{}), make(chan answer, keys)
	finish = sync.OnceFunc(func() { close(leave) })
	t.Cleanup(finish)
	b.works(func(context.Context, core.Run) int { <-leave; return http.StatusCreated })
	for i := range keys {
		go func() {
			a, err := b.tries(ctx, fmt.Sprint("K", i))
			assert.NoError(t, err)
			first <- a
		}()
	}
	redistest.Eventually(t, "the runs are in progress", func() bool { return b.runs.Load() == int64(keys) })
	return first, finish
}

// crowd is many clients at once.
type crowd struct {
	b                       *besieged
	t                       *testing.T
	wg                      sync.WaitGroup
	stays                   context.Context
	hangUp                  context.CancelFunc
	refused, replayed, gone atomic.Int64
}

func newCrowd(b *besieged, t *testing.T) *crowd {
	c := &crowd{b: b, t: t}
	c.stays, c.hangUp = context.WithCancel(ctx)
	t.Cleanup(c.hangUp)
	return c
}

// send sends n requests at once.
func (c *crowd) send(n int, key func(i int) string) {
	c.wg.Go(func() { each(n, n, func(i int) { c.one(key(i)) }) })
}

func (c *crowd) one(key string) {
	a, err := c.b.tries(c.stays, key)
	switch {
	case c.stays.Err() != nil && err != nil:
		c.gone.Add(1)
	case a.code == "in-progress" && a.status == 409:
		c.refused.Add(1)
	case a.replayed && a.status == 201:
		c.replayed.Add(1)
	default:
		assert.Fail(c.t, "another answer", "%+v: %v", a, err)
	}
}

// refusedAre waits until so many were refused, which they are while the run goes on and nobody's wait is over.
func (c *crowd) refusedAre(n int) {
	c.t.Helper()
	redistest.Eventually(c.t, "all others are refused", func() bool { return c.refused.Load() >= int64(n) })
	assert.EqualValues(c.t, n, c.refused.Load())
}

func TestAFloodOfHeadersIsRefusedAndStoresNothing(t *testing.T) {
	b := besiege(t)
	line := func(value string) string { return "Idempotency-Key: " + value + "\r\n" }
	for name, c := range map[string]struct {
		lines  string
		status int
		code   string
	}{
		"thousands of keys":                       {numbered(5000, "Idempotency-Key: K%d\r\n"), 400, "key-repeated"},
		"one key thousands of times":              {strings.Repeat(line("K"), 5000), 400, "key-repeated"},
		"thousands of empty lines":                {strings.Repeat(line(""), 5000), 400, "key-repeated"},
		"a key of almost a megabyte":              {line(strings.Repeat("k", 1_000_000)), 400, "key-too-long"},
		"a quoted key of almost a megabyte":       {line(`"` + strings.Repeat(`\"`, 500_000) + `"`), 400, "key-too-long"},
		"a string without an end":                 {line(`"` + strings.Repeat("k", 1_000_000)), 400, "key-malformed"},
		"a list of thousands":                     {line(`"K"` + strings.Repeat(`, "K"`, 100_000)), 400, "key-malformed"},
		"thousands of parameters, the last is no": {line(`"K"` + numbered(50_000, ";a%d=%[1]d") + ";"), 400, "key-malformed"},
		"a deep inner list":                       {line(`"K";a=` + strings.Repeat("(", 500_000)), 400, "key-malformed"},
		"a megabyte of other lines and no key":    {numbered(1100, "X-%d: "+strings.Repeat("x", 1000)+"\r\n") + line("K"), 431, ""},
		"more than a megabyte in the key's line":  {line(strings.Repeat("k", 1_100_000)), 431, ""},
		"thousands of lines beside two keys":      {numbered(20_000, "X-%d: x\r\n") + line("K1") + line("K2"), 400, "key-repeated"},
	} {
		a := b.exchange(t, c.lines)
		assert.Equal(t, c.status, a.status, name)
		assert.Equal(t, c.code, a.code, name)
		assert.Zero(t, b.redis.DBSize(ctx).Val(), name)
	}
	assert.Zero(t, b.runs.Load())
	b.quiet(t, 0)
}

// Parameters of a well-formed key do not count, however many there are.
func TestThousandsOfParametersDoNotChangeTheKey(t *testing.T) {
	b := besiege(t)
	first := b.exchange(t, `Idempotency-Key: "K"`+numbered(50_000, ";a%d=%[1]d")+"\r\n")
	assert.Equal(t, 201, first.status, first.body)
	assert.True(t, b.exchange(t, "Idempotency-Key: K\r\n").replayed)
	b.quiet(t, 1)
}

// numbered repeats format with the numbers from 0 on.
func numbered(n int, format string) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, format, i)
	}
	return text.String()
}

// exchange sends a request with these header lines and reads its answer meanwhile: the server may not read to the end.
func (b *besieged) exchange(t *testing.T, lines string) answer {
	t.Helper()
	conn := b.dials(t)
	go func() {
		_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n"+lines+"\r\nB")
	}()
	return b.answerOn(t, conn)
}

func (b *besieged) answerOn(t *testing.T, conn net.Conn) answer {
	t.Helper()
	defer conn.Close()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	a, err := readAnswer(res)
	require.NoError(t, err)
	return a
}

// While bodies are on their way, their keys are anybody's.
func TestManySlowBodiesHoldNoClaimAndBlockNobody(t *testing.T) {
	const body = `{"amount":100}`
	n, b := many(50, 2_000), besiege(t)
	conns := make([]net.Conn, n)
	for i := range conns {
		conns[i] = b.dials(t)
		_, err := fmt.Fprintf(conns[i], "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: K%d\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body[:7])
		require.NoError(t, err)
	}
	var huge sync.WaitGroup
	for i := range 8 {
		huge.Go(func() { b.sendsTooMuch(t, fmt.Sprint("K", i)) })
	}
	huge.Wait()
	redistest.Eventually(t, "all bodies are on their way", func() bool { return b.inside.Load() == int64(n) })
	assert.Zero(t, b.redis.DBSize(ctx).Val(), "a claim is held while bodies are on their way")

	for _, conn := range conns[n/2:] {
		_ = conn.Close()
	}
	redistest.Eventually(t, "half of them have hung up", func() bool { return b.inside.Load() == int64(n/2) })
	for i, conn := range conns[:n/2] {
		a := b.sends(t, fmt.Sprint("K", i))
		assert.True(t, a.status == 201 && !a.replayed, "K%d: %+v", i, a)
		_, err := io.WriteString(conn, body[7:])
		require.NoError(t, err)
		a = b.answerOn(t, conn)
		assert.True(t, a.status == 201 && a.replayed, "K%d: %+v", i, a)
	}
	assert.EqualValues(t, n/2, b.runs.Load())
	b.quiet(t, n/2)
}

// sendsTooMuch sends chunks of a body that is over the limit until the server has had enough.
func (b *besieged) sendsTooMuch(t *testing.T, key string) {
	req, err := http.NewRequest("POST", b.http.URL, &endless{left: 1 << 30})
	if !assert.NoError(t, err) {
		return
	}
	req.Header.Set("Idempotency-Key", key)
	if res, err := b.client.Transport.RoundTrip(req); err == nil {
		assert.Equal(t, 413, res.StatusCode)
		_ = res.Body.Close()
	} else {
		assert.ErrorContains(t, err, "write", "the server may hang up while we send")
	}
}
