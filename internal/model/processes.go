package model

import (
	"context"
	"sync/atomic"

	"github.com/go-idem/idem/core/driver"
)

// Processes is one store as several processes use it, which keep their records in the same place: each call is that of the process
// whose store the function returns for the claim. It has no abilities besides those of a driver.Store.
type Processes func(c driver.Claim) driver.Store

// InTurn returns the Processes whose calls are those of one store after the other.
func InTurn(all ...driver.Store) Processes {
	var next atomic.Int64
	return func(driver.Claim) driver.Store { return all[int(next.Add(1))%len(all)] }
}

// Begin implements driver.Store.
func (p Processes) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	return p(c).Begin(ctx, c)
}

// Extend implements driver.Store.
func (p Processes) Extend(ctx context.Context, c driver.Claim) error {
	return p(c).Extend(ctx, c)
}

// Complete implements driver.Store.
func (p Processes) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return p(c).Complete(ctx, c, outcome)
}

// Fail implements driver.Store.
func (p Processes) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	return p(c).Fail(ctx, c, f)
}
