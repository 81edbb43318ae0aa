package plan

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	client "github.com/go-idem/idem/adapters/client"
	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
)

// attempt is one attempt of a request, as the client sees it.
type attempt struct {
	began  time.Time
	status int
}

// request is a request with a new key, and all of its attempts.
type request struct {
	key      string
	slot     int
	attempts []attempt
	took     time.Duration
}

// refused reports whether a client without retries would see a refusal.
func (r *request) refused() bool { return r.attempts[0].status == http.StatusServiceUnavailable }

type requestKey struct{}

// observed is the Base of a client that notes the attempts of each request.
type observed struct{ http.RoundTripper }

func (o observed) RoundTrip(r *http.Request) (*http.Response, error) {
	request, now := r.Context().Value(requestKey{}).(*request), attempt{began: time.Now()}
	res, err := o.RoundTripper.RoundTrip(r)
	if err == nil {
		now.status = res.StatusCode
	}
	request.attempts = append(request.attempts, now)
	return res, err
}

// outageService is a service on a Cluster, and its clients.
type outageService struct {
	url      string
	client   *http.Client
	records  sync.Map // the names of records, by key
	clients  sync.WaitGroup
	requests []*request
}

func newOutageService(t *testing.T, cluster *redis.ClusterClient) *outageService {
	base := &http.Transport{MaxIdleConnsPerHost: 1000}
	s := &outageService{client: &http.Client{Transport: &client.Transport{Base: observed{base}}}}
	note := func(ctx context.Context, e core.Event) { s.records.Store(ctx.Value(requestKey{}), e.Record) }
	engine, err := core.New(core.Config{Store: redisstore.New(cluster), Scope: core.SingleTenant, Hooks: core.Hooks{Done: note}})
	require.NoError(t, err)
	guarded := idem.HTTP(engine)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, r.Header.Get("Idempotency-Key"))))
	}))
	s.url = server.URL
	t.Cleanup(func() {
		server.Close()
		base.CloseIdleConnections()
		assert.NoError(t, engine.Close(context.Background()))
	})
	return s
}

// pace is the time between two requests.
const pace = 5 * time.Millisecond

// load sends so many requests, 200 a second, and does not wait for their responses. If the machine stands still for half a second or
// sends a tenth less, load returns for how long it was late, because that delays servers as much as clients.
func (s *outageService) load(t *testing.T, n int) (stalled time.Duration) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	began, longest := time.Now(), time.Duration(0)
	for i, before := 0, began; i < n; i++ {
		<-tick.C
		longest, before = max(longest, time.Since(before)), time.Now()
		r := &request{key: fmt.Sprint(len(s.requests))}
		s.requests = append(s.requests, r)
		s.clients.Go(func() { s.send(t, r) })
	}
	planned := time.Duration(n) * pace
	if late := time.Since(began) - planned; longest > 100*pace || late > planned/10 {
		return max(longest, late)
	}
	return 0
}

func (s *outageService) send(t *testing.T, r *request) {
	began := time.Now()
	req, err := http.NewRequestWithContext(context.WithValue(t.Context(), requestKey{}, r), http.MethodPost, s.url, http.NoBody)
	if !assert.NoError(t, err) {
		return
	}
	req.Header.Set("Idempotency-Key", r.key)
	res, err := s.client.Do(req)
	if !assert.NoError(t, err) {
		return
	}
	r.took = time.Since(began)
	_ = res.Body.Close()
}

// locate finds out the slots of all requests.
func (s *outageService) locate(t *testing.T, node *redis.Client) {
	var slots []*redis.IntCmd
	_, err := node.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, r := range s.requests {
			record, ok := s.records.Load(r.key)
			require.True(t, ok, r.key)
			slots = append(slots, p.ClusterKeySlot(t.Context(), fmt.Sprintf("idem:{%s}", record)))
		}
		return nil
	})
	require.NoError(t, err)
	for i, r := range s.requests {
		r.slot = int(slots[i].Val())
	}
}

// view is what clients of some keys have seen since a master was killed.
type view struct {
	all, refused, attempts int
	first, last            time.Duration // when the first and the last request that was refused at once began
	longest                time.Duration
}

func (v *view) add(r *request, killed time.Time) {
	v.all++
	v.attempts, v.longest = max(v.attempts, len(r.attempts)), max(v.longest, r.took)
	if !r.refused() {
		return
	}
	if v.refused++; v.refused == 1 {
		v.first = r.attempts[0].began.Sub(killed)
	}
	v.last = r.attempts[0].began.Sub(killed)
}

