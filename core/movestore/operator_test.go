package movestore_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
)

// engine returns an engine on a store.
func (m *move) engine(store driver.Store) *core.Engine {
	m.Helper()
	cfg := core.Config{Store: store, Scope: core.SingleTenant}
	cfg.Lease.Duration, cfg.Lease.OnUnknown = lease, core.RefuseUnknown
	e, err := core.New(cfg)
	require.NoError(m, err)
	return e
}

// An operator settles what a process of the other step has left, and forgets it.
func TestAnOperatorFindsTheRecordsOfBothStores(t *testing.T) {
	inEachStep(t, func(m *move) {
		for _, left := range []driver.Store{m.own, m.other} {
			task := core.Task{Kind: "JOB", Scope: "scope", Key: "key"}
			_, err := m.engine(left).DoTask(m.Context(), task, func(ctx context.Context) (*core.Response, error) {
				core.Decide(ctx, core.LeaveUnknown)
				return &core.Response{Status: http.StatusAccepted}, nil
			})
			require.NoError(m, err)
			m.clock.Advance(lease)
			engine := m.engine(m.store)
			ops, err := operator.New(engine, operator.Config{Audit: func(context.Context, operator.Act) error { return nil }})
			require.NoError(m, err)
			seen, err := ops.Look(m.Context(), task)
			require.NoError(m, err)
			assert.Equal(m, driver.Unknown, seen.State)
			by := operator.By{Who: "alice", Why: "the provider shows the charge"}
			require.NoError(m, ops.Resolve(m.Context(), by, task, seen, &core.Response{Status: http.StatusCreated}))
			result, err := engine.DoTask(m.Context(), task, func(context.Context) (*core.Response, error) {
				return nil, errors.New("it runs")
			})
			require.NoError(m, err)
			assert.Equal(m, http.StatusCreated, result.Response.Status)
			seen, err = ops.Look(m.Context(), task)
			require.NoError(m, err)
			require.NoError(m, ops.Forget(m.Context(), by, task, seen))
			seen, err = ops.Look(m.Context(), task)
			require.NoError(m, err)
			assert.Equal(m, driver.Absent, seen.State)
		}
	})
}

// A message that is dead in one store can be revived.
func TestADeadMessageIsRevivedInTheStoreThatHasIt(t *testing.T) {
	inEachStep(t, func(m *move) {
		for _, left := range []driver.Store{m.own, m.other} {
			message := consumer.Message{Group: "billing", ID: "4711", Payload: []byte("{}")}
			deliver := func(store driver.Store, failure error) consumer.Verdict {
				c, err := consumer.New(m.engine(store), consumer.Config{MaxAttempts: 1})
				require.NoError(m, err)
				return consumer.Consume(m.Context(), c, message, func(context.Context) (string, error) { return "", failure }).Verdict
			}
			deliver(left, errors.New("no bank"))
			require.Equal(m, consumer.Dead, deliver(m.store, nil))
			task := core.Task{Kind: "MESSAGE", Scope: message.Group, Key: message.ID}
			require.NoError(m, m.engine(m.store).Resolve(m.Context(), task, nil))
			assert.Equal(m, consumer.Done, deliver(m.store, nil))
			seen, err := left.(driver.Inspector).Look(m.Context(), name(m, left))
			require.NoError(m, err)
			assert.Equal(m, driver.Completed, seen.State, "it is settled where it was claimed")
			require.NoError(m, left.(driver.Inspector).Forget(m.Context(), seen))
		}
	})
}

// name returns the name of the one record of a store.
func name(m *move, store driver.Store) (found [32]byte) {
	m.Helper()
	require.NoError(m, store.(driver.Inspector).Scan(m.Context(), driver.Filter{}, func(seen driver.Record) bool {
		found = seen.Name
		return true
	}))
	return found
}
