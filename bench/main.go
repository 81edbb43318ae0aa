// Command bench measures this library beside what a user would pick instead, on a redis-server that it starts itself, and
// writes docs/PERFORMANCE.md with its plot.
//
//	$ go -C bench run .               # about 48 minutes, and 4 GB for 10 million keys
//	$ go -C bench run . -short        # about 4
//	$ go -C bench run . -only allocations,scripts   # and leave the rest of the report as it is
//
// Client, handlers and middleware share one process, the same for every subject; redis-server is a process of its own.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/internal/redistest"
)

// plan says how much is measured.
type plan struct {
	rounds   int           // of every subject with every workload
	bouts    int           // of each duel
	bout     time.Duration // of load per subject
	slice    time.Duration // of load in a round
	crowds   int           // keys per subject and round that a crowd asks for
	requests int           // of which allocations are counted
	calls    int           // of each script per round
	scripts  int           // rounds of scripts
	pairs    time.Duration // of load per client, concurrency and round
	clients  int           // rounds of clients
	keys     int           // live in the fullest server
	answers  int           // kept in each form to weigh them
	records  int           // kept to weigh them
	weight   int           // bytes of records at most
	profile  time.Duration // of load under the profiler
}

var (
	full = plan{
		rounds: 9, bouts: 25, bout: 500 * time.Millisecond, slice: 700 * time.Millisecond, crowds: 3, requests: 20_000, calls: 2000, scripts: 15,
		pairs: 700 * time.Millisecond, clients: 15, keys: 10_000_000, answers: 1000, records: 200_000, weight: 2 << 30, profile: 10 * time.Second,
	}
	short = plan{
		rounds: 3, bouts: 3, bout: 200 * time.Millisecond, slice: 200 * time.Millisecond, crowds: 1, requests: 2000, calls: 500, scripts: 5,
		pairs: 200 * time.Millisecond, clients: 3, keys: 1_000_000, answers: 100, records: 20_000, weight: 256 << 20, profile: 3 * time.Second,
	}
)

// section is one part of the report.
type section struct {
	name    string
	measure func(*bench) error
}

var sections = []section{
	{"loads", measureLoads},
	{"duels", measureDuels},
	{"crowds", measureCrowds},
	{"allocations", measureAllocations},
	{"scripts", measureScripts},
	{"clients", measureClients},
	{"clusters", measureClusters},
	{"live", measureLive},
	{"memory", measureMemory},
	{"forms", measureForms},
	{"planner", measurePlanner},
	{"profile", measureProfile},
}

// bench is one run: what it works with, and what it has found.
type bench struct {
	tb       testing.TB // ends the servers
	plan     plan
	server   *redistest.Server
	client   *redis.Client
	duplex   *redis.AutoPipeliner // on a client of its own
	subjects []*subject
	profile  string // where the CPU profile goes
	again    string // the sections that -only names
	results  results
}

// results are what the sections have found; nil for a section that did not run.
type results struct {
	loads       map[string][]round // by workload
	duels       []duel
	crowds      []round
	allocations []allocation
	scripts     []scriptTime
	blocks      []block
	clients     []clientSpeed
	clusters    []clusterSpeed
	live        []liveSpeed
	weights     []weight
	forms       []formWeight
	filled      filled
	planned     []planned // without a server
	hottest     []hotLine
}

func main() {
	log.SetFlags(0)
	isShort := flag.Bool("short", false, "measure for 4 minutes, not 48")
	only := flag.String("only", "", "measure only these sections, with commas between, and leave the others as the report has them: "+strings.Join(names(), ", "))
	filter := flag.String("run", "", "measure only subjects whose framework and name match this pattern")
	out := flag.String("out", "../docs", "write PERFORMANCE.md and performance.svg into this directory")
	keys := flag.Int("keys", 0, "live keys in the fullest server (default 10000000, 1000000 with -short)")
	profile := flag.String("cpuprofile", "", "keep the CPU profile of the profile section in this file")
	flag.Parse()
	p := full
	if *isShort {
		p = short
	}
	p.keys = cmp.Or(*keys, p.keys)
	chosen, err := choose(*only)
	if err != nil {
		log.Fatal(err)
	}
	matching, err := regexp.Compile(*filter)
	if err != nil {
		log.Fatal("-run: ", err)
	}
	err = measure(p, chosen, *out, func(b *bench) {
		b.profile, b.again = *profile, *only
		b.subjects = slices.DeleteFunc(b.subjects, func(s *subject) bool { return !matching.MatchString(s.framework + " " + s.name) })
	})
	if err != nil {
		log.Fatal(err)
	}
}

// measure runs sections of a plan on a new bench after change.
func measure(p plan, chosen []section, out string, change func(*bench)) error {
	var tb program
	defer tb.end()
	b, err := newBench(&tb, p)
	if err != nil {
		return err
	}
	change(b)
	return b.run(chosen, out)
}

func names() []string { return each(sections, func(s section) string { return s.name }) }

// choose returns the sections that are named, all for "".
func choose(only string) (chosen []section, err error) {
	wanted := strings.Split(cmp.Or(only, strings.Join(names(), ",")), ",")
	for _, name := range wanted {
		i := slices.Index(names(), name)
		if i < 0 {
			return nil, fmt.Errorf("-only: there is no section %q; the sections are %s", name, strings.Join(names(), ", "))
		}
		chosen = append(chosen, sections[i])
	}
	return chosen, nil
}

// run measures sections and writes the report into a directory.
func (b *bench) run(chosen []section, out string) error {
	for _, s := range chosen {
		began := time.Now()
		if err := s.measure(b); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.name, time.Since(began).Round(time.Second))
	}
	return b.write(out)
}
