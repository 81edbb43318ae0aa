package main

import "fmt"

const (
	rateAim  = 0.9 // the share of the yardstick's rate, and with local replays of the bare handler's, that a request should have
	batchAim = 1.3 // the share of the yardstick's rate that it should have in batches
)

// costTables takes the CPU of a request apart, so that it can be seen what would have to be cheaper.
func (b *bench) costTables() string {
	fresh, replays := b.results.loads[workloads[0].name], b.results.loads[workloads[1].name]
	calls := newTable("framework", "bare handler", "engine and adapter", "their calls of redisstore", "two raw calls", "sum",
		"of the raw calls' sum", fmt.Sprintf("%.1f× would leave engine and adapter", rateAim))
	batches := newTable("framework", "handler, engine and adapter", "their calls in batches", "sum", "of the raw calls' sum",
		fmt.Sprintf("%.1f× would leave the calls", batchAim))
	local := newTable("framework", "bare handler", "a local replay adds", "a table by hand adds", "a guard by hand on a table adds", fmt.Sprintf("%.1f× would leave it", rateAim))
	for _, f := range frameworks {
		handler, engine, library, raw := cost(fresh, f.name, bare), cost(fresh, f.name, onMemory), cost(fresh, f.name, onRedis), cost(fresh, f.name, yardstick)
		if handler*engine*library*raw == 0 {
			continue
		}
		calls.row(f.name, number(handler), number(engine-handler), number(library-engine), number(raw-handler), number(library),
			times(costRatio(fresh, f.name, onRedis)), number(raw/rateAim-raw))
		together := cost(fresh, f.name, batched)
		batches.row(f.name, number(engine), number(together-engine), number(together), times(costRatio(fresh, f.name, batched)), number(raw/batchAim-engine))
		handler = cost(replays, f.name, bare)
		local.row(f.name, number(handler), number(cost(replays, f.name, locally)-handler), number(cost(replays, f.name, byTable)-handler),
			number(cost(replays, f.name, byShelf)-handler), number(handler/rateAim-handler))
	}
	return costsText + calls.String() + fmt.Sprintf(batchCostsText, batchAim) + batches.String() + localCostsText + local.String()
}

// cost is the median of what a request to the ranked subject of a framework costs.
func cost(rounds []round, framework string, r rank) float64 {
	return median(each(of(rounds, ranked(rounds, framework, r)), round.cost))
}

// cost is the CPU of a request, in both processes, in µs.
func (r round) cost() float64 { return r.cpu + r.serverCPU }

// costRatio is the CPU of the ranked subject beside that of two raw calls, as the median of the rounds.
func costRatio(rounds []round, framework string, r rank) float64 {
	own, raw := of(rounds, ranked(rounds, framework, r)), of(rounds, ranked(rounds, framework, yardstick))
	var all []float64
	for i := range min(len(own), len(raw)) {
		all = append(all, own[i].cost()/raw[i].cost())
	}
	return median(all)
}
