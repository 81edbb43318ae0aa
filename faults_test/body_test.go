package faults_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// endless is a body that counts what was read of it.
type endless struct {
	left int64
	read atomic.Int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := min(int64(len(p)), e.left)
	if n == 0 {
		return 0, io.EOF
	}
	e.left -= n
	e.read.Add(n)
	return int(n), nil
}

func TestAHugeBodyIsRefusedBeforeItIsThere(t *testing.T) {
	s, _, client := onServer(t)
	body := &endless{left: 1 << 30}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	req, err := http.NewRequest("POST", s.http.URL, body)
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "K")
	res, err := http.DefaultTransport.RoundTrip(req)
	runtime.ReadMemStats(&after)
	if err == nil {
		assert.Equal(t, 413, res.StatusCode)
		_ = res.Body.Close()
	} else {
		assert.ErrorContains(t, err, "write", "the server may hang up while we send")
	}
	assert.Less(t, body.read.Load(), int64(64<<20), "it was read to the end")
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
	assert.Zero(t, client.DBSize(ctx).Val())
	s.ran("K", 0)
}

func TestASlowBodyHoldsNoClaim(t *testing.T) {
	s, _, client := onServer(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.http.URL, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = fmt.Fprint(conn, "POST /payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: K\r\nContent-Length: 14\r\n\r\n")
	require.NoError(t, err)
	for _, b := range `{"amount":100}` {
		require.Zero(t, client.DBSize(ctx).Val(), "a claim is held while the body is on its way")
		time.Sleep(5 * time.Millisecond)
		_, err = fmt.Fprintf(conn, "%c", b)
		require.NoError(t, err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	assert.Equal(t, 201, res.StatusCode)
	s.replays("K")
	s.ran("K", 1)
}
