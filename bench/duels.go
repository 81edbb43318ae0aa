package main

import (
	"fmt"
	"slices"
)

// duel is two subjects of a framework in turn, so that both meet the same machine.
type duel struct {
	framework   string
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
	{onRedis, yardstick, 0, rateAim},
	{autoPipelined, yardstick, 0, 0},
	{batched, yardstick, 0, batchAim},
	{byTable, bare, 1, 0},
	{locally, bare, 1, rateAim},
}

// measureDuels fights them.
func measureDuels(b *bench) error {
	shorter := *b
	shorter.plan.slice = b.plan.bout
	for _, f := range frameworks {
		for _, each := range duels {
			d := duel{framework: f.name, own: b.ranked(f.name, each.own), beside: b.ranked(f.name, each.beside), workload: workloads[each.workload], aim: each.aim}
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

// ranked returns the subject of a framework with a rank, nil without one.
func (b *bench) ranked(framework string, want rank) *subject {
	i := slices.IndexFunc(b.subjects, func(s *subject) bool { return s.framework == framework && s.rank == want })
	if i < 0 {
		return nil
	}
	return b.subjects[i]
}

// fight plays one bout. Who is first changes.
func (d *duel) fight(b *bench, n int) (err error) {
	var one bout
	own := func() {
		if err == nil {
			one.own, err = b.load(d.own, d.workload)
		}
	}
	if n%2 == 0 {
		own()
	}
	if err == nil {
		one.beside, err = b.load(d.beside, d.workload)
	}
	if n%2 == 1 {
		own()
	}
	d.bouts = append(d.bouts, one)
	return err
}

func (o bout) rate() float64 { return o.own.perSecond / o.beside.perSecond }

func (o bout) cpu() float64 {
	return (o.own.cpu + o.own.serverCPU) / (o.beside.cpu + o.beside.serverCPU)
}

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
		t.row(d.framework, d.workload.name, d.own.name, d.beside.name, times(rate),
			times(quantile(rates, 0.25))+" to "+times(quantile(rates, 0.75)), times(median(each(d.bouts, bout.cpu))), verdict)
	}
	return fmt.Sprintf(duelsText, p.bouts, p.bout) + t.String()
}
