package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/compress"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/seal"
)

// form is one way to keep an outcome: what codecs make of it, the first one first.
type form struct {
	name   string
	codecs []driver.Codec
}

const (
	plainForm, zstdForm, dictionaryForm = "plain", "zstd", "zstd with a dictionary"

	dictionaryBytes = 4 << 10
)

// formWeight is what a record takes with one form, on average over many answers, in bytes.
type formWeight struct {
	size               int // of an answer
	form               string
	packed, outcome    float64 // before and after the codecs
	running, completed float64 // by MEMORY USAGE
	pair               float64 // of two keys with JSON for the same answer
	result             float64 // of the second one alone
	base64             float64 // of two keys, as Go makes JSON of a body that is []byte
}

func (w formWeight) ratio() float64 { return w.completed / w.pair }

var formSizes = []int{512, 1 << 10, 4 << 10, 64 << 10}

// forms makes the codecs, as a service would: the dictionary is other answers, one after another.
func forms() ([]form, error) {
	zstd, err := compress.Zstd(compress.Threshold(512))
	if err != nil {
		return nil, err
	}
	dictionary, err := compress.Zstd(compress.Dictionary(1, typical(newAnswers(1))))
	if err != nil {
		return nil, err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // cannot fail
	sealing, err := seal.New([]seal.Key{{ID: "2026-11", Secret: secret}})
	return []form{
		{plainForm, nil}, {zstdForm, []driver.Codec{zstd}}, {dictionaryForm, []driver.Codec{dictionary}},
		{"sealed", []driver.Codec{sealing}}, {"zstd with a dictionary, sealed", []driver.Codec{dictionary, sealing}},
	}, err
}

// typical is a dictionary of outcomes.
func typical(r answers) (text []byte) {
	for len(text) < dictionaryBytes {
		text = append(text, packed(r.body(512))...)
	}
	return text[:dictionaryBytes]
}

// encode makes what a store is given, and holds it to what comes out again.
func (f form) encode(record [32]byte, outcome []byte) ([]byte, error) {
	kept := outcome
	for _, c := range f.codecs {
		kept = c.Encode(record, kept)
	}
	again, err := kept, error(nil)
	for _, c := range slices.Backward(f.codecs) {
		if again, err = c.Decode(record, again); err != nil {
			return nil, err
		}
	}
	if !bytes.Equal(outcome, again) {
		return nil, fmt.Errorf("%s: another outcome came back", f.name)
	}
	return kept, nil
}

// measureForms weighs records of many answers, each with all forms and as two keys with JSON.
func measureForms(b *bench) error {
	all, err := forms()
	if err != nil {
		return err
	}
	for _, size := range formSizes {
		pair, result, err := b.weighPairs(size, newPairResult)
		if err != nil {
			return err
		}
		base64, _, err := b.weighPairs(size, newBytesResult)
		if err != nil {
			return err
		}
		for _, f := range all {
			w := formWeight{size: size, form: f.name, pair: pair, result: result, base64: base64}
			if err := w.measure(b, f); err != nil {
				return err
			}
			b.results.forms = append(b.results.forms, w)
		}
	}
	return b.client.FlushAll(context.Background()).Err()
}

func (w *formWeight) measure(b *bench, f form) error {
	ctx, n := context.Background(), b.plan.answers
	if err := b.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if err := fill(ctx, b.client, n, func(to redis.Cmdable, key string) { ownBegin(ctx, to, key) }); err != nil {
		return err
	}
	w.running = meanWeight(ctx, b.client, n, ownKeys)
	bodies, failed := newAnswers(uint64(w.size)), error(nil)
	err := fill(ctx, b.client, n, func(to redis.Cmdable, key string) {
		outcome := packed(bodies.body(w.size))
		kept, err := f.encode([32]byte([]byte(key)), outcome)
		if err != nil {
			failed = err
		}
		claimOf(key).complete(ctx, to, 0, kept)
		w.packed, w.outcome = w.packed+float64(len(outcome))/float64(n), w.outcome+float64(len(kept))/float64(n)
	})
	w.completed = meanWeight(ctx, b.client, n, ownKeys)
	if failed != nil {
		return failed
	}
	return err
}

// weighPairs returns what a lock and a result take together, and the result alone.
func (b *bench) weighPairs(size int, encode func(body []byte) []byte) (both, result float64, err error) {
	ctx, n, bodies := context.Background(), b.plan.answers, newAnswers(uint64(size))
	if err := b.client.FlushAll(ctx).Err(); err != nil {
		return 0, 0, err
	}
	err = fill(ctx, b.client, n, func(to redis.Cmdable, key string) {
		pairOpen(ctx, to, key)
		pairComplete.EvalSha(ctx, to, pairKeys(key), pairOwner, retentionMillis, encode([]byte(bodies.body(size))))
	})
	both = meanWeight(ctx, b.client, n, pairKeys)
	result = meanWeight(ctx, b.client, n, func(key string) []string { return pairKeys(key)[1:] })
	return both, result, err
}

// meanWeight is what one of n records takes.
func meanWeight(ctx context.Context, client *redis.Client, n int, keys func(key string) []string) float64 {
	var sum int64
	for i := range n {
		sum += weigh(ctx, client, keys(name(i)))
	}
	return float64(sum) / float64(n)
}

// formNamed returns the weight of a form at a size; a zero one when it was not measured.
func (r *results) formNamed(name string, size int) formWeight {
	for _, w := range r.forms {
		if w.form == name && w.size == size {
			return w
		}
	}
	return formWeight{}
}
