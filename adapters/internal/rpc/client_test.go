package rpc_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/status"

	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/adapters/internal/rpc/rpctest"
	"github.com/go-idem/idem/core"
)

// paying is a call of a client whose metadata of the key has these values.
func paying(values ...string) *rpc.Call {
	return &rpc.Call{Procedure: rpctest.Pay, Schema: rpc.Schema(rpctest.Pay), Header: func(string) []string { return values }}
}

// asking returns a status with this code that asks for a pause, unless that is 0.
func asking(c code.Code, pause time.Duration) *status.Status {
	s := rpc.ProblemStatus(core.Problem{Code: "in-progress", RetryAfter: pause})
	s.Code = int32(c)
	return s
}

func TestWhatAClientSendsAgain(t *testing.T) {
	for c, want := range map[code.Code]int{
		code.Code_OK: 1, code.Code_UNAVAILABLE: 2, code.Code_DEADLINE_EXCEEDED: 2, code.Code_CANCELLED: 1, code.Code_ABORTED: 1,
		code.Code_RESOURCE_EXHAUSTED: 1, code.Code_INTERNAL: 1, code.Code_UNKNOWN: 1, code.Code_FAILED_PRECONDITION: 1,
		code.Code_NOT_FOUND: 1, code.Code_DATA_LOSS: 1, code.Code_UNAUTHENTICATED: 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			sent := 0
			require.NoError(t, (&rpc.Client{Attempts: 2}).Do(t.Context(), paying(), func(string, bool) *status.Status {
				sent++
				return asking(c, 0)
			}))
			assert.Equal(t, want, sent, c)
		})
	}
}

// The pauses that a server asks for are kept, or the attempts end.
func TestAClientObeysRetryInfo(t *testing.T) {
	patient := rpc.Client{MaxElapsed: time.Hour}
	second, forgetful := rpc.Client{MaxElapsed: time.Second}, rpc.Client{Window: time.Second}
	for name, c := range map[string]struct {
		code    code.Code
		pause   time.Duration
		client  rpc.Client
		timeout time.Duration
		ends    bool
	}{
		"a run in progress":                {code: code.Code_ABORTED, pause: 3 * time.Second},
		"too fast":                         {code: code.Code_RESOURCE_EXHAUSTED, pause: 7 * time.Second},
		"unavailable":                      {code: code.Code_UNAVAILABLE, pause: 9 * time.Second},
		"longer than MaxPause":             {code: code.Code_UNAVAILABLE, pause: 2 * time.Minute, client: patient, ends: true},
		"longer than MaxElapsed":           {code: code.Code_UNAVAILABLE, pause: 5 * time.Second, client: second, ends: true},
		"longer than Window":               {code: code.Code_UNAVAILABLE, pause: 5 * time.Second, client: forgetful, ends: true},
		"longer than the caller's context": {code: code.Code_ABORTED, pause: 5 * time.Second, timeout: 4 * time.Second, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if c.timeout > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), c.timeout)
				}
				defer cancel()
				var times []time.Time
				began := time.Now()
				require.NoError(t, c.client.Do(ctx, paying(), func(string, bool) *status.Status {
					times = append(times, time.Now())
					if len(times) == 2 {
						return nil
					}
					return asking(c.code, c.pause)
				}))
				if c.ends {
					assert.Len(t, times, 1)
					assert.Equal(t, began, time.Now(), "the caller learns it at once")
					return
				}
				require.Len(t, times, 2)
				assert.Equal(t, c.pause, times[1].Sub(times[0]))
			})
		})
	}
}

// With the defaults a client outlasts the lease of a server whose process died.
func TestTheDefaultsOfAClientOutlastALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, last := time.Now(), time.Time{}
		require.NoError(t, (&rpc.Client{}).Do(t.Context(), paying(), func(string, bool) *status.Status {
			last = time.Now()
			return asking(code.Code_UNAVAILABLE, 0)
		}))
		assert.Greater(t, last.Sub(began), 40*time.Second)
		assert.Less(t, last.Sub(began), time.Minute)
	})
}

func TestACallerThatLeavesInAPauseIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, sent := time.Now(), 0
		time.AfterFunc(time.Second, cancel)
		require.NoError(t, (&rpc.Client{}).Do(ctx, paying(), func(string, bool) *status.Status {
			sent++
			return asking(code.Code_ABORTED, 10*time.Second)
		}))
		assert.Equal(t, 1, sent)
		assert.Equal(t, time.Second, time.Since(began))
	})
}

func TestEachAttemptHasTheSameKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var values []string
		client := &rpc.Client{Bare: true}
		for range 2 {
			attempt := 0
			require.NoError(t, client.Do(t.Context(), paying(), func(value string, isNew bool) *status.Status {
				values = append(values, value)
				assert.True(t, isNew)
				if attempt++; attempt < 3 {
					return asking(code.Code_UNAVAILABLE, 0)
				}
				return nil
			}))
		}
		require.Len(t, values, 6)
		assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, values[0])
		assert.Equal(t, []string{values[0], values[0]}, values[1:3])
		assert.NotEqual(t, values[0], values[3], "another call is another operation")
		assert.Equal(t, []string{values[3], values[3]}, values[4:])
	})
}

func TestAKeyOfTheCallerIsSentAsItIs(t *testing.T) {
	require.NoError(t, (&rpc.Client{}).Do(t.Context(), paying("order-7"), func(value string, isNew bool) *status.Status {
		assert.Equal(t, "order-7", value)
		assert.False(t, isNew)
		return nil
	}))
}

func TestWhatCannotBeSentIsAnErrorAndNothingIsSent(t *testing.T) {
	for says, c := range map[string]struct {
		client rpc.Client
		values []string
	}{
		"is empty":           {values: []string{""}},
		"2 idempotency-key":  {values: []string{"a", "b"}},
		"0x0A":               {values: []string{"a\nb"}},
		"Client.Header":      {client: rpc.Client{Header: "a b"}},
		"Client.Attempts":    {client: rpc.Client{Attempts: -1}},
		"Client.MaxElapsed":  {client: rpc.Client{MaxElapsed: -1}},
		"Client.Window":      {client: rpc.Client{Window: -1}},
		"Client.MaxPause is": {client: rpc.Client{MaxPause: -1}},
	} {
		err := c.client.Do(t.Context(), paying(c.values...), func(string, bool) *status.Status {
			t.Error("sent")
			return nil
		})
		if assert.Error(t, err) {
			assert.True(t, strings.Contains(err.Error(), says), "%v", err)
		}
	}
}

func TestCallsWithoutAKeyAreSentOnce(t *testing.T) {
	look := paying()
	look.Schema = rpc.Schema(rpctest.Look)
	skip := func(procedure string) bool { return procedure == rpctest.Pay }
	for name, c := range map[string]struct {
		client rpc.Client
		call   *rpc.Call
	}{
		"without side effects": {call: look},
		"skipped":              {client: rpc.Client{Skip: skip}, call: paying()},
	} {
		sent := 0
		require.NoError(t, c.client.Do(t.Context(), c.call, func(value string, _ bool) *status.Status {
			sent++
			assert.Empty(t, value)
			return asking(code.Code_UNAVAILABLE, 0)
		}))
		assert.Equal(t, 1, sent, name)
	}
}
