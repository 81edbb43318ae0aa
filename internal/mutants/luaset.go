package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// luaSet is the mutants in the scripts. A script is read when a test starts, so each mutant is a text of its own and nothing is
// built for it.
type luaSet struct {
	texts   map[string]string // the scripts by path, as they were at the start: a checkout meanwhile changes nothing
	mutants []mutant
	dir     string
	tests   []luaTests
}

// luaTests are tests that run for each mutant, the cheapest ones first: the contract of the stores and the walk of the model, on
// a real server.
type luaTests struct {
	path, run, binary string
	took              time.Duration // without a mistake
}

// A rule makes one kind of mistake in a line of a script.
type rule struct {
	kind        string
	find        *regexp.Regexp
	replacement string
}

// rules make all mistakes in scripts. They match text and know no syntax of Lua, so a mutant may be no valid script. A test that
// runs such a script fails, and the mutant counts as noticed.
var rules = []rule{
	{"other comparison", regexp.MustCompile(`==`), "~="},
	{"other comparison", regexp.MustCompile(`~=`), "=="},
	{"bound", regexp.MustCompile(` < `), " <= "},
	{"bound", regexp.MustCompile(` > `), " >= "},
	{"bound", regexp.MustCompile(` <= `), " < "},
	{"bound", regexp.MustCompile(` >= `), " > "},
	{"and for or", regexp.MustCompile(` or `), " and "},
	{"or for and", regexp.MustCompile(` and `), " or "},
	{"opposite", regexp.MustCompile(`\bif (.*?) then\b`), "if not ($1) then"},
	{"opposite", regexp.MustCompile(`\bnot `), ""},
	{"one more", regexp.MustCompile(`\b\d+\b`), "($0 + 1)"},
	{"minus for plus", regexp.MustCompile(` \+ `), " - "},
	{"plus for minus", regexp.MustCompile(` - `), " + "},
	{"max for min", regexp.MustCompile(`math\.min`), "math.max"},
	{"min for max", regexp.MustCompile(`math\.max`), "math.min"},
	{"call for pcall", regexp.MustCompile(`redis\.pcall`), "redis.call"},
	{"removed", regexp.MustCompile(`^\s*(redis\.p?call\(.*\)|wake\(.*\))( --.*)?$`), ""},
	{"removed", regexp.MustCompile(`\b(then|else) (redis\.p?call\([^)]*\)|note\(\)|notify\(record\)) `), "$1 "},
	{"removed", regexp.MustCompile(`\breturn '\w+' end`), "end"},
	{"another text", regexp.MustCompile(`'([0-9])'`), "'${1}9'"},
	{"another text", regexp.MustCompile(`'([0-9]{2,})'`), "'$1' + 1"},
	{"another result", regexp.MustCompile(`'lost'`), "'ok'"},
	{"another result", regexp.MustCompile(`'ok'`), "'lost'"},
	{"another result", regexp.MustCompile(`'(unreadable|expired|gone)'`), "'lost'"},
	{"without NX", regexp.MustCompile(`, 'NX'`), ""},
	{"without a TTL", regexp.MustCompile(`, 'PX', ARGV\[\d\]`), ""},
}

// newLuaSet finds the mutants of all scripts of the package lua.
func newLuaSet() (set, error) {
	s := &luaSet{texts: map[string]string{}}
	files, err := filepath.Glob("lua/*.lua")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s.texts[file] = string(text)
		s.mutants = append(s.mutants, luaMutants(file, string(text))...)
	}
	numbered(s.mutants)
	return s, nil
}

// luaMutants applies each rule to each line, wherever it matches. Comments are left out. Each mutant has the whole script with
// its mistake.
func luaMutants(file, text string) (mutants []mutant) {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		code, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "--")
		for _, r := range rules {
			for _, match := range r.find.FindAllStringSubmatchIndex(code, -1) {
				old := code[match[0]:match[1]]
				if r.kind == "one more" && inText(code[:match[0]]) {
					continue
				}
				replaced := string(r.find.ExpandString(nil, r.replacement, code, match))
				changed := code[:match[0]] + replaced + code[match[1]:]
				script := strings.Join(lines[:i], "") + changed + "\n" + strings.Join(lines[i+1:], "")
				id := fmt.Sprintf("%s: %s: %s in %s", file, r.kind, strings.TrimSpace(old), strings.TrimSpace(code))
				mutants = append(mutants, mutant{id: id, file: file, script: script})
			}
		}
	}
	return mutants
}

