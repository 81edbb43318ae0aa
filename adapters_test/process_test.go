package adapters_test

import (
	"testing"
	"time"

	"github.com/go-idem/idem/internal/adaptertest/processtest"
)

func TestMain(m *testing.M) { processtest.Main(m, frameworks...) }

func TestProcesses(t *testing.T) { processtest.Run(t, frameworks...) }

func TestSoak(t *testing.T) { processtest.Soak(t, 6*time.Second, frameworks...) }
