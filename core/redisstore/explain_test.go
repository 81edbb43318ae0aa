package redisstore

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Only a connection that failed during the call, and since then has not succeeded, is a reason.
func TestAnErrorIsExplainedByItsOwnDialsOnly(t *testing.T) {
	refused, slow := errors.New("connection refused"), context.DeadlineExceeded
	dial := func(d *dials, err error) {
		_, _ = d.DialHook(func(context.Context, string, string) (net.Conn, error) { return nil, err })(t.Context(), "tcp", "")
	}
	for name, c := range map[string]struct {
		before, during []error // of the call
		err            error
		isExplained    bool
	}{
		"no dial":                         {nil, nil, slow, false},
		"a dial that failed":              {nil, []error{refused}, slow, true},
		"the last of two":                 {nil, []error{nil, refused}, slow, true},
		"a dial that succeeded afterward": {nil, []error{refused, nil}, slow, false},
		"a dial of an earlier call":       {[]error{refused}, nil, slow, false},
		"an error of the server":          {nil, []error{refused}, errors.New("LOADING"), false},
		"no error":                        {nil, []error{refused}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			var d dials
			for _, err := range c.before {
				dial(&d, err)
			}
			began := time.Now()
			for _, err := range c.during {
				dial(&d, err)
			}
			err := d.explain(c.err, began)
			assert.ErrorIs(t, err, c.err)
			assert.Equal(t, c.isExplained, errors.Is(err, refused))
			if !c.isExplained {
				assert.Equal(t, c.err, err, "it stays as it is")
			}
		})
	}
}
