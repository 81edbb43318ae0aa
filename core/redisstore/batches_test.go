package redisstore

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

// The nodes of a Cluster may change for years, for example their addresses, so those that have left must be forgotten.
func TestBatchersOfManyNodesAreForgotten(t *testing.T) {
	all := batches{byNode: map[redis.UniversalClient]*batcher{}}
	first := &redis.Client{}
	batcher := all.forNode(first)
	for range maxBatchers - 1 {
		all.forNode(&redis.Client{})
	}
	assert.Same(t, batcher, all.forNode(first), "one node has one batcher, so that no more than two round trips are in flight")
	for range 2 * maxBatchers {
		all.forNode(&redis.Client{})
	}
	assert.LessOrEqual(t, len(all.byNode), maxBatchers)
}
