package model

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/badnet"
	"github.com/go-idem/idem/internal/redistest"
)

func TestHistoriesOfTheMemoryStoreAreLinearizable(t *testing.T) {
	EachLoad(t, func(t *testing.T, l Load, seed int64) {
		store := NewFlaky(memstore.New(), seed, float64(seed%5+1)/100)
		l.IsLinearizable(t, store, seed)
		require.NotZero(t, store.Lost(), "no answer was lost")
	})
}

func TestHistoriesOfRedisAreLinearizable(t *testing.T) {
	EachLoad(t, func(t *testing.T, l Load, seed int64) {
		store, network := lossyRedis(t, seed)
		l.IsLinearizable(t, store, seed)
		require.NotZero(t, network.Hits(), "nothing was lost")
	})
}

// lossyRedis is a store, for every other seed one that sends scripts alone, behind a network that loses one to five percent of the replies, and half as many requests.
func lossyRedis(t *testing.T, seed int64) (driver.Store, *badnet.Net) {
	network := badnet.New(seed)
	client := redistest.Shared(t).Client(t, func(o *redis.Options) {
		o.Dialer, o.MaxRetries, o.PoolSize = network.Dial, -1, 32 // a lost reply is an error here, not another attempt
	})
	loss := float64(seed%5+1) / 100
	network.Set(badnet.Faults{LoseReplies: loss, LoseRequests: loss / 2})
	options := []redisstore.Option{redisstore.Prefix(fmt.Sprintf("history:%d:", seed))}
	if seed%2 == 0 {
		options = append(options, redisstore.Scripts())
	}
	return redisstore.New(client, options...), network
}

// stepStore is a store made of a step function, right or wrong.
type stepStore struct {
	do      step
	began   time.Time
	mu      sync.Mutex
	records map[[32]byte]Record
}

func newStepStore(do step) *stepStore {
	return &stepStore{do: do, began: time.Now(), records: map[[32]byte]Record{}}
}

func (s *stepStore) call(c Call) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	record, answer := s.do(s.records[c.Claim.Key], c, epoch+time.Since(s.began))
	s.records[c.Claim.Key] = record
	return answer
}

func (s *stepStore) Begin(_ context.Context, c driver.Claim) (driver.Entry, error) {
	a := s.call(Call{Verb: Begin, Claim: c})
	return a.Entry, a.Err
}

func (s *stepStore) Extend(_ context.Context, c driver.Claim) error {
	return s.call(Call{Verb: Extend, Claim: c}).Err
}

func (s *stepStore) Complete(_ context.Context, c driver.Claim, outcome []byte) error {
	return s.call(Call{Verb: Complete, Claim: c, Outcome: string(outcome)}).Err
}

func (s *stepStore) Fail(_ context.Context, c driver.Claim, f driver.Failure) error {
	return s.call(Call{Verb: Fail, Claim: c, NoEffects: f.NoEffects, NotRun: f.NotRun}).Err
}

func TestHistoriesOfAWrongStoreAreNotLinearizable(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		seed := seeds(t, 1, 1)[0]
		HotKey.IsLinearizable(t, newStepStore(Step), seed)
	})
	for _, b := range bugs {
		if b.rare {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			IsFoundWrong(t, newStepStore(b.do))
		})
	}
}

func TestHistoriesOfAWrongUseOfRedisAreNotLinearizable(t *testing.T) {
	for name, wrong := range Misuses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, network := lossyRedis(t, time.Now().UnixNano())
			network.Set(badnet.Faults{})
			IsFoundWrong(t, wrong(store))
		})
	}
}
