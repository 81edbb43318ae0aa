package measure

import (
	"cmp"
	"slices"
)

// round is what one round of load found.
type round struct {
	perSecond float64
	p50, p99  float64 // latency, in µs
	cpu       float64 // of this process, in µs per request
	serverCPU float64 // of the server, in µs per request
}

// The figures of a round.
func perSecond(r round) float64 { return r.perSecond }
func p50(r round) float64       { return r.p50 }
func p99(r round) float64       { return r.p99 }
func ownCPU(r round) float64    { return r.cpu }
func serverCPU(r round) float64 { return r.serverCPU }
func allCPU(r round) float64    { return r.cpu + r.serverCPU }

// figures returns the medians of rounds.
func figures(rounds []round) map[string]float64 {
	return map[string]float64{
		"per_second": median(each(rounds, perSecond)), "p50_us": median(each(rounds, p50)), "p99_us": median(each(rounds, p99)),
		"cpu_us": median(each(rounds, ownCPU)), "server_cpu_us": median(each(rounds, serverCPU)),
	}
}

// ratios divides a figure of each round by that of another subject in the same round.
func ratios(own, beside []round, figure func(round) float64) (all []float64) {
	for i := range min(len(own), len(beside)) {
		all = append(all, figure(own[i])/figure(beside[i]))
	}
	return all
}

// each returns one figure of every round.
func each[R, T any](rounds []R, figure func(R) T) (all []T) {
	for _, r := range rounds {
		all = append(all, figure(r))
	}
	return all
}

// median returns the value in the middle of all, 0 of none.
func median[T cmp.Ordered](all []T) (middle T) { return quantile(all, 0.5) }

// quantile returns the value that a share q of all does not exceed, 0 of none.
func quantile[T cmp.Ordered](all []T, q float64) (value T) {
	if len(all) == 0 {
		return value
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// rotated returns all, beginning with the one at by, so that in each round another subject is the first.
func rotated[T any](all []T, by int) []T {
	by %= len(all)
	return append(slices.Clone(all[by:]), all[:by]...)
}
