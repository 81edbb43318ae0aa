package operator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/operator"
	"github.com/go-idem/idem/core/seal"
)

func TestAnOperatorSeesTheFinishedStepsOfARun(t *testing.T) {
	inBubble(t, "OPR-08", func(t *testing.T) {
		codec, err := seal.New([]seal.Key{{ID: "2026", Secret: []byte(strings.Repeat("s", 32))}})
		require.NoError(t, err)
		store := memstore.New()
		o := newOperator(t, store, func(c *core.Config) { c.Keep.Codecs = []driver.Codec{codec} })
		o.send("ann", "K", func(ctx context.Context) (*core.Response, error) {
			for _, step := range []string{"notify", "charge"} {
				_, err := core.Step(ctx, step, func(context.Context) (string, error) { return "id of " + step, nil })
				require.NoError(t, err)
			}
			return vanish(ctx)
		})
		time.Sleep(lease)
		seen := o.look("ann", "K")
		steps, err := o.Steps(ctx, seen)
		require.NoError(t, err)
		require.Len(t, steps, seen.Steps)
		assert.Equal(t, "charge", steps[0].Name)
		assert.Equal(t, `"id of charge"`, string(steps[0].Result))
		assert.Greater(t, steps[0].Bytes, len(steps[0].Result), "it is sealed")
		assert.Equal(t, "notify", steps[1].Name)
		blind, err := newOperator(t, store).Steps(ctx, seen)
		require.NoError(t, err)
		assert.ErrorIs(t, blind[0].Err, driver.ErrUnreadable, "it is sealed")
		assert.Nil(t, blind[0].Result)
		require.NoError(t, o.Release(ctx, alice, core.Task{Scope: "ann", Key: "K"}, seen))
		none, err := o.Steps(ctx, seen)
		require.NoError(t, err)
		assert.Equal(t, []operator.Step{}, none)
	})
}
