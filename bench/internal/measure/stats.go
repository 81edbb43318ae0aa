package measure

import "slices"

// rounds are the values of each figure, by its name, one for each round. Values of two ways at the same place are of the same
// round, so they can be divided.
type rounds map[string][]float64

// inTurns measures n rounds of so many ways, and returns the rounds of each way. A round measures every way once, so that
// whatever else the machine does meets all of them. Each round begins with another way, so that none is always the first or
// always the last.
func inTurns(n, ways int, measure func(way int) (map[string]float64, error)) ([]rounds, error) {
	found := make([]rounds, ways)
	for i := range found {
		found[i] = rounds{}
	}
	step := max(1, ways/n) // the first ways of n rounds are spread over all
	for round := range n {
		for i := range ways {
			way := (round*step + i) % ways
			figures, err := measure(way)
			if err != nil {
				return nil, err
			}
			for name, value := range figures {
				found[way][name] = append(found[way][name], value)
			}
		}
	}
	return found, nil
}

// medians returns the median of each figure. A round in which the machine was busy with something else does not move it far.
func (r rounds) medians() map[string]float64 {
	all := map[string]float64{}
	for figure, values := range r {
		all[figure] = median(values)
	}
	return all
}

// ratios divides a figure of each round by that of another way in the same round. A machine that is slow for a while changes both
// alike, so these ratios differ less from round to round than the figures do.
func ratios(own, beside rounds, figure string) (all []float64) {
	for i := range min(len(own[figure]), len(beside[figure])) {
		all = append(all, own[figure][i]/beside[figure][i])
	}
	return all
}

// median returns the value in the middle of all, 0 of none.
func median(all []float64) float64 { return quantile(all, 0.5) }

// quantile returns the value that a share q of all does not exceed, 0 of none.
func quantile(all []float64, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
