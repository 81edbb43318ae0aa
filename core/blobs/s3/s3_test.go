// The contract is tested on gofakes3, in this process, which takes any signature; with SOAK=1 also on versitygw, a server
// of its own that checks them and keeps objects in files.
package s3_test

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/blobs/blobstest"
	"github.com/go-idem/idem/core/blobs/s3"
	"github.com/go-idem/idem/internal/testclock"
)

var ctx = context.Background()

func newStore(tb testing.TB, client *minio.Client, opts ...s3.Option) *s3.Store {
	tb.Helper()
	store, err := s3.New(client, bucket, opts...)
	require.NoError(tb, err)
	return store
}

func contract(t *testing.T, client *minio.Client) {
	blobstest.Run(t, func(tb testing.TB) blobstest.Harness {
		c := testclock.New(time.Now())
		return blobstest.Harness{Blobs: newStore(tb, client, s3.Clock(c.Now)), Advance: c.Advance}
	})
}

func TestContract(t *testing.T) {
	client := serve(t, fake(t))
	contract(t, client)
	t.Run("with a client that adds checksums", func(t *testing.T) { contract(t, newClient(t, client.EndpointURL().Host, trailing)) })
}

// flip changes a bit of each body.
type flip struct{}

func (flip) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	body[0] ^= 1
	r.Body = io.NopCloser(bytes.NewReader(body))
	return http.DefaultTransport.RoundTrip(r)
}

func trailing(o *minio.Options) { o.TrailingHeaders = true }

func TestContractOnAServerOfItsOwn(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("SOAK=1 runs this: it builds versitygw if there is none on the PATH, which takes minutes")
	}
	client := process(t)
	addr := client.EndpointURL().Host
	contract(t, client)
	t.Run("with a client that adds checksums", func(t *testing.T) { contract(t, newClient(t, addr, trailing)) })
	t.Run("what was changed on its way is refused", func(t *testing.T) {
		store := newStore(t, newClient(t, addr, func(o *minio.Options) { o.Transport = flip{} }))
		require.Error(t, store.Put(ctx, "flipped", []byte("data"), time.Hour))
		_, err := newStore(t, client).Get(ctx, "flipped")
		assert.ErrorIs(t, err, fs.ErrNotExist)
	})
	t.Run("a wrong secret is an error", func(t *testing.T) {
		store := newStore(t, newClient(t, addr, func(o *minio.Options) { o.Creds = credentials.NewStaticV4(access, "wrong", "") }))
		require.Error(t, store.Put(ctx, "id", []byte("data"), time.Hour))
		_, err := store.Get(ctx, "id")
		require.Error(t, err)
		assert.NotErrorIs(t, err, fs.ErrNotExist)
	})
}

func TestObjectIsNamedByPrefixAndID(t *testing.T) {
	client := serve(t, fake(t))
	c := testclock.New(time.UnixMilli(1_000))
	require.NoError(t, newStore(t, client, s3.Clock(c.Now)).Put(ctx, "id", []byte("by default"), time.Minute))
	require.NoError(t, newStore(t, client, s3.Prefix("eu/orders-"), s3.Clock(c.Now)).Put(ctx, "id", []byte("other"), time.Minute))
	for name, want := range map[string]string{"idem/id": "by default", "eu/orders-id": "other"} {
		info, err := client.StatObject(ctx, bucket, name, minio.StatObjectOptions{})
		require.NoError(t, err, name)
		assert.Equal(t, "61000", info.UserMetadata["Idem-Expires"])
		assert.Equal(t, int64(len(want)), info.Size)
	}
	data, err := newStore(t, client, s3.Clock(c.Now)).Get(ctx, "id")
	require.NoError(t, err)
	assert.Equal(t, "by default", string(data))
}

// The service compares both with what has arrived, before it keeps it.
func TestPutCarriesTheSumOfItsData(t *testing.T) {
	got := make(chan http.Header, 1)
	store := newStore(t, serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })))
	require.NoError(t, store.Put(ctx, "id", []byte("data"), time.Hour))
	header := <-got
	assert.Equal(t, "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7", header.Get("X-Amz-Content-Sha256"))
	assert.Equal(t, "Om6weQ85rIfJTzhWst0sXREOaBFgImGpqSPTuyOtyLc=", header.Get("X-Amz-Checksum-Sha256"))
	assert.Empty(t, header.Get("Content-Encoding"))
}

