package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// testPackages are those whose tests can notice a mistake, the quickest ones first.
var testPackages = []*testPackage{
	{path: "core/internal/*"},
	{path: "core/driver"},
	{path: "core/capture"},
	{path: "core/consumer", of: "^core/consumer/"},
	{path: "adapters/client", of: "^adapters/(client|internal/attempts)/"},
	{path: "core", of: "^core/"}, // also those of internal packages without tests of their own
	{path: "core/operator", of: `^core/\w+\.go`},
	{path: "internal/simulation", of: "^core/", skip: ".", runs: []string{"^TestHistoriesKeepThePromises$"}, env: "HISTORIES=2000"},
	{path: "adapters/internal/fiberadapter"},
	{path: "core/redisstore", of: "^core/(redisstore|driver)/", skip: "OnEveryEngine|Cluster|Sentinel|Promoted|Linearizable",
		runs: []string{"^TestAClusterWaitsOnTheNodeOfTheKey$"}},
	{path: "adapters_test", of: "^core/|^adapters/[^c]", skip: "Soak|Process|Redis|TestAdapters|TestFrameworks|Killed|WithoutTTL", runs: []string{
		"^TestAdapters$/^memory$/^http$", "^TestAdapters$/^memory$/^gin$", "^TestAdapters$/^memory$/^echo$", "^TestAdapters$/^memory$/^fiber$",
		"^TestFrameworks$/^http$", "^TestFrameworks$/^gin$", "^TestFrameworks$/^echo$", "^TestFrameworks$/^fiber$"}},
	{path: "adapters_test/bare", of: "^core/capture/|^adapters/(http|gin|echo|fiber|internal)/", skip: "V5"},
	{path: "adapters_test/bare/fiberv3", of: "^adapters/internal/fiberadapter/"},
	{path: "adapters/fiberv3", of: "^adapters/internal/fiberadapter/", skip: "Soak|Process|Suite", runs: []string{"^TestTheSuiteOfAllAdapters$/^once$"}},
}

// testPackage is a package of tests, built with all mutants.
type testPackage struct {
	path   string
	of     string    // the files whose mistakes it is to notice; if empty, those of the same directory
	skip   string    // tests that take long and add nothing
	runs   []string  // patterns of parts of tests; any other test is used whole
	env    string    // a variable for the tests
	once   sync.Once // builds it
	binary string
	traces map[string]trace // what each test does without a mistake
}

// trace says which mutants a test executes, and how long it takes.
type trace struct {
	reach map[int]bool
	took  time.Duration
}

// testTimeout ends a test that never ends although no mutant is enabled.
const testTimeout = 2 * time.Minute

// timeoutOf ends tests that a mistake has made endless. Such a mistake is noticed. took is the time that they need without it.
// The timeout is generous, because other tests run on the machine meanwhile, and a test that is only slow has noticed nothing.
func timeoutOf(took time.Duration) time.Duration { return 10*took + 20*time.Second }

// goSet is the mutants in Go. dir is the temporary directory of prepare, and overlayList the file in it that tells the compiler
// which files to read in place of others.
type goSet struct {
	files       []*goFile
	packages    []*testPackage
	dir         string
	overlayList string
}

// newGoSet finds the mutants of all packages in goDirs. It builds nothing.
func newGoSet() (set, error) {
	s, next := &goSet{}, 0
	for _, pattern := range goDirs {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			for _, path := range sourceFiles(dir) {
				f, err := readGoFile(path, &next)
				if err != nil {
					return nil, err
				}
				s.files = append(s.files, f)
			}
		}
	}
	return s, nil
}

// all returns the mutants of all files, with IDs that differ.
func (s *goSet) all() (all []mutant) {
	for _, f := range s.files {
		all = append(all, f.mutants...)
	}
	return numbered(all)
}

// prepare writes the changed files. The tests are built later, each package when the first mutant needs it, so a choice of
// mutants builds only what it uses.
func (s *goSet) prepare() (func(), error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	s.dir = dir
	for _, pattern := range testPackages { // A pattern may match many packages, each of which is built and traced on its own.
		for _, path := range mustGlob(pattern.path) {
			if len(mustGlob(path+"/*_test.go")) > 0 {
				s.packages = append(s.packages, &testPackage{path: path, of: pattern.of, skip: pattern.skip, runs: pattern.runs, env: pattern.env})
			}
		}
	}
	s.overlayList, err = s.overlay()
	return func() { os.RemoveAll(dir) }, err
}

// isFor reports whether the tests of p are to notice mistakes in file.
func (p *testPackage) isFor(file string) bool {
	if p.of == "" {
		return filepath.Dir(file) == p.path
	}
	return regexp.MustCompile(p.of).MatchString(file)
}

// build builds the tests of p with all mutants, and runs each test alone.
func (s *goSet) build(p *testPackage) error {
	p.binary = filepath.Join(s.dir, strings.ReplaceAll(p.path, "/", "_")+".test")
	if err := buildTests(p.path, p.binary, s.overlayList); err != nil {
		return err
	}
	return p.trace(s.dir)
}

// buildTests builds the tests of a package, in its own module if it is in one. Vet is off, since mutants are wrong on purpose.
func buildTests(path, binary, overlay string) error {
	out, err := exec.Command("go", "test", "-C", path, "-c", "-vet=off", "-overlay", overlay, "-o", binary, ".").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", path, err, out)
	}
	return nil
}

