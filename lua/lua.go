// Package lua holds the state machine of a key as scripts for Redis 5.0 and later and Valkey: one script a verb,
// one record a call, KEYS and ARGV only. Each file opens with its KEYS, ARGV, returns and the edges it carries;
// record.lua describes the string that a key holds and stands where a script names it.
package lua

import (
	_ "embed"
	"strings"
)

//go:embed record.lua
var record string

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

// The scripts, ready to be loaded.
var (
	Begin    = withRecord(begin)
	Extend   = withRecord(extend)
	Complete = withRecord(complete)
	Fail     = withRecord(fail)
	Step     = withRecord(step)
	Reopen   = withRecord(reopen)
	Steps    = withRecord(steps)
	Command  = withRecord(command)
)

// withRecord puts record.lua where a script names it.
func withRecord(script string) string { return strings.Replace(script, "-- [record.lua]\n", record, 1) }
