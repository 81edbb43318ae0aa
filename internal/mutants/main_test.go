package main

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryMutantThatIsListedAsEquivalentExists(t *testing.T) {
	t.Chdir("../..")
	ids := map[string]bool{}
	for _, l := range languages {
		s, err := l.newSet()
		require.NoError(t, err)
		for _, m := range s.all() {
			assert.False(t, ids[m.id], "two mutants have the ID %s", m.id)
			ids[m.id] = true
		}
	}
	reasons, err := readEquivalent(equivalent)
	require.NoError(t, err)
	for id := range reasons {
		assert.True(t, ids[id], "equivalent.txt lists %s, and no mutant has this ID", id)
	}
}

func TestTheChangedFilesAreGo(t *testing.T) {
	t.Chdir("../..")
	s, err := newGoSet()
	require.NoError(t, err)
	for _, f := range s.(*goSet).files {
		_, err := parser.ParseFile(token.NewFileSet(), f.path, f.mutated(), parser.SkipObjectResolution)
		assert.NoError(t, err)
	}
}
