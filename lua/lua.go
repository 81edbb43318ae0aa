// Package lua holds the state machine of a record as scripts for Redis 5.0 and later, and for Valkey. There is one script for
// each call of a store, and each changes one record. A file begins with its KEYS and ARGV, what it returns, and how the state
// changes. record.lua describes the record; results.lua describes the results of steps. Scripts include these two by name.
package lua

import (
	_ "embed"
	"strings"
)

//go:embed record.lua
var record string

//go:embed results.lua
var results string

//go:embed begin.lua
var begin string

//go:embed extend.lua
var extend string

//go:embed complete.lua
var complete string

//go:embed fail.lua
var fail string

//go:embed step.lua
var step string

//go:embed reopen.lua
var reopen string

//go:embed steps.lua
var steps string

//go:embed command.lua
var command string

//go:embed look.lua
var look string

//go:embed forget.lua
var forget string

// The whole texts of the scripts, for EVAL.
var (
	Begin    = withIncludes(begin)
	Extend   = withIncludes(extend)
	Complete = withIncludes(complete)
	Fail     = withIncludes(fail)
	Step     = withIncludes(step)
	Reopen   = withIncludes(reopen)
	Steps    = withIncludes(steps)
	Command  = withIncludes(command)
	Look     = withIncludes(look)
	Forget   = withIncludes(forget)
)

// withIncludes inserts record.lua and results.lua into a script where comments name them.
func withIncludes(script string) string {
	return strings.NewReplacer("-- [record.lua]\n", record, "-- [results.lua]\n", results).Replace(script)
}
