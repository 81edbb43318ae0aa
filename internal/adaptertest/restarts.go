package adaptertest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
)

// TestRedisRestartsAndForgetsItsScripts: LSE-07, LSE-10 and LSE-12 with a real server.
func TestRedisRestartsAndForgetsItsScripts(t *testing.T, f Framework) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	client := server.Client(t)
	svc := Start(t, f, redisstore.New(client), OK(), Setup{}, nil)
	first := svc.Post("K", "B")
	require.Equal(t, 201, first.Status)

	require.NoError(t, client.ScriptFlush(context.Background()).Err())
	require.True(t, svc.Post("K", "B").Replayed())
	require.Equal(t, 201, svc.Post("K2", "B").Status)

	server.Pause()
	require.Equal(t, 503, svc.Post("K3", "B").Status, "a server that hangs")
	server.Resume()

	server.Kill()
	down := svc.Post("K4", "B")
	require.Equal(t, 503, down.Status, "a server that is gone")
	require.NotEmpty(t, down.Header.Get("Retry-After"))
	require.EqualValues(t, 2, svc.Runs.Load())

	server.Restart(t)
	second := svc.Post("K", "B")
	require.True(t, second.Replayed())
	require.Equal(t, first.Body, second.Body)
	require.Equal(t, 201, svc.Post("K4", "B").Status)
}
