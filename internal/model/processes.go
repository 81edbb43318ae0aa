package model

import (
	"context"
	"sync/atomic"

	"github.com/go-idem/idem/core/driver"
)

// Processes is one store as several processes use it: each call is that of the next process, in turn. It has no abilities besides
// those of a driver.Store.
type Processes struct {
	all  []driver.Store
	next atomic.Int64
}

// NewProcesses returns the store that these stores are together. They must keep their records in the same place. There must be at
// least one.
func NewProcesses(all ...driver.Store) *Processes { return &Processes{all: all} }

// turn returns the store of the process that makes the next call.
func (p *Processes) turn() driver.Store { return p.all[int(p.next.Add(1))%len(p.all)] }

// Begin implements driver.Store.
func (p *Processes) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	return p.turn().Begin(ctx, c)
}

// Extend implements driver.Store.
func (p *Processes) Extend(ctx context.Context, c driver.Claim) error {
	return p.turn().Extend(ctx, c)
}

// Complete implements driver.Store.
func (p *Processes) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return p.turn().Complete(ctx, c, outcome)
}

// Fail implements driver.Store.
func (p *Processes) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	return p.turn().Fail(ctx, c, f)
}
