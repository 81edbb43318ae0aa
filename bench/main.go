// Command bench measures this library beside what its users would write or pick instead, on a redis-server that it starts
// itself. It keeps the figures in results.json and renders docs/PERFORMANCE.md with its pictures from them.
//
//	$ go -C bench run .                           # all parts: about 25 minutes, and 4 GB for 10 million keys
//	$ go -C bench run . -short                    # all parts, less exactly: 3 minutes
//	$ go -C bench run . -only allocations,scripts # these parts; the figures of the others stay
//	$ go -C bench run . -render                   # no measurement
//	$ go -C bench run . -telemetry                # CPU per request with all of observe/ beside that without
//	$ go -C bench run . -compare HEAD~3           # CPU per request of the working tree beside that of a commit
package main

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-idem/idem/bench/internal/measure"
	"github.com/go-idem/idem/bench/internal/report"
)

func main() {
	log.SetFlags(0)
	short := flag.Bool("short", false, "measure for 3 minutes, not 25")
	only := flag.String("only", "", "measure only these `parts`, separated by commas: "+strings.Join(names(), ", "))
	render := flag.Bool("render", false, "render the report without measuring")
	telemetry := flag.Bool("telemetry", false, "compare the CPU per request with each package of observe beside that without; no report")
	compare := flag.String("compare", "", "compare the CPU per request of the working tree with that of a `commit`; no report")
	results := flag.String("results", "results.json", "keep the figures in this `file`")
	docs := flag.String("docs", "../docs", "render the report into this `directory`")
	flag.Parse()
	plan := measure.Full
	if *short {
		plan = measure.Short
	}
	var program measure.Program
	var err error
	switch {
	case *compare != "":
		err = measure.Compare(&program, *compare)
	case *telemetry:
		err = measure.Telemetry(&program)
	default:
		err = renderParts(&program, plan, *only, *render, *results, *docs)
	}
	program.End()
	if err != nil {
		log.Fatal(err)
	}
}

// names returns the names of all parts.
func names() (all []string) {
	for _, p := range measure.Parts {
		all = append(all, p.Name)
	}
	return all
}

// choose returns the parts with these names, all for "".
func choose(only string) (chosen []measure.Part, err error) {
	for _, name := range strings.Split(cmp.Or(only, strings.Join(names(), ",")), ",") {
		i := slices.Index(names(), name)
		if i < 0 {
			return nil, fmt.Errorf("-only: there is no part %q; the parts are %s", name, strings.Join(names(), ", "))
		}
		chosen = append(chosen, measure.Parts[i])
	}
	return chosen, nil
}

// renderParts measures parts and renders the report of all, or renders it alone.
func renderParts(program *measure.Program, plan measure.Plan, only string, alone bool, file, docs string) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	results, err := report.Load(file)
	if err != nil {
		return err
	}
	if !alone {
		bench, err := measure.New(program, plan)
		if err != nil {
			return err
		}
		if err := measureParts(bench, chosen, results, file); err != nil {
			return err
		}
	}
	return results.Render(docs)
}

// measureParts measures parts and replaces their figures. The file is written after each part, so that a later failure loses
// nothing.
func measureParts(bench *measure.Bench, parts []measure.Part, results report.Results, file string) error {
	for _, part := range parts {
		began := time.Now()
		rows, err := part.Measure(bench)
		if err != nil {
			return fmt.Errorf("%s: %w", part.Name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", part.Name, time.Since(began).Round(time.Second))
		results[part.Name] = &report.Part{Origin: report.NewOrigin(bench.ServerInfo()), Rows: rows}
		if err := results.Save(file); err != nil {
			return err
		}
	}
	return nil
}
