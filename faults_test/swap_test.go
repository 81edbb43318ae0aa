package faults_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/seal"
	"github.com/go-idem/idem/internal/redistest"
)

// hands are those of somebody who can write to the store and to the blobs: they see each part that is kept, and may put
// another in its place. A part is named by its record, its kind, and the name of a step.
type hands struct {
	driver.Store
	records map[string]string // names of records -> short ones
	parts   map[string][]byte
	swap    map[string][]byte // what is found in a place instead
}

func (h *hands) see(record, part string, b []byte) {
	name := h.records[record]
	if name == "" {
		name = string(rune('K' + len(h.records)))
		h.records[record] = name
	}
	h.parts[name+" "+part] = bytes.Clone(b)
}

func (h *hands) found(record, part string, b []byte) []byte {
	if other, ok := h.swap[h.records[record]+" "+part]; ok {
		return other
	}
	return b
}

func (h *hands) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	entry, err := h.Store.Begin(ctx, c)
	if entry.State == driver.Completed {
		entry.Outcome = h.found(string(c.Key[:]), "outcome", entry.Outcome)
	}
	return entry, err
}

func (h *hands) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	h.see(string(c.Key[:]), "outcome", outcome)
	return h.Store.Complete(ctx, c, outcome)
}

func (h *hands) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	h.see(string(c.Key[:]), "step "+step, result)
	return h.Store.(driver.Checkpointer).Checkpoint(ctx, c, step, result)
}

func (h *hands) Checkpoints(ctx context.Context, c driver.Claim) (map[string][]byte, error) {
	steps, err := h.Store.(driver.Checkpointer).Checkpoints(ctx, c)
	for step := range steps {
		steps[step] = h.found(string(c.Key[:]), "step "+step, steps[step])
	}
	return steps, err
}

// shelf is blobs in memory, within reach of the hands.
type shelf struct {
	*hands
	blobs map[string][]byte
}

// record is the name of the record that a blob belongs to.
func (s *shelf) record(id string) string {
	name, _, _ := strings.Cut(id, "-")
	hash, _ := hex.DecodeString(name)
	return string(hash)
}

func (s *shelf) Put(_ context.Context, id string, data []byte, _ time.Duration) error {
	s.see(s.record(id), "blob", data)
	s.blobs[id] = data
	return nil
}

func (s *shelf) Get(_ context.Context, id string) ([]byte, error) {
	data, ok := s.blobs[id]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return s.found(s.record(id), "blob", data), nil
}

func (s *shelf) Delete(context.Context, string) error { return nil }

// sealedService is an engine whose outcomes, steps and blobs are sealed, within reach of the hands.
type sealedService struct {
	*testing.T
	*hands
	engine *core.Engine
}

func newSealedService(t *testing.T, store driver.Store) *sealedService {
	codec, err := seal.New([]seal.Key{{ID: "1", Secret: bytes.Repeat([]byte{7}, 32)}})
	require.NoError(t, err)
	h := &hands{store, map[string]string{}, map[string][]byte{}, map[string][]byte{}}
	engine, err := core.New(core.Config{Store: h, Scope: core.SingleTenant, Keep: core.KeepConfig{
		Codecs: []driver.Codec{codec}, Blobs: &shelf{h, map[string][]byte{}}, BlobsFrom: 100,
	}})
	require.NoError(t, err)
	return &sealedService{t, h, engine}
}

func (s *sealedService) post(key string, run func(context.Context) (*core.Response, error)) core.Result {
	result, err := s.engine.Do(ctx, core.Request{
		Method: "POST", Path: "/payments",
		Header: func(string) []string { return []string{key} },
		Body:   func(int64) ([]byte, error) { return nil, nil },
	}, run)
	require.NoError(s, err)
	return result
}

var swapKeys = []string{"first", "second"}

// TestNoSealedPartOpensInThePlaceOfAnother, SEC-01: each part of two records is put into the place of each other one.
func TestNoSealedPartOpensInThePlaceOfAnother(t *testing.T) {
	t.Parallel()
	for name, newStore := range map[string]func(*testing.T) driver.Store{
		"memory": func(*testing.T) driver.Store { return memstore.New() },
		"Redis": func(t *testing.T) driver.Store {
			return redisstore.New(redistest.Start(t).Client(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			kept, failed := newSealedService(t, newStore(t)), newSealedService(t, newStore(t))
			for _, key := range swapKeys {
				kept.post(key, func(context.Context) (*core.Response, error) {
					return &core.Response{Status: 201, Body: bytes.Repeat([]byte(key), 100)}, nil
				})
				failed.steps(key, nil)
			}
			parts := map[string][]byte{}
			for _, s := range []*sealedService{kept, failed} {
				for name, part := range s.parts {
					parts[name] = part
				}
			}
			require.Len(t, parts, 2*4, "an outcome, a blob and two steps of each")
			for place := range parts {
				for other, part := range parts {
					if other != place {
						kept.refuses(place, other, part)
						failed.refuses(place, other, part)
					}
				}
			}
			kept.replays()
			failed.steps("first", nil)
		})
	}
}

// refuses puts a part into the place of another, and asks for that.
func (s *sealedService) refuses(place, other string, part []byte) {
	if s.parts[place] == nil {
		return
	}
	s.swap[place] = part
	defer delete(s.swap, place)
	key := swapKeys[place[0]-'K']
	switch strings.Fields(place)[1] {
	case "outcome":
		result := s.post(key, nil)
		assert.Equal(s, "record-unreadable", result.Problem, "%s for %s", other, place)
	case "blob":
		result := s.post(key, nil)
		require.True(s, result.Replayed, "%s for %s", other, place)
		assert.Empty(s, result.Response.Body, "%s for %s", other, place)
		assert.Contains(s, result.Response.Header, core.Field{Name: "Idempotent-Body", Value: "omitted"})
	case "step":
		s.steps(key, driver.ErrUnreadable)
	}
}

// replays: what is in its own place is replayed.
func (s *sealedService) replays() {
	for _, key := range swapKeys {
		assert.Equal(s, strings.Repeat(key, 100), string(s.post(key, nil).Response.Body))
	}
}

// steps is an attempt with two steps, which fails. With want, one of them cannot be read, and none is done again.
func (s *sealedService) steps(key string, want error) {
	again := len(s.parts) == 4
	s.post(key, func(ctx context.Context) (*core.Response, error) {
		var errs []error
		for _, step := range []string{"charge", "notify"} {
			result, err := core.Step(ctx, step, func(context.Context) (string, error) {
				assert.False(s, again, "%s of %s is done again", step, key)
				return step + " of " + key, nil
			})
			if err == nil {
				assert.Equal(s, step+" of "+key, result)
			}
			errs = append(errs, err)
		}
		if want == nil {
			assert.Equal(s, []error{nil, nil}, errs)
		} else {
			assert.NotEqual(s, errs[0] == nil, errs[1] == nil, "one cannot be read: %v", errs)
			assert.ErrorIs(s, errors.Join(errs...), want)
		}
		return &core.Response{Status: 500}, nil
	})
}
