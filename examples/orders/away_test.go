package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const many = 250 // events: Redis trims a stream by nodes of about 100

// emitMany writes orders and their first events.
func (s *service) emitMany(t *testing.T, n int) {
	t.Helper()
	_, err := s.db.Exec(t.Context(), `
		WITH placed AS (
			INSERT INTO orders (operation, customer, item, quantity) SELECT 'many ' || i, 'alice', 'book', 1 FROM generate_series(1, $1) i
			RETURNING id)
		INSERT INTO outbox (order_id, version, type, payload) SELECT id, 1, 'OrderPlaced', '{}' FROM placed`, n)
	require.NoError(t, err)
}

func TestConsumersThatAreAwayForLongerThanEventsAreKeptLoseNone(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*testing.T, *service){
		"and have not been there yet": func(*testing.T, *service) {},
		"and were there before": func(t *testing.T, s *service) {
			joined, cursor := false, "0-0"
			s.publish(t, event{ID: "0", OrderID: 1_000_000, Version: 1, Type: orderPlaced, Payload: []byte("{}")})
			require.NoError(t, newConsumer(s).round(t.Context(), &joined, &cursor))
		},
		"and have left something": func(t *testing.T, s *service) {
			s.publish(t, event{ID: "0", OrderID: 1_000_000, Version: 2, Type: orderConfirmed, Payload: []byte("{}")})
			joined, cursor := false, "0-0"
			require.NoError(t, newConsumer(s).round(t.Context(), &joined, &cursor))
			require.EqualValues(t, 1, s.pending(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, "KEEP_EVENTS=1s", "MAX_ATTEMPTS=1000")
			before(t, s)
			background(t, newRelay(s).run)
			gone := func() bool { return s.count(t, "SELECT count(*) FROM outbox") == 0 }
			s.emitMany(t, many)
			require.Eventually(t, gone, patience, patience/1000, "they are so old that the outbox has deleted them")
			s.ordered(t, false)
			require.Eventually(t, gone, patience, patience/1000)
			background(t, newConsumer(s).run)
			assert.Eventually(t, func() bool {
				return s.count(t, "SELECT count(*) FROM shipments WHERE order_id < 1000000 AND state = 'reserved'") == many+1
			}, patience, patience/1000)
			if name != "and have left something" {
				assert.Eventually(t, func() bool { return s.length(t, stream) < many }, patience, patience/1000, "what is consumed is trimmed")
			}
		})
	}
}

func TestEarlierComparesIDsOfEntries(t *testing.T) {
	for _, c := range [][2]string{{"9", "10"}, {"9-1", "9-2"}, {"9-9", "10-1"}, {"9-9", "9-10"}, {"0-0", "1"}, {"5", "5-1"}} {
		assert.Equal(t, c[0], earlier(c[0], c[1]))
		assert.Equal(t, c[0], earlier(c[1], c[0]))
	}
}