// TestTheOutageOfAFailoverIsThatOfTheSimulation ends a master of a Cluster under load, and compares what clients see with what the
// simulation says: how long which requests are refused, how many those are, and how long retries take. With SOAK=1 the settings are
// the defaults of Redis and of go-redis.
func TestTheOutageOfAFailoverIsThatOfTheSimulation(t *testing.T) {
	t.Parallel()
	of := Outage{NodeTimeout: 2 * time.Second, Reload: time.Second, Read: time.Second}
	if os.Getenv("SOAK") != "" {
		of.NodeTimeout, of.Read = 15*time.Second, 5*time.Second
	}
	for _, c := range []struct {
		name     string
		coverage string
		end      func(*redistest.Server)
	}{
		{"all nodes refuse until a replica is elected", "yes", (*redistest.Server).Kill},
		{"other keys notice nothing with cluster-require-full-coverage no", "no", (*redistest.Server).Kill},
		{"a master that is silent holds connections", "no", (*redistest.Server).Pause},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", c.coverage,
				"--cluster-node-timeout", fmt.Sprint(of.NodeTimeout.Milliseconds()))
			of := of
			of.Partial = c.coverage == "no"
			compareOutage(t, cluster, of, func() { c.end(cluster.Nodes[0]) })
		})
	}
}

func compareOutage(t *testing.T, cluster *redistest.Shards, of Outage, end func()) {
	lostSlots := map[int]bool{}
	for _, slot := range cluster.SlotsOf(t, cluster.Nodes[0]) {
		lostSlots[slot] = true
	}
	s := newOutageService(t, cluster.Client(t, func(o *redis.ClusterOptions) {
		o.ClusterStateReloadInterval, o.ReadTimeout = of.Reload, of.Read
	}))
	s.load(t, 200)
	s.clients.Wait()
	before, killed := len(s.requests), time.Now()
	end()
	_, longest := of.bounds()
	n := int(longest * 3 / 2 / pace)
	stalled := s.load(t, n)
	s.clients.Wait()
	s.locate(t, cluster.Nodes[1].Client(t))
	var lost, other view
	for _, r := range s.requests[before:] {
		if lostSlots[r.slot] {
			lost.add(r, killed)
		} else {
			other.add(r, killed)
		}
	}
	c := planned(1)
	c.Load.Rate, c.Replays, c.Nodes, c.Outage = 1/pace.Seconds(), 0, 3, of
	_, loss := c.Simulate()
	t.Logf("keys of the lost master: %+v; other keys: %+v; late by %v; simulated: %+v", lost, other, stalled, loss)
	assert.InDelta(t, n/3, lost.all, 6*math.Sqrt(float64(n)*2/9), "the keys of one tenant are spread over all masters")
	lost.compare(t, of, loss, stalled)
	s.compareRefused(t, s.requests[before:], lost, killed, c)
	other.compareElsewhere(t, of, stalled)
}

// compare compares what clients of the lost keys have seen.
func (v *view) compare(t *testing.T, of Outage, loss Loss, stalled time.Duration) {
	assert.Greater(t, v.last, of.NodeTimeout, "nobody takes over before the node timeout")
	assert.Less(t, v.last, 2*time.Duration(loss.Longest)+3*stalled, "%v on a machine with time", loss.Longest)
	assert.LessOrEqual(t, v.longest, 2*time.Duration(loss.Retries.Longest)+3*stalled)
	assert.Greater(t, v.attempts, 1)
	if stalled == 0 {
		assert.LessOrEqual(t, v.attempts, loss.Retries.Attempts+1)
	}
}

// compareRefused compares the number of requests that were refused at once with that of an outage which is as long as this one was.
func (s *outageService) compareRefused(t *testing.T, requests []*request, lost view, killed time.Time, c Cluster) {
	begun := 0
	for _, r := range requests {
		if r.attempts[0].began.Sub(killed) <= lost.last {
			begun++
		}
	}
	const scale = 1000 // so that the simulated number is no random one
	c.Load.Rate, c.Outage.Away = scale*float64(begun)/lost.last.Seconds(), lost.last
	_, loss := c.Simulate()
	t.Logf("of %d requests that began in the %v, %d were refused; simulated %d", begun, lost.last, lost.refused, loss.Refused/scale)
	assert.InEpsilon(t, loss.Refused/scale, lost.refused, 0.25, "nearly all of the lost master's; a third of all, by chance more or less")
}

