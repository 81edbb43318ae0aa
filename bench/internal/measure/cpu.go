package measure

import (
	"context"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// costOf returns what one of the requests or calls of run takes; run returns their number. The CPU time of this process is that
// of all that runs in it: clients, handlers, middleware and the collector. The server is asked before the clock starts and after
// it has stopped, so that the question takes no time of the run.
func costOf(client *redis.Client, run func() (n int, err error)) (map[string]float64, error) {
	server, own, began := usedByServer(client), usedHere(), time.Now()
	n, err := run()
	took := time.Since(began)
	own, server = usedHere()-own, usedByServer(client)-server
	return map[string]float64{
		"per_second": float64(n) / took.Seconds(), "cpu_us": micros(own) / float64(n), "server_cpu_us": micros(server) / float64(n),
	}, err
}

// usedHere returns the CPU time that this process has used so far, in user and in system mode: what the kernel does for its
// connections is part of it.
func usedHere() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// usedCPU matches the two lines of INFO cpu that are about the whole server.
var usedCPU = regexp.MustCompile(`used_cpu_(?:sys|user):([0-9.]+)`)

// usedByServer returns the CPU time that the server has used so far, for commands, connections and what it does by itself, such as
// expiry. If the server does not respond, all that is measured fails, too.
func usedByServer(client *redis.Client) (sum time.Duration) {
	info := client.Info(context.Background(), "cpu").Val()
	for _, found := range usedCPU.FindAllStringSubmatch(info, -1) {
		seconds, _ := strconv.ParseFloat(found[1], 64) // digits only
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}

// micros returns a duration in µs.
func micros(d time.Duration) float64 { return d.Seconds() * 1e6 }
