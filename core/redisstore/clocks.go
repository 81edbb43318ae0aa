package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
)

// clocks has the differences between the clock of this process and those of the masters of a Cluster. A slot that moves takes the
// ends of leases, and fences, to the clock of another master.
type clocks []clock

// clock is how far the clock of a server is ahead of the clock of this process: between these bounds, since a call takes time.
type clock struct {
	addr        string
	least, most time.Duration
}

// read adds the clock of a master.
func (all *clocks) read(ctx context.Context, master *redis.Client) error {
	before := time.Now()
	there, err := master.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("idem: TIME of %s: %w", master.Options().Addr, err)
	}
	*all = append(*all, clock{master.Options().Addr, time.Until(there), there.Sub(before)})
	return nil
}

// check returns a finding for the two masters whose clocks differ most, if that is too much. The bounds of the two are
// compared so that the time of a call never counts as a difference: the finding says by how much they differ at least.
func (all clocks) check() []driver.Finding {
	if len(all) == 0 {
		return nil
	}
	first, last := all[0], all[0]
	for _, c := range all {
		if c.most < first.most {
			first = c
		}
		if c.least > last.least {
			last = c
		}
	}
	skew := last.least - first.most
	if skew < maxClockSkew {
		return nil
	}
	return []driver.Finding{{
		Setting: "clock of " + last.addr, Found: skew.Round(time.Millisecond).String() + " ahead of " + first.addr,
		Why: "when a slot moves to the other master, its leases and fences are so much shorter or longer",
		Fix: "run NTP on all servers",
	}}
}
