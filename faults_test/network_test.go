package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/badnet"
)

// ways are how the store sends Begin and Complete: by scripts, or by plain commands where the server has them.
var ways = map[string][]redisstore.Option{"by scripts alone": {redisstore.Scripts()}, "by plain commands": nil}

// runsOnceAlthough plays a run during which lose makes the network lose one reply. Without plain commands, scripts are executed three
// times: calls says which.
func runsOnceAlthough(t *testing.T, calls string, lose func(*service, *badnet.Net)) {
	t.Parallel()
	for way, opts := range ways {
		t.Run(way, func(t *testing.T) {
			s, network, server := storeOnNetwork(t, opts)
			before := executions(t, server)
			lose(s, network)
			s.created(s.post("K"))
			assert.Equal(t, 1, network.Hits())
			if opts != nil {
				assert.Equal(t, before+3, executions(t, server), calls)
			}
			s.replays("K")
			s.ran("K", 1)
			s.promises(false)
		})
	}
}

func TestALostReplyOfBeginIsOneRun(t *testing.T) {
	runsOnceAlthough(t, "begin twice, complete once", func(_ *service, network *badnet.Net) { network.Lose(1) })
}

func TestALostReplyOfCompleteIsOneOutcome(t *testing.T) {
	runsOnceAlthough(t, "begin once, complete twice", func(s *service, network *badnet.Net) {
		s.works(func(context.Context, core.Run) int { network.Lose(1); return http.StatusCreated })
	})
}

func TestALostReplyOfExtendOrFailChangesNothing(t *testing.T) {
	t.Parallel()
	s, network, _ := onNetwork(t, func(c *core.Config) { c.Lease.Duration = time.Second })
	s.works(func(ctx context.Context, _ core.Run) int {
		network.Lose(1)
		time.Sleep(1500 * time.Millisecond) // half a lease more than one
		assert.NoError(t, ctx.Err(), "the lease must have been renewed")
		return http.StatusCreated
	})
	s.created(s.post("extend"))
	assert.Equal(t, 1, network.Hits())
	s.works(func(context.Context, core.Run) int { network.Lose(1); return http.StatusInternalServerError })
	assert.Equal(t, 500, s.post("fail").status)
	assert.Equal(t, 2, network.Hits())
	s.works(quick)
	s.created(s.post("fail"))
	assert.Equal(t, 2, s.ledger.effects(t)["fail"][1].Attempt)
	s.promises(false)
}

func TestALostRequestIsRefusedOrRunsOnce(t *testing.T) {
	t.Parallel()
	s, network, _ := onNetwork(t)
	network.Set(badnet.Faults{LoseRequests: 1})
	s.away(s.post("K"))
	s.ran("K", 0)
	require.NotZero(t, network.Hits())
	network.Set(badnet.Faults{})
	s.soon("K", s.lease+5*time.Second)
	s.ran("K", 1)
	s.promises(false)
}

func TestAServerThatWakesUpExecutesWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	s, _, server := onNetwork(t)
	before := executions(t, server)
	server.Pause()
	s.away(s.post("K"))
	s.ran("K", 0)
	server.Resume()
	require.Eventually(t, func() bool { return executions(t, server) > before }, 10*time.Second, 10*time.Millisecond, "nothing was delivered late")
	a := s.soon("K", s.lease+5*time.Second)
	assert.False(t, a.replayed)
	s.ran("K", 1)
	s.promises(false)
}

func TestASlowNetworkIsSlowAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]badnet.Faults{
		"latency":   {Delay: 50 * time.Millisecond, Jitter: 100 * time.Millisecond},
		"one byte":  {Slice: 1},
		"bandwidth": {Rate: 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, network, _ := onNetwork(t, func(c *core.Config) {
				c.Lease.Duration, c.Limits.StoreTimeout = 6*time.Second, 3*time.Second
			})
			network.Set(faults)
			s.burst(4, 4, 500*time.Millisecond)
			assert.NotZero(t, network.Hits())
			s.promises(false)
		})
	}
}

// burst sends each of some keys at once from some clients, and checks that each ran once.
func (s *service) burst(keys, clients int, length time.Duration) {
	s.tb.Helper()
	s.works(func(context.Context, core.Run) int { time.Sleep(length); return http.StatusCreated })
	var wg sync.WaitGroup
	for key := range keys {
		for range clients {
			wg.Go(func() {
				a := s.post(fmt.Sprint("burst", key))
				assert.Contains(s.tb, []int{201, 409}, a.status, a.body)
			})
		}
	}
	wg.Wait()
	for key := range keys {
		s.replays(fmt.Sprint("burst", key))
		s.ran(fmt.Sprint("burst", key), 1)
	}
}

func TestANetworkThatRefusesOrResetsIsRefusedInTime(t *testing.T) {
	t.Parallel()
	s, network, _ := onNetwork(t)
	network.Set(badnet.Faults{Refuse: true})
	network.Reset()
	began := time.Now()
	s.away(s.post("refused"))
	assert.Less(t, time.Since(began), 5*time.Second, "the store timeout is half a second")
	s.ran("refused", 0)
	network.Set(badnet.Faults{})
	stop := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				network.Reset()
			}
		}
	})
	var clients sync.WaitGroup
	for i := range 50 {
		clients.Go(func() {
			a := s.post(fmt.Sprint("storm", i))
			assert.Contains(t, []int{201, 409, 503}, a.status, a.body)
		})
	}
	clients.Wait()
	close(stop)
	storm.Wait()
	assert.NotZero(t, network.Hits())
	for i := range 50 {
		s.soon(fmt.Sprint("storm", i), s.lease+10*time.Second)
	}
	s.promises(false)
}

func TestABlackHoleCancelsTheRunThatCannotRenewItsLease(t *testing.T) {
	t.Parallel()
	s, network, _ := onNetwork(t, func(c *core.Config) { c.Lease.Duration = time.Second })
	var cause error
	s.works(func(ctx context.Context, _ core.Run) int {
		network.Set(badnet.Faults{Hole: true})
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Second):
		}
		cause = context.Cause(ctx)
		network.Set(badnet.Faults{})
		return http.StatusCreated
	})
	a := s.post("K")
	assert.ErrorIs(t, cause, core.ErrLost)
	assert.NotZero(t, network.Hits())
	s.works(quick)
	if a.status == http.StatusCreated { // the claim was still there, so it was kept after all
		s.replays("K")
		s.ran("K", 1)
	} else {
		assert.Contains(t, []int{409, 503}, a.status, a.body)
		s.soon("K", 20*time.Second)
	}
	network.Set(badnet.Faults{Hole: true})
	began := time.Now()
	s.away(s.post("L"))
	assert.Less(t, time.Since(began), 10*time.Second)
	s.ran("L", 0)
	network.Set(badnet.Faults{})
	s.promises(false)
}
