package measure

import (
	"context"
	"slices"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
)

// codecs weighs records of many bodies in all forms, beside a lock and a plain JSON result of the same bodies. One body for each
// size would not do, because what it compresses to depends on its random part.
//
// The figures are those of memory, and of_pair: the bytes of a completed record as a share of the bytes of lock and result.
func codecs(b *Bench) (rows []report.Row, err error) {
	forms, err := subject.Forms()
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Insert(slices.Clone(sizes), 1, size{"1 KiB", 1 << 10}) {
		weigh := func(l subject.Layout, f subject.Form) (map[string]float64, error) {
			bodies := subject.NewBodies(uint64(s.bytes)) // the same ones for each form
			return b.weigh(l, b.Plan.Bodies, func() []byte { return f.Encode([32]byte{}, l.Kept(bodies.Next(s.bytes))) })
		}
		pair, err := weigh(subject.Layouts[1], subject.Form{})
		if err != nil {
			return nil, err
		}
		for _, f := range forms {
			own, err := weigh(subject.Layouts[0], f)
			if err != nil {
				return nil, err
			}
			own["of_pair"] = own["completed_bytes"] / pair["completed_bytes"]
			rows = append(rows, report.Row{Name: []string{s.name, f.Name}, Figures: own})
		}
	}
	return rows, b.client.FlushAll(context.Background()).Err()
}
