package main

import "fmt"

// duel is two subjects of a framework in turn, so that both meet the same machine.
type duel struct {
	own, beside *subject
	workload    workload
	aim         float64 // the share of the other's rate that own should have; 0 for none: it shows what can be had
	bouts       []bout
}

// bout is one round of each.
type bout struct{ own, beside round }

// duels are fought on every framework. What shows what can be had comes before who should have it.
var duels = []struct {
	own, beside rank
	workload    int
	aim         float64
}{
	{byGuard, yardstick, 0, 0},
	{onRedis, yardstick, 0, rateAim},
	{autoPipelined, yardstick, 0, 0},
	{pipedGuard, yardstick, 0, 0},
	{batched, yardstick, 0, batchAim},
	{byTable, bare, 1, 0},
	{byShelf, bare, 1, 0},
	{locally, bare, 1, rateAim},
}

// measureDuels fights them.
func measureDuels(b *bench) error {
	shorter := *b
	shorter.plan.slice = b.plan.bout
	for _, f := range frameworks {
		for _, pair := range duels {
			d := duel{find(b.subjects, f.name, pair.own), find(b.subjects, f.name, pair.beside), workloads[pair.workload], pair.aim, nil}
			if d.own == nil || d.beside == nil {
				continue
			}
			for n := range b.plan.bouts {
				if err := d.fight(&shorter, n); err != nil {
					return fmt.Errorf("%s, %s beside %s: %w", f.name, d.own.name, d.beside.name, err)
				}
			}
			b.results.duels = append(b.results.duels, d)
		}
	}
	return nil
}

// fight plays one bout. Who is first changes.
func (d *duel) fight(b *bench, n int) (err error) {
	var rounds [2]round
	for i := range rounds {
		who := (n + i) % 2
		if rounds[who], err = b.load([]*subject{d.own, d.beside}[who], d.workload); err != nil {
			return err
		}
	}
	d.bouts = append(d.bouts, bout{rounds[0], rounds[1]})
	return nil
}

func (o bout) rate() float64 { return o.own.perSecond / o.beside.perSecond }
func (o bout) cpu() float64  { return o.own.cost() / o.beside.cost() }

func (r *results) duelTable(p *plan) string {
	if r.duels == nil {
		return ""
	}
	t := newTable("framework", "requests", "subject", "beside", "rate", "half of the rounds", "CPU", "rate wanted")
	best := "" // what the last one without an aim had
	for _, d := range r.duels {
		rates := each(d.bouts, bout.rate)
		rate := median(rates)
		verdict := "what can be had"
		switch {
		case d.aim == 0:
			best = fmt.Sprintf("; %s had %s", d.own.name, times(rate))
		case rate >= d.aim:
			verdict, best = fmt.Sprintf("%s: kept", times(d.aim)), ""
		default:
			verdict, best = fmt.Sprintf("%s: **not kept**%s", times(d.aim), best), ""
		}
		t.row(d.own.framework, d.workload.name, d.own.name, d.beside.name, times(rate),
			times(quantile(rates, 0.25))+" to "+times(quantile(rates, 0.75)), times(median(each(d.bouts, bout.cpu))), verdict)
	}
	return fmt.Sprintf(duelsText, p.bouts, p.bout) + t.String()
}
