package main

import (
	"cmp"
	"slices"
)

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

// rotated returns all, beginning with the one at by: in each round another subject is the first.
func rotated[T any](all []T, by int) []T {
	by %= len(all)
	return append(slices.Clone(all[by:]), all[:by]...)
}
