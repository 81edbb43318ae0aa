package bare

import (
	"maps"
	"slices"
)

// namesOf returns the names of the handlers.
func namesOf(all []handler) (names []string) {
	for _, h := range all {
		names = append(names, h.name)
	}
	return names
}

// sortedKeys returns the names of the chains in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
