package dynamostore

import (
	"context"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/internal/record"
)

// pollInterval is how often a Store reads the records that requests of this process wait for.
const pollInterval = 500 * time.Millisecond

// maxBatch is how many items BatchGetItem reads.
const maxBatch = 100

// Watch implements driver.Notifier. A claim that ends in this process wakes at once, and one that ends in another process after
// at most half a second and the time for a read. Watch returns no error. If DynamoDB does not respond, a claim that ends in
// another process does not wake.
func (s *Store) Watch(_ context.Context, key [32]byte, wake func()) (stop func(), err error) {
	return s.watches.Watch(key, wake), nil
}

// poll reads the watched records until ctx ends.
func (s *Store) poll(ctx context.Context) {
	ticks := time.NewTicker(s.pollInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		for batch := range slices.Chunk(s.watches.Keys(), maxBatch) {
			s.look(ctx, batch)
		}
	}
}

// look notifies the watches of those records in a batch that have no run in progress. It leaves what DynamoDB does not return to
// the next look.
func (s *Store) look(ctx context.Context, batch [][32]byte) {
	wanted := types.KeysAndAttributes{ProjectionExpression: aws.String(watched)}
	for _, name := range batch {
		wanted.Keys = append(wanted.Keys, key(name))
	}
	out, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
		RequestItems: map[string]types.KeysAndAttributes{s.table: wanted},
	})
	if err != nil {
		return
	}
	for _, of := range out.Responses[s.table] {
		in := reader{of: of}
		name, ok := driver.ParseRecordName(in.text("id"))
		if ok && in.text("claim_state") != record.Started {
			s.watches.Notify(name)
		}
	}
}
