package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// stepless is a store that keeps no step once refused is set, which it returns. It knows so before if asks is set.
type stepless struct {
	*memstore.Store
	refused error
	asks    bool
	sent    int
}

var errRefused = fmt.Errorf("the store keeps no steps: %w", errors.ErrUnsupported)

func (s *stepless) MayCheckpoint(context.Context, driver.Claim) error {
	if s.asks {
		return s.refused
	}
	return nil
}

func (s *stepless) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	s.sent++
	if s.refused != nil {
		return s.refused
	}
	return s.Store.Checkpoint(ctx, c, step, result)
}

func TestAStepThatIsNeverKeptIsAnError(t *testing.T) {
	for _, test := range []struct {
		name string
		asks bool
		done int
	}{{"before it is done, where the store can tell", true, 1}, {"at once, where it cannot", false, 2}} {
		inBubble(t, test.name, func(t *testing.T) {
			store, did := &stepless{Store: memstore.New(), asks: test.asks}, 0
			f := newFixture(t, func(c *core.Config) { c.Store = store })
			step := func(context.Context) (int, error) { did++; return did, nil }
			f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
				_, err := core.Step(ctx, "kept", step)
				require.NoError(t, err)
				store.refused = errRefused
				_, err = core.Step(ctx, "refused", step)
				assert.ErrorIs(t, err, errRefused)
				again, err := core.Step(ctx, "kept", step)
				assert.NoError(t, err)
				assert.Equal(t, 1, again)
				return made(ctx)
			})
			assert.Equal(t, test.done, did)
			assert.Equal(t, test.done, store.sent, "what is refused for good is not sent again")
		})
	}
}

// What the store says of the record is final. Only a loss of the claim ends the run.
func TestACheckpointThatIsRefusedIsNotSentAgain(t *testing.T) {
	for name, c := range map[string]struct{ refused, want error }{
		"lost": {core.ErrLost, core.ErrLost}, "unreadable": {driver.ErrUnreadable, nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := &stepless{Store: memstore.New(), refused: c.refused}
			f := newFixture(t, func(c *core.Config) { c.Store = store })
			f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
				_, err := core.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
				assert.Equal(t, c.want, err)
				return made(ctx)
			})
			assert.Equal(t, 1, store.sent)
		})
	}
}