func TestBlobEndsAtItsTTLAndNotBefore(t *testing.T) {
	c := testclock.New(time.Now().Truncate(time.Millisecond))
	store := newStore(t, serve(t, fake(t)), s3.Clock(c.Now))
	require.NoError(t, store.Put(ctx, "id", []byte("data"), time.Minute))
	c.Advance(time.Minute - time.Millisecond)
	_, err := store.Get(ctx, "id")
	require.NoError(t, err)
	c.Advance(time.Millisecond)
	_, err = store.Get(ctx, "id")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestAbsentBlobIsToldFromABrokenService(t *testing.T) {
	store := newStore(t, serve(t, fake(t)))
	_, err := store.Get(ctx, "absent")
	assert.ErrorIs(t, err, fs.ErrNotExist)

	broken := newStore(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })))
	_, err = broken.Get(ctx, "absent")
	require.Error(t, err)
	assert.NotErrorIs(t, err, fs.ErrNotExist)
	assert.Error(t, broken.Put(ctx, "id", []byte("data"), time.Hour))
	assert.Error(t, broken.Delete(ctx, "id"))
}

func TestObjectThatDoesNotSayWhenItEndsIsLost(t *testing.T) {
	client := serve(t, fake(t))
	for name, metadata := range map[string]map[string]string{
		"no metadata": nil, "empty": {"Idem-Expires": ""}, "no number": {"Idem-Expires": "tomorrow"}, "too large": {"Idem-Expires": strings.Repeat("9", 30)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.PutObject(ctx, bucket, "idem/id", strings.NewReader("data"), 4, minio.PutObjectOptions{UserMetadata: metadata})
			require.NoError(t, err)
			data, err := newStore(t, client).Get(ctx, "id")
			assert.ErrorContains(t, err, "Idem-Expires")
			assert.Nil(t, data)
		})
	}
}

// A connection that breaks in the middle must not pass for a shorter blob.
func TestBlobThatIsCutOffIsLost(t *testing.T) {
	whole := fake(t)
	cut := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			whole.ServeHTTP(w, r)
			return
		}
		whole.ServeHTTP(&cutter{ResponseWriter: w, left: 30_000}, r)
	})
	store := newStore(t, serve(t, cut))
	require.NoError(t, store.Put(ctx, "long", bytes.Repeat([]byte("x"), 60_000), time.Hour))
	data, err := store.Get(ctx, "long")
	require.Error(t, err)
	assert.Nil(t, data)
	require.NoError(t, store.Put(ctx, "short", bytes.Repeat([]byte("x"), 20_000), time.Hour))
	data, err = store.Get(ctx, "short")
	require.NoError(t, err)
	assert.Len(t, data, 20_000)
}

// cutter breaks the connection after so many bytes.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(b []byte) (int, error) {
	if len(b) > c.left {
		_, _ = c.ResponseWriter.Write(b[:c.left])
		panic(http.ErrAbortHandler)
	}
	c.left -= len(b)
	return c.ResponseWriter.Write(b)
}

func TestACallEndsWithItsContext(t *testing.T) {
	entered, done := make(chan struct{}, 3), make(chan struct{})
	store := newStore(t, serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-done:
		}
	})))
	defer close(done)
	for name, verb := range map[string]func(context.Context) error{
		"put":    func(ctx context.Context) error { return store.Put(ctx, "id", []byte("data"), time.Hour) },
		"get":    func(ctx context.Context) error { _, err := store.Get(ctx, "id"); return err },
		"delete": func(ctx context.Context) error { return store.Delete(ctx, "id") },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() { <-entered; cancel() }()
			assert.ErrorIs(t, verb(ctx), context.Canceled)
		})
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	client := newClient(t, "127.0.0.1:1")
	for name, test := range map[string]struct {
		client *minio.Client
		bucket string
		prefix string
		want   string
	}{
		"no client":       {nil, bucket, "idem/", "client: is nil"},
		"no bucket":       {client, "", "idem/", "bucket: "},
		"bad bucket":      {client, "a/b", "idem/", "bucket: "},
		"leading slash":   {client, bucket, "/idem/", "Prefix: "},
		"prefix too long": {client, bucket, strings.Repeat("p", 897), "Prefix: "},
		"no UTF-8":        {client, bucket, "\xff", "Prefix: "},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := s3.New(test.client, test.bucket, s3.Prefix(test.prefix))
			assert.ErrorContains(t, err, "idem: s3: "+test.want)
			assert.Nil(t, store)
		})
	}
	for _, prefix := range []string{"", strings.Repeat("p", 896)} {
		_, err := s3.New(client, bucket, s3.Prefix(prefix))
		assert.NoError(t, err)
	}
}
