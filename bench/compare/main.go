// Command compare runs twelve ways to run a handler twice, or to give a client the wrong response, against this library and the
// idempotency middleware of Fiber, each with its defaults and with its safest settings, and prints what happened.
//
//	$ go -C bench/compare run .            # prints the table
//	$ go -C bench/compare run . -update    # and writes it into docs/compare.md
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/go-idem/idem/bench/internal/measure"
	"github.com/go-idem/idem/internal/redistest"
)

// The page, and the lines between which it has the table.
const (
	page  = "../../docs/compare.md"
	begin = "<!-- ways: go -C bench/compare run . -update -->\n"
	end   = "<!-- end of ways -->\n"
)

func main() {
	log.SetFlags(0)
	update := flag.Bool("update", false, "write the table into docs/compare.md")
	flag.Parse()
	var program measure.Program
	defer program.End()
	text := table(redistest.Start(&program).Addr)
	fmt.Print(text)
	if !*update {
		return
	}
	if err := write(text); err != nil {
		log.Fatal(err)
	}
}

// write replaces the table of the page.
func write(text string) error {
	was, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, _ := strings.Cut(string(was), begin)
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return fmt.Errorf("%s has no place for the table", page)
	}
	return os.WriteFile(page, []byte(before+begin+text+end+after), 0o600)
}

// table runs each way with all subjects on the Redis at addr at the same time, and returns what happened.
func table(addr string) string {
	happened := make([][]string, len(ways))
	for i, way := range ways {
		happened[i] = make([]string, len(subjects))
		var running sync.WaitGroup
		for k, s := range subjects {
			running.Go(func() { happened[i][k] = way.run(newTrial(s, addr)) })
		}
		running.Wait()
	}
	var text strings.Builder
	head := "| what happens |"
	for _, s := range subjects {
		head += " " + s.name + " |"
	}
	fmt.Fprintf(&text, "%s\n|%s\n", head, strings.Repeat(" --- |", len(subjects)+1))
	for i, way := range ways {
		fmt.Fprintf(&text, "| %s | %s |\n", way.name, strings.Join(happened[i], " | "))
	}
	return text.String()
}
