package storecheck

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// NeverInterleave has this many owners claim one key at the same time, each as often as claims says, with a new run each time.
// Whoever is granted the key extends the claim and fails. The test fails unless the owner of a claim is alone with it, its fence is
// higher and its attempt is one more than that of the claim before, and all other owners hear that the key is in progress. open
// returns the store of each owner, in the order of their numbers from 0; it may return the same store again.
func NeverInterleave(t *testing.T, owners, claims int, open func(owner int) driver.Store) {
	t.Helper()
	base, key := storetest.NewClaim(time.Minute, time.Hour), &heldKey{}
	var wg sync.WaitGroup
	for i := range owners {
		store := open(i)
		wg.Go(func() {
			for range claims {
				c := base
				rand.Read(c.Owner[:])
				if !key.claim(t, store, c) {
					return
				}
			}
		})
	}
	wg.Wait()
	assert.Greater(t, key.claims, 1)
}

// heldKey is a key as its owners see it.
type heldKey struct {
	mu              sync.Mutex
	holders, claims int
	fence           int64 // of the last claim
}

// claim begins c, and extends and fails it if it is granted. It reports whether the store replied to the Begin.
func (k *heldKey) claim(t *testing.T, store driver.Store, c driver.Claim) bool {
	entry, err := store.Begin(context.Background(), c)
	if !assert.NoError(t, err) {
		return false
	}
	if entry.State != driver.Claimed {
		assert.Equal(t, driver.InProgress, entry.State)
		return true
	}
	k.take(t, entry)
	c.Fence = entry.Fence
	assert.NoError(t, store.Extend(context.Background(), c))
	k.leave()
	assert.NoError(t, store.Fail(context.Background(), c, driver.Failure{}))
	return true
}

// take notes that an owner was granted the key, which nobody else may hold.
func (k *heldKey) take(t *testing.T, entry driver.Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holders++
	k.claims++
	assert.Equal(t, 1, k.holders)
	assert.Greater(t, entry.Fence, k.fence)
	assert.Equal(t, k.claims, entry.Attempt)
	k.fence = entry.Fence
}

// leave notes that the owner is about to give the key back.
func (k *heldKey) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holders--
}
