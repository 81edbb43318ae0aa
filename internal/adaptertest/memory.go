package adaptertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// offered notes how much memory it is offered while nothing of it has come.
type offered struct {
	io.Reader
	first, most, reads int
}

// Read implements io.Reader. It notes the size of the first buffer apart: that is all that the declared length alone has cost.
func (o *offered) Read(p []byte) (int, error) {
	if o.reads++; o.reads == 1 {
		o.first = len(p)
	}
	o.most = max(o.most, len(p))
	return o.Reader.Read(p)
}

// Who declares a long body and sends none of it costs no memory for it.
func TestMemoryForABodyIsTakenAsItComes(t *testing.T, f Framework) {
	onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
		for _, length := range []int{0, 1, 511, 4095, 4096, 4097, 100_000, 1 << 20} {
			body := &offered{Reader: strings.NewReader(strings.Repeat("x", length))}
			r := httptest.NewRequest("POST", "/", body)
			r.ContentLength = int64(length)
			r.Header.Set("Idempotency-Key", "K")
			w := httptest.NewRecorder()
			wrap(NewEngine(t), func(w http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				assert.Len(t, got, length)
			}).ServeHTTP(w, r)
			assert.Equal(t, 200, w.Code)
			assert.LessOrEqual(t, body.first, min(length, 4<<10)+1)
			assert.LessOrEqual(t, body.most, length+1)
		}
	})
}
