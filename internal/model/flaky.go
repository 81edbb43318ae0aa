package model

import (
	"context"
	"errors"
	"math/rand"
	"sync"

	"github.com/go-idem/idem/core/driver"
)

// Flaky loses answers of a store that needs no network.
type Flaky struct {
	driver.Store
	mu     sync.Mutex
	random *rand.Rand
	loss   float64
	lost   int // how many
}

// errAway is the error of a call whose answer is lost.
var errAway = errors.New("no answer")

// loses decides whether to lose an answer.
func (f *Flaky) loses() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost := f.random.Float64() < f.loss
	if lost {
		f.lost++
	}
	return lost
}

// Begin implements driver.Store.
func (f *Flaky) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	entry, err := f.Store.Begin(ctx, c)
	if f.loses() {
		return driver.Entry{}, errAway
	}
	return entry, err
}

// after returns the error of a call, or that its answer is lost.
func (f *Flaky) after(err error) error {
	if f.loses() {
		return errAway
	}
	return err
}

// Extend implements driver.Store.
func (f *Flaky) Extend(ctx context.Context, c driver.Claim) error {
	return f.after(f.Store.Extend(ctx, c))
}

// Complete implements driver.Store.
func (f *Flaky) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return f.after(f.Store.Complete(ctx, c, outcome))
}

// Fail implements driver.Store.
func (f *Flaky) Fail(ctx context.Context, c driver.Claim, failure driver.Failure) error {
	return f.after(f.Store.Fail(ctx, c, failure))
}

// NewFlaky returns a store that loses this share of the answers of another one.
func NewFlaky(s driver.Store, seed int64, loss float64) *Flaky {
	return &Flaky{Store: s, random: rand.New(rand.NewSource(seed)), loss: loss}
}

// Lost returns how many answers it has lost.
func (f *Flaky) Lost() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}