// compareElsewhere compares what clients of other keys have seen. On a machine that is late, other masters can seem lost, too, and any
// request can be refused, because its call to the store takes too long.
func (v *view) compareElsewhere(t *testing.T, of Outage, stalled time.Duration) {
	if stalled > 0 {
		t.Logf("THE MACHINE WAS LATE by %v: what clients of other keys have seen is not compared", stalled)
		return
	}
	if of.Partial {
		assert.LessOrEqual(t, v.refused, v.all/100, "none on a machine with time: requests of other keys notice nothing")
		return
	}
	assert.Positive(t, v.refused)
	assert.Greater(t, v.first, of.NodeTimeout, "until the masters agree that one is lost, the others serve")
	assert.Less(t, v.last-v.first, 3*of.elsewhere())
	assert.LessOrEqual(t, v.attempts, 4)
}

// refusing is a Base that refuses all attempts until the end of an outage. A refusal takes a random part of the store's timeout.
type refusing struct{ until time.Time }

func (r refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	refused := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody, Request: req}
	if !time.Now().Before(r.until) {
		return &http.Response{StatusCode: http.StatusCreated, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
	}
	time.Sleep(rand.N(storeTimeout))
	return refused, nil
}

// The simulated client is the real one, whose clock is a simulated one here.
func TestTheRetriesAreThoseOfTheClient(t *testing.T) {
	for _, outage := range []time.Duration{5 * time.Second, 25 * time.Second, 2 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want := retries(rand.New(rand.NewPCG(1, 1)), outage)
				got := realRetries(t, outage, 3000)
				t.Logf("real %+v, simulated %+v", got, want)
				assert.InDelta(t, want.Attempts, got.Attempts, 1)
				assert.InEpsilon(t, want.Mean, got.Mean, 0.05)
				assert.InEpsilon(t, time.Duration(want.Longest).Seconds(), time.Duration(got.Longest).Seconds(), 0.15)
				assert.InDelta(t, want.GivenUp, got.GivenUp, 0.05)
			})
		})
	}
}

// realRetries sends requests with adapters/client, evenly over an outage.
func realRetries(t *testing.T, outage time.Duration, n int) (r Retries) {
	transport := &client.Transport{Base: observed{refusing{time.Now().Add(outage)}}}
	requests := make([]*request, n)
	var clients sync.WaitGroup
	for i := range requests {
		requests[i] = &request{}
		clients.Go(func() {
			time.Sleep(outage * time.Duration(i) / time.Duration(n))
			began := time.Now()
			ctx := context.WithValue(t.Context(), requestKey{}, requests[i])
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://service.example", http.NoBody)
			assert.NoError(t, err)
			res, err := transport.RoundTrip(req)
			assert.NoError(t, err)
			requests[i].took = time.Since(began)
			_ = res.Body.Close()
		})
	}
	clients.Wait()
	for _, sent := range requests {
		last := sent.attempts[len(sent.attempts)-1]
		r.Attempts, r.Longest = max(r.Attempts, len(sent.attempts)), max(r.Longest, Seconds(sent.took))
		r.Mean += float64(len(sent.attempts)) / float64(n)
		if last.status != http.StatusCreated {
			r.GivenUp += 1 / float64(n)
		}
	}
	return r
}

func TestTheOutageFollowsTheSettings(t *testing.T) {
	for _, c := range []struct {
		name                         string
		of                           Outage
		shortest, longest, elsewhere time.Duration
	}{
		{"the defaults of Redis", Outage{NodeTimeout: 15 * time.Second, Reload: time.Second, Read: 5 * time.Second},
			15500 * time.Millisecond, 30500 * time.Millisecond, time.Second},
		{"a shorter node timeout", Outage{NodeTimeout: 2 * time.Second, Reload: time.Second}, 2500 * time.Millisecond, 6 * time.Second, time.Second},
		{"the client of go-redis without a setting looks once a minute", Outage{NodeTimeout: 2 * time.Second, Reload: time.Minute},
			2500 * time.Millisecond, 65 * time.Second, time.Second},
		{"without full coverage other keys notice nothing", Outage{NodeTimeout: 2 * time.Second, Reload: time.Second, Partial: true},
			2500 * time.Millisecond, 6 * time.Second, 0},
		{"what was measured elsewhere counts", Outage{NodeTimeout: 2 * time.Second, Reload: time.Second, Away: 4 * time.Second},
			4 * time.Second, 4 * time.Second, time.Second},
		{"a short outage is one for all", Outage{NodeTimeout: 2 * time.Second, Away: 300 * time.Millisecond},
			300 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond},
	} {
		shortest, longest := c.of.bounds()
		assert.Equal(t, []time.Duration{c.shortest, c.longest, c.elsewhere}, []time.Duration{shortest, longest, c.of.elsewhere()}, c.name)
	}
}
