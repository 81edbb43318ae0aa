package s3_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/go-idem/idem/core/blobs/s3"
	"github.com/go-idem/idem/internal/badnet"
	"github.com/go-idem/idem/internal/hangtest"
)

// calls are all exported functions that take a context, by their names.
var calls = map[string]func(context.Context, *s3.Store) error{
	"Store.Put": func(ctx context.Context, s *s3.Store) error { return s.Put(ctx, "id", []byte("data"), time.Hour) },
	"Store.Get": func(ctx context.Context, s *s3.Store) error {
		_, err := s.Get(ctx, "id")
		return err
	},
	"Store.Delete": func(ctx context.Context, s *s3.Store) error { return s.Delete(ctx, "id") },
}

func TestTheListOfCallsThatCanHangIsComplete(t *testing.T) { hangtest.RequireAll(t, ".", calls) }

// A call ends with its context when the server does not reply, or stops in the middle of the reply. No goroutine is left a while
// later, although the server still hangs.
func TestNoCallOutlivesItsContextWhenTheServerHangs(t *testing.T) {
	server := serve(t, fake(t)).EndpointURL().Host
	t.Run("hanging", func(t *testing.T) {
		for name, call := range calls {
			for fault, faults := range map[string]badnet.Faults{
				"no reply": {Hole: true}, "half a reply": {HalfReply: true},
			} {
				t.Run(name+", "+fault, func(t *testing.T) {
					t.Parallel()
					network := badnet.New(1)
					transport := &http.Transport{DialContext: network.Dial}
					store := newStore(t, newClient(t, server, func(o *minio.Options) { o.Transport = transport }))
					network.Set(faults)
					hangtest.EndInTime(t, 4, 300*time.Millisecond, func(ctx context.Context) error { return call(ctx, store) })
				})
			}
		}
	})
	hangtest.NoGoroutine(t, 10*time.Second, "github.com/go-idem/idem/core/blobs/s3", "github.com/minio/minio-go/v7")
}
