package adapters_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/adaptertest"
	"github.com/go-idem/idem/internal/redistest"
)

// frameworks has the adapters of this module. Those in modules of their own run the same tests there.
var frameworks = []adaptertest.Framework{adaptertest.HTTP, ginFramework, echoFramework, fiberFramework, proxyFramework}

// FRM-01, FRM-04: each framework behaves alike on each store.
func TestAdapters(t *testing.T) {
	for _, s := range adaptertest.Stores {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			adaptertest.RunOn(t, s.New(t), frameworks)
		})
	}
}

func TestFrameworks(t *testing.T) {
	for _, f := range frameworks {
		t.Run(f.Name, func(t *testing.T) { adaptertest.RunOnce(t, f) })
	}
}

// Every test of the suite that does not depend on the store is in a list of the suite.
func TestTheSuiteRunsAllOfItsTests(t *testing.T) {
	declared, err := exec.Command("grep", "-rhoE", "--exclude=*_test.go", // go test finds what those files have
		`^func Test\w+\(t \*testing.T`, "../internal/adaptertest").Output()
	require.NoError(t, err)
	list, err := os.ReadFile("../internal/adaptertest/suite.go")
	require.NoError(t, err)
	streams, err := os.ReadFile("../internal/adaptertest/fasthttptest/streams.go")
	require.NoError(t, err)
	requests, err := os.ReadFile("../internal/adaptertest/fasthttptest/requests.go")
	require.NoError(t, err)
	processes, err := os.ReadFile("../internal/adaptertest/processtest/tests.go")
	require.NoError(t, err)
	list = slices.Concat(list, streams, requests, processes)
	names := regexp.MustCompile(`Test\w+`).FindAllString(string(declared), -1)
	require.Greater(t, len(names), 30)
	for _, name := range names {
		assert.Contains(t, string(list), "\t"+name+",\n")
	}
}

// TestNoKeyIsLeftWithoutTTL: TTL-05, after all of the above or any part of it.
func TestNoKeyIsLeftWithoutTTL(t *testing.T) {
	redis := redistest.Shared(t).Client(t)
	for iter := redis.Scan(context.Background(), 0, "idem:*", 1000).Iterator(); iter.Next(context.Background()); {
		ttl, err := redis.PTTL(context.Background(), iter.Val()).Result()
		require.NoError(t, err)
		require.NotEqual(t, time.Duration(-1), ttl, iter.Val())
	}
}