// overlay writes the changed files, and the list of them for the compiler. Files of one package replace the same switch file, the
// last of them for good; all are equal.
func (s *goSet) overlay() (list string, err error) {
	replace := map[string]string{}
	all := s.all()
	for i, f := range s.files {
		changed := filepath.Join(s.dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(changed, f.mutated(), 0o600); err != nil {
			return "", err
		}
		replace[absolute(f.path)] = changed
		file, err := parser.ParseFile(token.NewFileSet(), "", f.source, parser.PackageClauseOnly)
		if err != nil {
			return "", err
		}
		enabling := filepath.Join(s.dir, fmt.Sprintf("switch%d.go", i))
		text := fmt.Sprintf(switchFile, file.Name.Name, len(all)+1) // one more, because the numbers begin with 1
		if err := os.WriteFile(enabling, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[absolute(filepath.Join(filepath.Dir(f.path), "zz_mutants.go"))] = enabling
	}
	return writeOverlay(s.dir, replace)
}

// writeOverlay writes the list of replaced files.
func writeOverlay(dir string, replace map[string]string) (list string, err error) {
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, text, 0o600)
}

// absolute returns the absolute path of a file, which an overlay demands.
func absolute(path string) string {
	path, err := filepath.Abs(path)
	exitOn(err)
	return path
}

// trace runs each test alone, and notes which mutants it executes. A test that fails without a mistake is not used, because it
// would seem to notice every mistake.
func (p *testPackage) trace(dir string) error {
	list := exec.Command(p.binary, "-test.list", "^Test|^Fuzz|^Example")
	list.Dir = p.path
	out, err := list.Output()
	if err != nil {
		return err
	}
	runs := slices.Clone(p.runs)
	for _, name := range strings.Fields(string(out)) {
		if p.skip == "" || !regexp.MustCompile(p.skip).MatchString(name) {
			runs = append(runs, "^"+name+"$")
		}
	}
	p.traces = map[string]trace{}
	for i, run := range runs {
		began := time.Now()
		file := filepath.Join(dir, fmt.Sprintf("trace%d", i))
		if !passes(p.path, p.binary, run, testTimeout, "MUTANT_TRACE="+file, p.env) {
			fmt.Fprintf(os.Stderr, "not used, because it fails without a mistake: %s %s\n", p.path, run)
			continue
		}
		reach, err := readReach(file)
		if err != nil {
			return err
		}
		p.traces[run] = trace{reach, time.Since(began)}
	}
	return nil
}

// readReach reads the numbers of the mutants that a test has executed, if it has executed any.
func readReach(file string) (map[int]bool, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	reach := map[int]bool{}
	for _, number := range strings.Fields(string(text)) {
		n, _ := strconv.Atoi(number)
		reach[n] = true
	}
	return reach, nil
}

// passes runs tests with environment variables, and reports whether they pass in time. The tests end themselves after the
// timeout; the process is killed 10 seconds later if they cannot. With CI set, a test whose server is missing fails. It would be
// skipped otherwise, and could notice nothing.
func passes(dir, binary, run string, timeout time.Duration, variables ...string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", run, "-test.failfast", "-test.timeout", timeout.String())
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(append(os.Environ(), "CI=true"), variables...), time.Second
	return cmd.Run() == nil
}

// try runs the tests that execute the mutant, in the order of testPackages, until one fails. The first caller that needs a
// package builds it, and the others wait for that.
func (s *goSet) try(m mutant) result {
	reached := false
	for _, p := range s.packages {
		if !p.isFor(m.file) || !testsChosen.MatchString(p.path) {
			continue
		}
		p.once.Do(func() { exitOn(s.build(p)) })
		for _, r := range p.runsOf(m.number) {
			reached = true
			if !passes(p.path, p.binary, r.pattern, timeoutOf(r.took), "MUTANT="+strconv.Itoa(m.number), p.env) {
				return killed
			}
		}
	}
	if reached {
		return survived
	}
	return unreached
}

// testRun is a pattern of tests, and how long they take without a mistake.
type testRun struct {
	pattern string
	took    time.Duration
}

// quick is how long the tests may take that run before all others. They notice most mistakes.
const quick = time.Second

// runsOf returns the tests that execute a mutant: as many of the quickest whole tests as fit into quick, then all other whole
// ones, and then each part of a test.
func (p *testPackage) runsOf(number int) []testRun {
	var whole, parts []testRun
	for _, run := range slices.Sorted(maps.Keys(p.traces)) {
		switch t := p.traces[run]; {
		case !t.reach[number]:
		case strings.Contains(run, "/"):
			parts = append(parts, testRun{run, t.took})
		default:
			whole = append(whole, testRun{run, t.took})
		}
	}
	slices.SortStableFunc(whole, func(a, b testRun) int { return cmp.Compare(a.took, b.took) })
	first, sum := 0, time.Duration(0)
	for first < len(whole) && sum+whole[first].took <= quick {
		sum += whole[first].took
		first++
	}
	return slices.Concat(joined(whole[:first]), joined(whole[first:]), parts)
}

// joined returns one pattern of tests, if there are any, so that these tests share a process.
func joined(runs []testRun) []testRun {
	if len(runs) == 0 {
		return nil
	}
	var patterns []string
	var took time.Duration
	for _, r := range runs {
		patterns = append(patterns, r.pattern)
		took += r.took
	}
	return []testRun{{strings.Join(patterns, "|"), took}}
}