// inText reports whether the end of code is inside of a text or an index of ARGV or KEYS.
func inText(code string) bool {
	return strings.Count(code, "'")%2 == 1 || strings.HasSuffix(code, "ARGV[") || strings.HasSuffix(code, "KEYS[")
}

// all returns the mutants of all scripts.
func (s *luaSet) all() []mutant { return s.mutants }

// embedded matches the declaration of a script in the package lua: the file and the variable.
var embedded = regexp.MustCompile(`//go:embed (\w+\.lua)\nvar (\w+) string`)

// luaReader is added to the package lua, which then reads the scripts when a test starts.
const luaReader = `
func mutantText(name string) string {
	text, err := os.ReadFile(os.Getenv("MUTANT_LUA") + "/" + name)
	if err != nil {
		panic(err)
	}
	return string(text)
}
`

// prepare builds the tests so that they read the scripts from a directory.
func (s *luaSet) prepare() (func(), error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	s.dir = dir
	cleanup := func() { os.RemoveAll(dir) }
	source, err := os.ReadFile("lua/lua.go")
	if err != nil {
		return cleanup, err
	}
	// Without the scripts that it embeds, the package would import embed for nothing; luaReader needs package os.
	changed := embedded.ReplaceAllString(string(source), "var $2 = mutantText(\"$1\")") + luaReader
	changed = strings.Replace(changed, `_ "embed"`, `"os"`, 1)
	file := filepath.Join(dir, "lua.go")
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		return cleanup, err
	}
	overlay, err := writeOverlay(dir, map[string]string{absolute("lua/lua.go"): file})
	if err != nil {
		return cleanup, err
	}
	s.tests = []luaTests{
		{path: "core/redisstore", run: "TestStoreKeepsTheContract$|TestRule9|TestRule10"},
		{path: "core/redisstore", run: "TestRule[1-8]|TestLuaAndMemory|TestSteps|TestADeadMessage|NativeClaim|TestTheAttempts|TestTheEndOfARun"},
		{path: "internal/model", run: "TestTheScriptsAnswerAsTheModelDoesInEverySituation|TestAClockThatJumps"},
		{path: "core/redisstore", run: "TestEveryCall|TestAStep|TestAScan[FG]|TestALook|TestCompleteLeaves"},
	}
	for i := range s.tests {
		t := &s.tests[i]
		t.binary = filepath.Join(dir, filepath.Base(t.path)+".test")
		if err := buildTests(t.path, t.binary, overlay); err != nil {
			return cleanup, err
		}
	}
	return cleanup, s.measure()
}

// measure runs the tests without a mistake, and notes how long they take. A test that fails is an error, because it would seem to
// notice every mistake.
func (s *luaSet) measure() error {
	scripts, err := s.write(mutant{}) // which is of no file, so all scripts are as they were
	if err != nil {
		return err
	}
	for i := range s.tests {
		t, began := &s.tests[i], time.Now()
		if !passes(t.path, t.binary, t.run, testTimeout, "MUTANT_LUA="+scripts) {
			return fmt.Errorf("the tests of the scripts fail without a mistake: %s %s", t.path, t.run)
		}
		t.took = time.Since(began)
	}
	return nil
}

// try runs the tests with the script of the mutant, the cheapest ones first, until one fails.
func (s *luaSet) try(m mutant) result {
	scripts, err := s.write(m)
	exitOn(err)
	for _, t := range s.tests {
		if !passes(t.path, t.binary, t.run, timeoutOf(t.took), "MUTANT_LUA="+scripts) {
			return killed
		}
	}
	return survived
}

// write writes the scripts with the mistake m into a directory of their own.
func (s *luaSet) write(m mutant) (dir string, err error) {
	if dir, err = os.MkdirTemp(s.dir, "scripts"); err != nil {
		return "", err
	}
	for file, text := range s.texts {
		if file == m.file {
			text = m.script
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// mustGlob returns the files of a pattern. A bad pattern is a mistake in this program, and ends it.
func mustGlob(pattern string) []string {
	files, err := filepath.Glob(pattern)
	exitOn(err)
	return files
}
