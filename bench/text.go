package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

const loadsText = `
## End to end

%d connections over loopback, each with one request at a time; the handler reads the request, and answers a 201 with %d bytes of JSON.
"Of" columns are medians of ratios to what was measured in the same round. CPU is in µs per request, the client's in the process included.

![The share of the bare handler's speed](performance.svg)
`

const costsText = `
### Where it goes

The CPU of a request with a new key, in µs, in both processes: what the library on the memory store takes beyond the bare handler
is its engine and adapter, and what it takes on Redis beyond that are its two calls. Client, server, handler and middleware have
the same two cores, so a rate is one by the sum. The last column is what would be left for all that engine and adapter do if
the library's calls cost what the raw ones do: read and hash the request, run the handler under a lease, hold the answer back,
choose what is kept of it and pack that.

`

const batchCostsText = `
With redisstore.Batch it should have %.1f× of the raw calls' rate. Handler, engine and adapter take what they took, so all that can be
saved is in the two calls. What a pair takes in batches when goroutines do nothing else is under Client, and so is what it takes
when one goroutine sends 32 at once; here requests come one by one, and fewer go together.

`

const localCostsText = `
And that of a replay without a round trip, which reads and hashes the request, finds the record and writes its lines. The table by
hand is the least that compares requests: two hashes, a map, and the body with one header line. A guard by hand on a table is a
middleware, and each of its records has an end, header lines of its own and a share of so many bytes of room. What this library adds
to that is a scope, limits and hooks.

`

const duelsText = `
## Side by side

Two subjects in turn, %d times %v each: neighbours meet the same machine, and subjects that are minutes apart do not. Rate and
CPU are medians of ratios of neighbours, CPU is that of both processes; half of the rounds lie in the span beside the rate, and
what is nearer to an aim than that is not told from it. Rows without an aim show what can be had here. A guard by hand is plain
code for what a middleware has to do around the two raw calls: it reads and hashes the request, gives each call a deadline, holds
the answer back, and keeps status, header lines and body. It renews no lease and has no limits or hooks; with memory of its own
it could be faster. Raw calls in AutoPipeline are the two script calls without an engine, pipelined across goroutines on one
connection in full duplex, which is what go-redis itself has for that; a guard by hand in AutoPipeline is the guard on these. What
an engine does has to fit between their rates and the aim. A table by hand is the least that answers replays and compares
requests: two hashes, a map, and the body with one header line.
A guard by hand on a table is the one above with a table in the place of Redis, whose answers have an end and so many bytes of room:
what plain code for a middleware has with local replays.

`

const crowdsText = `
## One key, many clients

%d clients send one key at once, to a handler that works for %v, and ask again %v after a 409. The bare handler runs for
each of them.

`

const allocationsText = `
## Allocations

Per request, in process, on the memory store, without a request body. A replay does not run the handler: all that it
allocates is this library's and the router's.

`

const scriptsText = `
## Server time

µs of the server per call, by its own account (INFO commandstats): of calls one at a time, each of which finds the server
asleep and its memory cold, and in the "busy" columns of calls that come %d at once. "This library" is what redisstore sends: each is a
script, and from 2 KiB on a replay is a GET, too.

`

const verdictText = `
What a verb should take at most, what it takes, and what it takes at least on this machine in this hour: a script that does nothing,
and the calls that the verb can not do without. A begin reads the record and the clock, and writes the claim; a complete reads the
record and writes it; a replay reads it.

`

const blocksText = `
What the parts of a script cost, beyond a script that does nothing:

`

const clientsText = `
## Client

Pairs of begin and complete on new keys, answers of 512 bytes; CPU is in µs per pair. Two raw script calls are those of
go-redis' Script, without a store. go-redis can put the commands of many goroutines into one pipeline. What it sends that way does
not watch the deadlines of its callers: with AutoPipeline under redisstore a dead server holds a request for ReadTimeout times
the retries, over half a minute by default.

`

const batchesText = `
What batches are worth, and what else can be had: figures as a share of those of another in the same rounds. Pipelines by hand are raw calls of
few goroutines that each send %d begins at once and then their completes. Nobody waits for a turn there, and no store, deadline
or wake-up is paid for: less than that no client takes that writes and reads by go-redis. Raw calls gathered by hand are what
batches are at the least: each goroutine sends one call and waits for its answer or the end of its context, a mutex and a
channel gather what comes meanwhile, and go-redis' Pipeline sends it; no store, no deadline of a batch and no retry is in it.
The aim is %.1f× the pairs of redisstore alone at %.2f× of its CPU, from 64 goroutines on.

`

const clustersText = `
## Cluster

Pairs of begin and complete on new keys by %d goroutines, answers of 512 bytes, on Clusters of masters without replicas that
share the slots evenly. CPU is in µs per pair, that of the servers summed over all nodes; "in commands" is how long scripts and
GET took them by INFO commandstats, which counts on while another process has the core.

Clients and all nodes share the cores of this one machine, so here the rate falls with the nodes instead of growing: each is
woken for fewer requests at once, and they push one another off the cores. What scales is what a pair costs its node, and that
the nodes have even shares of the keys.

`

