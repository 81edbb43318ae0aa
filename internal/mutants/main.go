// Command mutants makes small mistakes in the library, one at a time, and reports those that no test notices. `make mutants`
// runs it. It is not part of `make test`, since it takes hours. ONLY, a regular expression, chooses mutants by their IDs.
//
// The mistakes in Go are compiled into the packages all at once, each behind a condition, and one environment variable enables
// one of them. So each test package is built once. Before, each test runs alone and notes which mistakes it reaches, so that
// for each mistake only the tests run that can notice it, also those of other packages. The sources are not changed: the
// compiler reads the changed files from a temporary directory (go build -overlay).
//
// A mistake that changes nothing is listed in equivalent.txt, with the reason.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

//go:embed equivalent.txt
var equivalent string

// A mutant is one mistake.
type mutant struct {
	id     string // file, function, kind and source text; stays the same when other lines of the file change
	file   string
	number int // enables a mistake in Go
	script string
}

// result is what became of a mutant. The numbers are indexes of the counts and texts in tryAll.
type result int

const (
	killed result = iota
	survived
	unreached // no test executes it
)

// main tries the mutants of the chosen languages. Its exit status is 1 if one of them has survived without a reason, or is not
// executed by any test, and 2 if the work could not be done.
func main() {
	only := flag.String("only", "", "try only mutants whose ID matches this regular expression")
	list := flag.Bool("list", false, "print the IDs of the mutants, and run nothing")
	tests := flag.String("tests", "", "use only the packages of tests that match this regular expression")
	language := flag.String("language", "", "go or lua; both if empty")
	flag.Parse()
	reasons, err := readEquivalent(equivalent)
	exitOn(err)
	testsChosen = regexp.MustCompile(*tests)
	chosen := regexp.MustCompile(*only)
	failed := false
	for _, l := range languages {
		if *language != "" && *language != l.name {
			continue
		}
		s, err := l.newSet()
		exitOn(err)
		if *list {
			for _, m := range s.all() {
				fmt.Println(m.id)
			}
			continue
		}
		failed = tryAll(s, chosen, reasons) || failed // in this order, so that the second language is tried in any case
	}
	if failed {
		os.Exit(1)
	}
}

// languages are what the library is written in.
var languages = []struct {
	name   string
	newSet func() (set, error)
}{{"lua", newLuaSet}, {"go", newGoSet}}

// testsChosen matches the packages of tests to use.
var testsChosen *regexp.Regexp

var (
	verbose  = flag.Bool("v", false, "print the mutants that a test has noticed, too")
	parallel = flag.Int("parallel", 2*runtime.NumCPU(), "how many mutants to try at a time; most tests wait more than they compute")
)

// A set is the mutants of one language. Its try is safe for concurrent use after prepare.
type set interface {
	all() []mutant
	prepare() (cleanup func(), err error)
	try(mutant) result
}

// tryAll tries the chosen mutants and prints what became of them. It reports whether one has survived without a reason.
func tryAll(s set, chosen *regexp.Regexp, reasons map[string]string) (failed bool) {
	cleanup, err := s.prepare()
	exitOn(err)
	defer cleanup()
	counts := map[string]*[3]int{}
	for r := range results(s, untried(s.all(), chosen, reasons)) {
		if counts[r.file] == nil {
			counts[r.file] = new([3]int)
		}
		counts[r.file][r.result]++
		if r.result != killed || *verbose {
			fmt.Println([]string{"killed   ", "survived ", "unreached"}[r.result], r.id)
		}
		failed = failed || r.result != killed
	}
	for _, file := range slices.Sorted(maps.Keys(counts)) {
		c := counts[file]
		fmt.Printf("%-40s %4d killed %4d survived %4d unreached\n", file, c[killed], c[survived], c[unreached])
	}
	return failed
}

// untried returns the mutants that are chosen and have no reason to survive.
func untried(all []mutant, chosen *regexp.Regexp, reasons map[string]string) []mutant {
	return slices.DeleteFunc(all, func(m mutant) bool { return !chosen.MatchString(m.id) || reasons[m.id] != "" })
}

// tried is a mutant and what became of it.
type tried struct {
	mutant
	result
}

// results tries mutants, some at a time, and yields what became of each as soon as that is known. The channel is closed at the
// end. Its reader must read it to the end.
func results(s set, mutants []mutant) <-chan tried {
	results, tokens := make(chan tried), make(chan struct{}, *parallel)
	go func() {
		var wg sync.WaitGroup
		for _, m := range mutants {
			tokens <- struct{}{}
			wg.Go(func() {
				results <- tried{m, s.try(m)}
				<-tokens
			})
		}
		wg.Wait()
		close(results)
	}()
	return results
}

// readEquivalent reads the list of mutants that change nothing. A line is an ID, or the reason for the IDs before it if it
// begins with a space.
func readEquivalent(text string) (reasons map[string]string, err error) {
	reasons = map[string]string{}
	var pending []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case !strings.HasPrefix(line, " "):
			pending = append(pending, line)
		default:
			for _, id := range pending {
				if reasons[id] != "" {
					return nil, fmt.Errorf("equivalent.txt: two reasons for %s", id)
				}
				reasons[id] = strings.TrimSpace(line)
			}
			pending = nil
		}
	}
	if len(pending) > 0 {
		return nil, fmt.Errorf("equivalent.txt: no reason for %s", pending)
	}
	return reasons, nil
}

// numbered makes IDs unique: the second mutant with an ID gets the suffix #2. It changes mutants in place.
func numbered(mutants []mutant) []mutant {
	seen := map[string]int{}
	for i := range mutants {
		id := mutants[i].id
		seen[id]++
		if seen[id] > 1 {
			mutants[i].id = fmt.Sprintf("%s #%d", id, seen[id])
		}
	}
	return mutants
}

// exitOn ends the program with the status 2 if there is an error.
func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
