package dynamostore_test

import (
	"os"
	"testing"
	"time"

	"github.com/go-idem/idem/internal/adaptertest"
)

// What clients see does not depend on the store.
func TestAClientSeesTheSameAsOnOtherStores(t *testing.T) {
	t.Parallel()
	if os.Getenv("SOAK") != "" {
		store := sharedTable(t).store()
		store.SetClock(time.Now, 0) // the tests wait for retentions, which are a minute longer otherwise
		adaptertest.RunOn(t, store, []adaptertest.Framework{adaptertest.HTTP, adaptertest.HTTP})
		return
	}
	adaptertest.RunSample(t, sharedTable(t).store(), adaptertest.HTTP)
}
