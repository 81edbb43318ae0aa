package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
)

const (
	memoryHorizon = 24 * time.Hour // CheckGrowth reports memory that ends earlier
	leastGrowth   = 64 << 10       // in bytes; a smaller growth between two samples can be anything
)

// CheckGrowth reads how much data the servers have, waits, and reads it again. It returns a finding for each server whose
// maxmemory is reached within a day if its data grows on like this, or is reached now: the data of a full server grows no more. A
// server without a maxmemory has none. After the retention of the first records the growth ends by itself, so a finding of a new
// store may be no problem: compare it with the memory that is planned.
func CheckGrowth(ctx context.Context, client redis.UniversalClient, wait time.Duration) ([]driver.Finding, error) {
	first, err := readMemory(ctx, client)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(wait):
	}
	second, err := readMemory(ctx, client)
	if err != nil {
		return nil, err
	}
	var findings []driver.Finding
	for _, addr := range slices.Sorted(maps.Keys(second)) {
		before, ok := first[addr]
		if !ok { // it has come meanwhile, so its growth is not known
			before = second[addr]
		}
		findings = append(findings, second[addr].check(addr, before)...)
	}
	return findings, nil
}

// memory is how much of its memory a server uses. used counts all memory, which maxmemory limits; data leaves out buffers, so
// that a burst of clients is no growth.
type memory struct {
	readAt          time.Time
	used, max, data int
}

// readMemory returns the memory of each server that accepts writes and has a limit, by address.
func readMemory(ctx context.Context, client redis.UniversalClient) (map[string]memory, error) {
	found := map[string]memory{}
	read := func(ctx context.Context, node *redis.Client) error {
		info, err := readInfo(ctx, node)
		if err != nil {
			return err
		}
		m := memory{readAt: time.Now()}
		for field, value := range map[string]*int{"used_memory": &m.used, "maxmemory": &m.max, "used_memory_dataset": &m.data} {
			*value, _ = strconv.Atoi(info[field])
		}
		if m.max > 0 {
			found[node.Options().Addr] = m
		}
		return nil
	}
	switch c := client.(type) {
	case *redis.ClusterClient:
		return found, c.ForEachMaster(ctx, serialized(read))
	case *redis.Client:
		return found, read(ctx, c)
	}
	return found, nil
}

// check returns a finding if the memory has ended or ends soon. The rest is divided by the growth of the data, as if it went on
// evenly.
func (m memory) check(addr string, before memory) []driver.Finding {
	rest, growth, took := m.max-m.used, m.data-before.data, m.readAt.Sub(before.readAt)
	var why string
	switch {
	case rest < leastGrowth:
		why = "it has ended, and every claim is refused"
	case growth < leastGrowth:
		return nil
	default:
		left := float64(took) * float64(rest) / float64(growth) // in ns, and maybe more than a time.Duration can hold
		if left > float64(memoryHorizon) {
			return nil
		}
		why = fmt.Sprintf("it ends in %v at the growth of the last %v, and then every claim is refused",
			time.Duration(left).Round(time.Minute), took.Round(time.Second))
	}
	return []driver.Finding{{
		Setting: "maxmemory of " + addr, Found: fmt.Sprintf("%d bytes, of which %d are used", m.max, m.used), Why: why,
		Fix: "compare it with idem plan, and give the server more memory or the records a shorter Keep.Retention",
	}}
}
