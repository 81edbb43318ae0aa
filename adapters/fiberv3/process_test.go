package idem_test

import (
	"testing"
	"time"

	"github.com/go-idem/idem/internal/adaptertest"
	"github.com/go-idem/idem/internal/adaptertest/processtest"
)

func TestMain(m *testing.M) { processtest.Main(m, framework, adaptertest.HTTP) }

func TestProcesses(t *testing.T) {
	t.Parallel()
	processtest.Run(t, framework)
}

// The processes share their keys with those of the adapter for net/http.
func TestSoak(t *testing.T) {
	t.Parallel()
	processtest.Soak(t, 3*time.Second, framework, adaptertest.HTTP)
}
