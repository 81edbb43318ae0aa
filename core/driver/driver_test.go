package driver

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The text form of a name is what operators copy from a log: only what AppendRecordName makes is a name, and each name has one text.
func FuzzRecordName(f *testing.F) {
	for _, text := range []string{
		"",
		"AAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"__________8._-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-",
		"AAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",   // too short
		"AAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", // too long
		"AAAAAAAAAAA-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",  // no dot
		"AAAAAAAAAA=.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",  // padding
		"AAAAAAAAAAB.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",  // bits that belong to no byte
		"AAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA+/",  // the other alphabet
		"AAAAA\nAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", // what the decoder skips
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, ok := ParseRecordName(text)
		if ok {
			assert.Equal(t, text, string(AppendRecordName(nil, name)), "one name has one text")
		}
		copy(name[:], text)
		made := string(AppendRecordName([]byte("log: "), name))
		again, ok := ParseRecordName(strings.TrimPrefix(made, "log: "))
		assert.True(t, ok, made)
		assert.Equal(t, name, again, "one text has one name")
	})
}

func TestOnlyWhatAppendRecordNameMakesIsAName(t *testing.T) {
	t.Parallel()
	const name = "AAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for what, test := range map[string]struct {
		text string
		ok   bool
	}{
		"a name":                              {name, true},
		"a name that is cut":                  {name[:RecordNameLength-1], false},
		"a name with more behind it":          {name + "A", false},
		"no dot":                              {strings.Replace(name, ".", "A", 1), false},
		"another letter in the scope":         {"*" + name[1:], false},
		"another letter in the key":           {name[:RecordNameLength-1] + "*", false},
		"bits of the scope that are of none":  {strings.Replace(name, "A.", "B.", 1), false},
		"a line break, which decoders ignore": {"\n" + name[1:], false},
		"nothing":                             {"", false},
	} {
		_, ok := ParseRecordName(test.text)
		assert.Equal(t, test.ok, ok, what)
	}
}

func TestAFilterSelects(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	claimed := Record{State: Unknown, Name: [32]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, ClaimedAt: now.Add(-time.Minute)}
	stored := Record{State: Completed, Name: claimed.Name}
	scope, other := claimed.Name[:ScopeBytes], []byte{1, 2, 3, 4, 5, 6, 7, 9}
	for what, test := range map[string]struct {
		filter   Filter
		record   Record
		expected bool
	}{
		"every record, without a choice":           {Filter{}, stored, true},
		"no record that is not there":              {Filter{}, Record{State: Absent}, false},
		"not even if somebody asks for it":         {Filter{States: []State{Absent}}, Record{State: Absent}, false},
		"a state":                                  {Filter{States: []State{InProgress, Unknown}}, claimed, true},
		"no other state":                           {Filter{States: []State{InProgress, Unknown}}, stored, false},
		"a scope":                                  {Filter{Scope: scope}, claimed, true},
		"no other scope":                           {Filter{Scope: other}, claimed, false},
		"what is as old as that":                   {Filter{MinAge: time.Minute}, claimed, true},
		"nothing that is younger":                  {Filter{MinAge: time.Minute + 1}, claimed, false},
		"nothing whose age nobody knows":           {Filter{MinAge: 1}, stored, false},
		"each age, if the least is negative":       {Filter{MinAge: -1}, stored, true},
		"a state and a scope, and not the state":   {Filter{States: []State{Unknown}, Scope: scope}, stored, false},
		"a state and a scope, and not the scope":   {Filter{States: []State{Unknown}, Scope: other}, claimed, false},
		"a scope and an age, and not the age":      {Filter{Scope: scope, MinAge: time.Hour}, claimed, false},
		"a state, a scope and an age, all of them": {Filter{[]State{Unknown}, scope, time.Second}, claimed, true},
	} {
		assert.Equal(t, test.expected, test.filter.Selects(&test.record, now), what)
	}
}

func TestARecordIsReleasedIfNothingRanUnderIt(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		record   Record
		expected bool
	}{
		"nothing ran":             {Record{State: Failed, Free: true}, true},
		"a run counts":            {Record{State: Failed, Free: true, Attempt: 1}, false},
		"a failure that is bound": {Record{State: Failed}, false},
		"a claim":                 {Record{State: InProgress, Free: true}, false},
		"no record":               {Record{}, false},
	} {
		assert.Equal(t, test.expected, test.record.IsReleased(), what)
	}
}

func TestAFindingIsALineOfALog(t *testing.T) {
	t.Parallel()
	f := Finding{Setting: "maxmemory-policy", Found: "allkeys-lru", Why: "records vanish", Fix: "set noeviction"}
	assert.Equal(t, "maxmemory-policy is allkeys-lru: records vanish; set noeviction", f.String())
}
