// Package plan says how much memory a Redis needs for a load, part by part, and what the textbook sum of a lock and a result for
// each request would have said, and how the nodes of a Cluster share it. Tests fill a redis-server and a Cluster with records and compare.
// It is for Redis 5.0 to 7.
package plan

import (
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Validate returns an error that lists every value out of bounds, with the name of its flag.
func (l Load) Validate() error {
	var errs []error
	check := func(ok bool, name string, value any, must string) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s %v: must be %s", name, value, must))
		}
	}
	check(l.Rate > 0 && l.Rate <= 1e9, "rate", l.Rate, "above 0 and at most 1e9")
	check(l.Lease > 0 && l.Lease < l.Retention, "lease", l.Lease, "above 0 and less than --retention")
	check(l.Retention > 0, "retention", l.Retention, "above 0")
	check(l.Handler > 0, "handler", l.Handler, "above 0")
	check(l.Body >= 0 && l.Body <= 512<<20, "body", l.Body, "0 to 512 MiB, in bytes")
	check(l.Headers >= 0 && l.Headers <= 1<<20, "headers", l.Headers, "0 to 1 MiB, in bytes")
	check(l.Ratio > 0 && l.Ratio <= 1, "ratio", l.Ratio, "above 0 and at most 1")
	check(l.Rate*l.Retention.Seconds()*float64(l.Body+l.Headers+1000) < 1e18, "retention", l.Retention, "so that all is less than 1e18 bytes")
	check(l.Rate*l.Handler.Seconds()*1000 < 1e18, "handler", l.Handler, "so that all is less than 1e18 bytes")
	check(l.Quantum == 8 || l.Quantum == 16, "quantum", l.Quantum, "8 or 16")
	return errors.Join(errs...)
}

// Explain prints the sum and the parts of it.
func (l Load) Explain(w io.Writer) {
	claim, outcome := l.Quantum.claim(), l.Quantum.completed(l.outcome())
	fmt.Fprintf(w, "Each size is rounded up to one that jemalloc has; a claim is %d bytes, a record %d and the outcome (lua/record.lua).\n", claimLength, headerLength)
	claim.print(w, "A claim, while the handler runs", "bytes")
	fmt.Fprintf(w, "\nAn outcome is %s bytes: body %s, header fields %s, frame %d; times %v for compression.\n",
		grouped(l.outcome()), grouped(l.Body), grouped(l.Headers), frameLength, l.Ratio)
	outcome.print(w, "A record with its outcome, for the retention", "bytes")
	sum := l.total()
	sum.print(w, "What this library takes", "bytes: "+Approximate(sum.sum()))
	fmt.Fprintf(w, "\nAll runs are taken to end with an outcome. Leave room above that: Redis lets up to a tenth of the keys outstay their\n"+
		"expiry; past %s keys the tables double, and for a moment the old ones are there, too; fragmentation,\n"+
		"buffers of replicas, and copies while it writes to disk come on top. Steps, tombstones (Keep.LateRetry) and Cluster's\n"+
		"index of slots are not counted.\n", grouped(buckets(l.keys())))
	l.explainTextbook(w)
}

// total returns what this library takes.
func (l Load) total() parts {
	claim, outcome := l.Quantum.claim(), l.Quantum.completed(l.outcome())
	running, kept := keys(l.Rate, l.Handler), keys(l.Rate, l.Retention)
	rate := strconv.FormatFloat(l.Rate, 'f', -1, 64)
	return parts{
		{running * claim.sum(), fmt.Sprintf("running: %s/s x %v = %s claims of %s bytes", rate, l.Handler, grouped(running), grouped(claim.sum()))},
		{kept * outcome.sum(), fmt.Sprintf("kept: %s/s x %v = %s records of %s bytes", rate, l.Retention, grouped(kept), grouped(outcome.sum()))},
		{tables(running + kept), fmt.Sprintf("two hash tables of %s buckets, 8 bytes each: keys and expiries", grouped(buckets(running+kept)))},
	}
}

// keys returns how many keys there are at a time: of claims and of outcomes.
func (l Load) keys() int { return keys(l.Rate, l.Handler) + keys(l.Rate, l.Retention) }

// Bytes returns the memory that the records take: of a claim, of a record with its outcome, and of all at a time.
func (l Load) Bytes() (claim, outcome, all int) {
	return l.Quantum.claim().sum(), l.Quantum.completed(l.outcome()).sum(), l.total().sum()
}

// explainTextbook prints what is often reckoned for a lock and a result per request, and what these would take.
func (l Load) explainTextbook(w io.Writer) {
	locks, results := keys(l.Rate, l.Lease), keys(l.Rate, l.Retention)
	naive := parts{
		{locks * (textbookKey + textbookOwner), fmt.Sprintf("locks: %s x (%d of key + %d of owner)", grouped(locks), textbookKey, textbookOwner)},
		{results * (l.Body + textbookStatus), fmt.Sprintf("results: %s x (%s of body + %d of status)", grouped(results), grouped(l.Body), textbookStatus)},
	}
	naive.print(w, "The textbook sum for a lock and a result", "bytes: "+Approximate(naive.sum())+", without keys of results, header fields and Redis itself")
	lock, result := l.Quantum.key(textbookKey, textbookOwner), l.Quantum.key(textbookKey, l.Body+textbookStatus)
	inRedis := parts{
		{locks * lock.sum(), fmt.Sprintf("locks: %s x %s", grouped(locks), grouped(lock.sum()))},
		{results * result.sum(), fmt.Sprintf("results: %s x %s", grouped(results), grouped(result.sum()))},
		{tables(locks + results), "two hash tables"},
	}
	inRedis.print(w, "What Redis takes for these two keys", "bytes: "+Approximate(inRedis.sum())+", without fingerprint, fence and header fields")
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

// Approximate is a size in powers of 1,000.
func Approximate(n int) string {
	size, unit := float64(n), "bytes"
	for _, next := range []string{"kB", "MB", "GB", "TB", "PB"} {
		if size < 1000 {
			break
		}
		size, unit = size/1000, next
	}
	return fmt.Sprintf("%.4g %s", size, unit)
}