const capacityText = `
A pair touches one node, the one that its key hashes to, and Redis runs commands on one core. So with a core for each of n nodes

- **pairs/s = n × 1,000,000 / CPU of the server per pair in µs**: the last column of one node is what a node has room for. A
  replay costs less, see Server time;
- **bytes of a node = records × bytes per record + 16 × the power of two from records on**, where records are new keys/s ×
  retention / n. ` + "`go run ./examples/plan`" + ` reckons this line by line, with the share of one node as its -rate; see Memory. Cluster's
  own index of the keys of a slot comes on top.
`

const liveText = `
## Live keys

Servers with few and many live keys, each call alone on one connection, with keys that are new to the server and go away after
the round; rounds go through the servers in turn. Server µs are by INFO commandstats, of calls that come %d at once, since the time of
one that wakes the server up says little about its keys. The servers were filled by a script that writes copies of a COMPLETED
record under the names of records, with a TTL, in place of so many begins and completes; their hash tables have the size that
the keys need, and do not grow meanwhile. Answers are of 512 bytes.

`

const liveRatiosText = `
With %s live keys a begin takes the server %[3]s of what it takes with %[2]s, a complete %[4]s, a replay %[5]s; the client's
p50 is %[6]s, %[7]s and %[8]s.
`

const memoryText = `
## Memory

Bytes per record, by MEMORY USAGE with every part counted, and "of many" by the growth of used_memory over so many records.
The answer is JSON with six header lines.

`

const formsText = `
### Compressed, sealed

Bytes per record by MEMORY USAGE, on average over many answers with six header lines. They are
%s.
The dictionary is %s of other such answers, one after another; the codecs are those of Keep.Codecs. Two keys with JSON are a
lock and a result, both plain: the columns behind it are for when the lock's TTL is over, and for a body that is []byte to Go.

`

const boundsText = `
Of what two keys with JSON take, what each should take at most, and what it takes. That JSON has the body as a string, which
only text fits into; one that any body fits into is larger, and in the last column.

`

const dictionaryText = `
A dictionary of %s leaves %s of an outcome with an answer of 512 bytes, zstd without one %s. By default outcomes below 1 KiB
are left as they are, and with a dictionary those below 128 bytes.
`

const plannerText = `
### Planned

A server was filled with %s records, a tenth of them running and the others with answers of 512 bytes. They take **%s bytes**,
hash tables included; the planner says %s, which is **%+.2f %%** off: ` + "`go run ./examples/plan %s`" + `.

The case that is often reckoned, with keys of 40 bytes and owners of 36: a lock for each key under way and a result for each
key of a day. The textbook's sums are lengths of strings; Redis takes more for them, and this library keeps header lines,
fingerprint and fence, too. -ratio is what the dictionary leaves of an outcome, see above.

`

const hotText = `
## Hottest lines

New keys on net/http and Redis; each line of the library with all that it calls outside of it. Shares are of the whole
process, the client included.

`

// environment is the beginning of the report: when, where and on what it was measured.
func environment(b *bench) (string, error) {
	info, err := b.client.Info(context.Background(), "server").Result()
	if err != nil {
		return "", err
	}
	command := strings.Join(append([]string{"go -C bench run ."}, os.Args[1:]...), " ")
	t := newTable("", "")
	t.row("date", time.Now().UTC().Format(time.DateOnly))
	t.row("command", "`"+command+"`")
	t.row("rounds", fmt.Sprintf("%d of %v for each subject and workload; the order of subjects rotates", b.plan.rounds, b.plan.slice))
	t.row("machine", fmt.Sprintf("%s, %d cores, %s/%s", processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH))
	t.row("commit", commit())
	t.row("server", "Redis "+firstMatch(`redis_version:(\S+)`, info))
	t.row("Go", strings.TrimPrefix(runtime.Version(), "go"))
	t.row("modules", strings.Join(modules(), ", "))
	return "# Performance\n\n" + aboutText + "\n" + t.String(), nil
}

const aboutText = `What this library costs beside a bare handler, beside the two script calls that are the least a guarded request can do, and
beside what people use or write instead. Generated by [bench](../bench); where something else is faster, its row says so.

Client, handlers and middleware share one process and its cores, the same for every subject; the server is another process on
the same machine. So read figures as ratios: a handler that does something makes them all smaller.
`

func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // Linux only
	if name := firstMatch(`model name\s*: (.+)`, string(info)); name != "" {
		return name
	}
	return "unknown processor"
}

func commit() string {
	name, err := exec.Command("git", "describe", "--always").Output()
	if err != nil {
		return "unknown"
	}
	// The report itself may be half done.
	changed := exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":(exclude,top)docs").Run() != nil
	if changed {
		return strings.TrimSpace(string(name)) + "-dirty"
	}
	return strings.TrimSpace(string(name))
}

func firstMatch(pattern, text string) string {
	if found := regexp.MustCompile(pattern).FindStringSubmatch(text); found != nil {
		return strings.TrimSpace(found[1])
	}
	return ""
}

// modules are the versions of what is measured.
func modules() (versions []string) {
	measured := []string{
		"github.com/redis/go-redis/v9", "github.com/gin-gonic/gin", "github.com/labstack/echo/v4", "github.com/gofiber/fiber/v2",
		"github.com/gofiber/storage/redis/v3", "github.com/valyala/fasthttp",
	}
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if slices.Contains(measured, m.Path) {
			versions = append(versions, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
		}
	}
	return versions
}
