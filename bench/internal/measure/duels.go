package measure

import (
	"fmt"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
)

// duel is two subjects of a framework in turn, so that both meet the same machine.
type duel struct {
	own, beside *subject.Subject
	workload    workload
	rounds      [2][]round // of own and of beside
}

// pairings are measured on every framework that has both subjects.
var pairings = []struct {
	own, beside string
	workload    workload
}{
	{subject.ByHand, subject.Raw, allNew},
	{subject.Redis, subject.Raw, allNew},
	{subject.AutoHand, subject.Raw, allNew},
	{subject.Batched, subject.Raw, allNew},
	{subject.Redis, subject.Raw, allReplays},
	{subject.Local, subject.Bare, allReplays},
}

// duels measures all pairings, each with all its bouts before the next one, so that the two subjects are neighbours in time.
func duels(b *Bench) (rows []report.Row, err error) {
	for _, f := range subject.Frameworks {
		for _, p := range pairings {
			d := duel{own: b.find(f.Name, p.own), beside: b.find(f.Name, p.beside), workload: p.workload}
			if d.own == nil {
				continue // there is no guard by hand on this framework
			}
			for n := range b.Plan.Bouts {
				if err := d.bout(b, n); err != nil {
					return nil, fmt.Errorf("%s, %s beside %s: %w", f.Name, p.own, p.beside, err)
				}
			}
			rows = append(rows, d.row())
		}
	}
	return rows, nil
}

// bout loads both subjects. The one that is first changes from bout to bout.
func (d *duel) bout(b *Bench, n int) error {
	for i := range d.rounds {
		at := (n + i) % len(d.rounds)
		r, err := b.load([]*subject.Subject{d.own, d.beside}[at], d.workload, b.Plan.Bout)
		if err != nil {
			return err
		}
		d.rounds[at] = append(d.rounds[at], r)
	}
	return nil
}

// row returns medians of the ratios of neighbours. Half of the rates lie between low and high.
func (d *duel) row() report.Row {
	rates, cpu := ratios(d.rounds[0], d.rounds[1], perSecond), ratios(d.rounds[0], d.rounds[1], allCPU)
	return report.Row{
		Name: []string{d.own.Framework, d.workload.name, d.own.Name, d.beside.Name},
		Figures: map[string]float64{
			"rate": median(rates), "rate_low": quantile(rates, 0.25), "rate_high": quantile(rates, 0.75), "cpu": median(cpu),
		},
	}
}
