// Command plan says how much memory a Redis needs for a load, line by line, and what the textbook sum of a lock and a result
// for each request would have said:
//
//	$ go run ./examples/plan -rate 1000 -lease 30s -retention 24h -body 512
//
// Its test fills a redis-server with records and compares. It reckons for Redis 5.0 to 7, one server, no Cluster.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"time"
)

func main() {
	log.SetFlags(0)
	l, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		log.Fatal("plan: ", err)
	}
	l.explain(os.Stdout)
}

// parse reads the load from the command line.
func parse(args []string) (l load, err error) {
	f := flag.NewFlagSet("plan", flag.ContinueOnError)
	f.Float64Var(&l.rate, "rate", 1000, "new `keys` per second; retries make none")
	f.DurationVar(&l.lease, "lease", 30*time.Second, "Lease.Duration; also the TTL of the textbook's locks")
	f.DurationVar(&l.handler, "handler", 0, "how long a handler runs (default -lease)")
	f.DurationVar(&l.retention, "retention", 24*time.Hour, "Keep.Retention")
	f.IntVar(&l.body, "body", 512, "`bytes` of an answer's body")
	f.IntVar(&l.headers, "headers", 51, "`bytes` of the header lines that are kept: 1 for a line that core/lines.go has, the value and 2 for a name\n"+
		"that it has, else name, value and 3")
	f.Float64Var(&l.ratio, "ratio", 1, "compressed size of an outcome, as a part of its size")
	f.IntVar((*int)(&l.quantum), "quantum", 16, "step of jemalloc's small sizes in bytes: 16 in Debian's Redis, 8 in one built with its own jemalloc")
	f.SetOutput(io.Discard) // main says what is wrong
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(os.Stderr)
			f.PrintDefaults()
		}
		return l, err
	}
	if f.NArg() > 0 {
		return l, fmt.Errorf("%q: is no flag; try -help", f.Arg(0))
	}
	if l.handler == 0 {
		l.handler = l.lease
	}
	return l, l.validate()
}

func (l load) validate() error {
	var errs []error
	check := func(ok bool, name string, value any, must string) {
		if !ok {
			errs = append(errs, fmt.Errorf("-%s %v: must be %s", name, value, must))
		}
	}
	check(l.rate > 0 && l.rate <= 1e9, "rate", l.rate, "above 0 and at most 1e9")
	check(l.lease > 0 && l.lease < l.retention, "lease", l.lease, "above 0 and less than -retention")
	check(l.handler > 0, "handler", l.handler, "above 0")
	check(l.body >= 0 && l.body <= 512<<20, "body", l.body, "0 to 512 MiB, in bytes")
	check(l.headers >= 0 && l.headers <= 1<<20, "headers", l.headers, "0 to 1 MiB, in bytes")
	check(l.ratio > 0 && l.ratio <= 1, "ratio", l.ratio, "above 0 and at most 1")
	check(l.rate*l.retention.Seconds()*float64(l.body+l.headers+1000) < 1e18, "retention", l.retention, "so that all is less than 1e18 bytes")
	check(l.quantum == 8 || l.quantum == 16, "quantum", l.quantum, "8 or 16")
	return errors.Join(errs...)
}

// explain prints the sum and the parts of it.
func (l load) explain(w io.Writer) {
	claim, outcome := l.quantum.claim(), l.quantum.completed(l.outcome())
	running, kept := keys(l.rate, l.handler), keys(l.rate, l.retention)
	fmt.Fprintf(w, "Each size is rounded up to one that jemalloc has; a claim is %d bytes, a record %d and the outcome (lua/record.lua).\n", claimLength, headerLength)
	claim.print(w, "A claim, while the handler runs", "bytes")
	fmt.Fprintf(w, "\nAn outcome is %s bytes: body %s, header lines %s, frame %d; times %v for compression.\n",
		grouped(l.outcome()), grouped(l.body), grouped(l.headers), frameLength, l.ratio)
	outcome.print(w, "A record with its outcome, for the retention", "bytes")
	rate := strconv.FormatFloat(l.rate, 'f', -1, 64)
	sum := parts{
		{running * claim.sum(), fmt.Sprintf("running: %s/s x %v = %s claims of %s bytes", rate, l.handler, grouped(running), grouped(claim.sum()))},
		{kept * outcome.sum(), fmt.Sprintf("kept: %s/s x %v = %s records of %s bytes", rate, l.retention, grouped(kept), grouped(outcome.sum()))},
		{tables(running + kept), fmt.Sprintf("two hash tables of %s buckets, 8 bytes each: keys and expiries", grouped(buckets(running+kept)))},
	}
	sum.print(w, "What this library takes", "bytes: "+approximate(sum.sum()))
	fmt.Fprintf(w, "\nAll runs are taken to end with an outcome. Leave room above that: Redis lets up to a tenth of the keys outstay their\n"+
		"expiry; past %s keys the tables double, and for a moment the old ones are there, too; fragmentation,\n"+
		"buffers of replicas, and copies while it writes to disk come on top. Steps, tombstones (Keep.LateRetry) and Cluster's\n"+
		"index of slots are not counted.\n", grouped(buckets(running+kept)))
	l.explainTextbook(w)
}

// explainTextbook prints what is often reckoned for a lock and a result per request, and what these would take.
func (l load) explainTextbook(w io.Writer) {
	locks, results := keys(l.rate, l.lease), keys(l.rate, l.retention)
	naive := parts{
		{locks * (textbookKey + textbookOwner), fmt.Sprintf("locks: %s x (%d of key + %d of owner)", grouped(locks), textbookKey, textbookOwner)},
		{results * (l.body + textbookStatus), fmt.Sprintf("results: %s x (%s of body + %d of status)", grouped(results), grouped(l.body), textbookStatus)},
	}
	naive.print(w, "The textbook sum for a lock and a result", "bytes: "+approximate(naive.sum())+", without keys of results, header lines and Redis itself")
	lock, result := l.quantum.key(textbookKey, textbookOwner), l.quantum.key(textbookKey, l.body+textbookStatus)
	inRedis := parts{
		{locks * lock.sum(), fmt.Sprintf("locks: %s x %s", grouped(locks), grouped(lock.sum()))},
		{results * result.sum(), fmt.Sprintf("results: %s x %s", grouped(results), grouped(result.sum()))},
		{tables(locks + results), "two hash tables"},
	}
	inRedis.print(w, "What Redis takes for these two keys", "bytes: "+approximate(inRedis.sum())+", without fingerprint, fence and header lines")
}

// print prints one part a line, and the sum.
func (p parts) print(w io.Writer, title, unit string) {
	fmt.Fprintf(w, "\n%s:\n", title)
	for _, part := range p {
		fmt.Fprintf(w, "%20s  %s\n", grouped(part.bytes), part.what)
	}
	fmt.Fprintf(w, "%20s  %s\n", "= "+grouped(p.sum()), unit)
}

// grouped is 1,234,567.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// approximate is a size in powers of 1,000.
func approximate(n int) string {
	size, unit := float64(n), "bytes"
	for _, next := range []string{"kB", "MB", "GB", "TB", "PB"} {
		if size < 1000 {
			break
		}
		size, unit = size/1000, next
	}
	return fmt.Sprintf("%.4g %s", size, unit)
}
