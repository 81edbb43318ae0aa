package s3_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/tied"
)

const (
	bucket = "outcomes"
	access = "tester"
	secret = "not-a-secret"
)

// newClient returns a client of the server at addr, after change if there is one.
func newClient(tb testing.TB, addr string, change ...func(*minio.Options)) *minio.Client {
	tb.Helper()
	options := &minio.Options{Creds: credentials.NewStaticV4(access, secret, ""), Region: "us-east-1", MaxRetries: 1}
	for _, f := range change {
		f(options)
	}
	client, err := minio.New(addr, options)
	require.NoError(tb, err)
	return client
}

// serve answers at a free port until the test ends.
func serve(tb testing.TB, handler http.Handler) *minio.Client {
	tb.Helper()
	server := httptest.NewServer(handler)
	tb.Cleanup(server.Close)
	return newClient(tb, server.Listener.Addr().String())
}

// fake is a server in this process, with a bucket.
func fake(tb testing.TB) http.Handler {
	tb.Helper()
	backend := s3mem.New()
	require.NoError(tb, backend.CreateBucket(bucket))
	return gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
}

const versitygw = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// gateway is the path of a versitygw: the one on the PATH, or one that is built now, which takes minutes.
func gateway(tb testing.TB) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: this test needs versitygw")
	}
	if path, err := exec.LookPath("versitygw"); err == nil {
		return path
	}
	dir := tb.TempDir()
	build := exec.Command("go", "install", versitygw)
	build.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod")
	out, err := build.CombinedOutput()
	require.NoError(tb, err, "%s", out)
	return filepath.Join(dir, "versitygw")
}

// process is a versitygw of its own, with a bucket, that keeps objects in files. It checks signatures and checksums.
func process(tb testing.TB) *minio.Client {
	tb.Helper()
	binary := gateway(tb)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	addr := listener.Addr().String()
	require.NoError(tb, listener.Close())

	objects, metadata := tb.TempDir(), tb.TempDir()
	cmd := exec.Command(binary, "--port", addr, "--access", access, "--secret", secret, "--quiet", "posix", "--sidecar", metadata, objects)
	require.NoError(tb, tied.Start(cmd, syscall.SIGKILL))
	tb.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	client := newClient(tb, addr)
	require.Eventually(tb, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = client.MakeBucket(ctx, bucket, minio.MakeBucketOptions{})
		return err == nil
	}, 30*time.Second, 50*time.Millisecond, "versitygw does not answer: %v", fmt.Sprint(err))
	return client
}
