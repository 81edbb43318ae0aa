package measure

import (
	"os"
	"path/filepath"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
)

// pairings are measured on every framework that has both subjects. Each subject stands beside the least that it could cost: the
// two script calls where it calls Redis, and the bare handler where it does not. The guard by hand stands there, too, and says
// how much of the difference any guard takes.
var pairings = []struct {
	own, beside string
	workload    workload
}{
	{subject.ByHand, subject.Raw, allNew},
	{subject.Redis, subject.Raw, allNew},
	{subject.AutoHand, subject.Raw, allNew},
	{subject.Batched, subject.Raw, allNew},
	{subject.Redis, subject.Raw, allReplays},
	{subject.Redis, subject.FiberOnRedis, allReplays},
	{subject.Batched, subject.FiberOnRedis, allReplays},
	{subject.Local, subject.Bare, allReplays},
}

// duels measures all pairings, each with all its bouts before the next one, so that the two subjects are neighbours in time.
// loads has the same subjects, but a minute lies between the first and the last of a round. README.md therefore quotes duels for
// the CPU that this library adds.
//
// The figures are ratios: of the rates, with the range in which half of them lie, and of the CPU time of client, service and
// Redis.
func duels(b *Bench) (rows []report.Row, err error) {
	for _, f := range subject.Frameworks {
		for _, p := range pairings {
			own, beside := b.find(f.Name, p.own), b.find(f.Name, p.beside)
			if own < 0 || beside < 0 {
				continue // only some frameworks have a guard by hand, and only Fiber has Fiber's middleware
			}
			row, err := b.duel(own, beside, p.workload)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// duel loads two subjects in turns, and returns medians of the ratios of neighbours. Half of the rates lie between low and high.
func (b *Bench) duel(own, beside int, w workload) (row report.Row, err error) {
	subjects := []*subject.Subject{b.subjects[own], b.subjects[beside]}
	found, err := inTurns(b.Plan.Bouts, 2, func(i int) (map[string]float64, error) {
		figures, err := b.load(subjects[i], w, b.Plan.Bout)
		if err == nil {
			figures["all_cpu_us"] = figures["cpu_us"] + figures["server_cpu_us"]
		}
		return figures, err
	})
	if err != nil {
		return row, err
	}
	rates, cpu := ratios(found[0], found[1], "per_second"), ratios(found[0], found[1], "all_cpu_us")
	return report.Row{
		Name: []string{subjects[0].Framework, w.name, subjects[0].Name, subjects[1].Name},
		Figures: map[string]float64{
			"rate": median(rates), "rate_low": quantile(rates, 0.25), "rate_high": quantile(rates, 0.75), "cpu": median(cpu),
		},
	}, nil
}

// newer measures the pairings with new keys on other servers, those of MORE_SERVERS: where a server can compare and set, outcomes
// need no script either, and the two raw script calls are what they are everywhere. A row has the name of the server first.
func newer(b *Bench) (rows []report.Row, err error) {
	usual := os.Getenv("REDIS_SERVER")
	defer func() { _ = os.Setenv("REDIS_SERVER", usual) }()
	for _, binary := range filepath.SplitList(os.Getenv("MORE_SERVERS")) {
		_ = os.Setenv("REDIS_SERVER", binary)
		there, err := New(b.tb, b.Plan)
		if err != nil {
			return nil, err
		}
		for _, f := range subject.Frameworks {
			for _, own := range []string{subject.Redis, subject.Batched} {
				row, err := there.duel(there.find(f.Name, own), there.find(f.Name, subject.Raw), allNew)
				if err != nil {
					return nil, err
				}
				row.Name = append([]string{report.ServerName(there.ServerInfo())}, row.Name...)
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}
