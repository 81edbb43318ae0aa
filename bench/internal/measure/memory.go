package measure

import (
	"context"
	"fmt"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
)

// memory weighs a record of each layout with each size of a response. One record of each is enough, because all layouts keep the
// same body.
//
// The figures are the bytes of a record while its request runs, and afterwards.
func memory(b *Bench) (rows []report.Row, err error) {
	for _, s := range sizes {
		for _, l := range subject.Layouts {
			figures, err := b.weigh(l, 1, func() []byte { return l.Kept(subject.Body(s.bytes)) })
			if err != nil {
				return nil, err
			}
			rows = append(rows, report.Row{Name: []string{s.name, l.Name}, Figures: figures})
		}
	}
	return rows, nil
}

// keyName returns the key of record i. It has the length of a real one, because the server keeps the key as well.
func keyName(i int) string { return fmt.Sprintf("%044d", i) }

// weigh returns the average bytes of n records on an empty server, while their requests run and afterwards. kept returns what the
// next record keeps of its response.
func (b *Bench) weigh(l subject.Layout, n int, kept func() []byte) (map[string]float64, error) {
	ctx := context.Background()
	if err := b.client.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	for i := range n {
		l.Begin(ctx, b.client, keyName(i))
	}
	running := b.meanWeight(l, n)
	for i := range n {
		l.Complete(ctx, b.client, keyName(i), kept())
	}
	return map[string]float64{"running_bytes": running, "completed_bytes": b.meanWeight(l, n)}, nil
}

// meanWeight is what one of the first n records takes on average: all its keys, by MEMORY USAGE. That includes the key, its
// value, and what the allocator adds to fill a size class. It leaves out the hash tables of the server, which depend on all its
// keys.
func (b *Bench) meanWeight(l subject.Layout, n int) float64 {
	var sum int64
	for i := range n {
		for _, key := range l.Keys(keyName(i)) {
			sum += b.client.MemoryUsage(context.Background(), key, 0).Val() // a key that is not there weighs nothing
		}
	}
	return float64(sum) / float64(n)
}
