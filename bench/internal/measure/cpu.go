package measure

import (
	"context"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// usage is the CPU time that this process and the server have used so far.
type usage struct{ own, server time.Duration }

// used returns the CPU time so far. Measure it before and after a round.
func (b *Bench) used() usage {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return usage{time.Duration(u.Utime.Nano() + u.Stime.Nano()), usedByServer(b.client)}
}

// usedCPU matches the two lines of INFO cpu that are about the whole server.
var usedCPU = regexp.MustCompile(`used_cpu_(?:sys|user):([0-9.]+)`)

// usedByServer returns the CPU time of the server. If the server does not respond, all that is measured fails, too.
func usedByServer(client *redis.Client) (sum time.Duration) {
	info := client.Info(context.Background(), "cpu").Val()
	for _, found := range usedCPU.FindAllStringSubmatch(info, -1) {
		seconds, _ := strconv.ParseFloat(found[1], 64) // digits only
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}

// newRound returns the figures of so many latencies, which took a time, between two states of usage. Each latency is of one
// request.
func newRound(latencies []time.Duration, took time.Duration, before, after usage) round {
	per := func(d time.Duration) float64 { return micros(d) / float64(len(latencies)) }
	return round{
		perSecond: float64(len(latencies)) / took.Seconds(),
		p50:       micros(quantile(latencies, 0.5)), p99: micros(quantile(latencies, 0.99)),
		cpu: per(after.own - before.own), serverCPU: per(after.server - before.server),
	}
}

// micros returns a duration in µs.
func micros(d time.Duration) float64 { return d.Seconds() * 1e6 }
