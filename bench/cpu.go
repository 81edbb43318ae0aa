package main

import (
	"context"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// cpu is what this process and the server have used so far.
type cpu struct{ own, server time.Duration }

func (b *bench) used() cpu { return cpu{ownCPU(), serverCPU(b.client)} }

func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var usedCPU = regexp.MustCompile(`used_cpu_(?:sys|user):([0-9.]+)`)

func serverCPU(client *redis.Client) (sum time.Duration) {
	info := client.Info(context.Background(), "cpu").Val() // without an answer, all that is measured fails
	for _, found := range usedCPU.FindAllStringSubmatch(info, -1) {
		seconds, _ := strconv.ParseFloat(found[1], 64) // digits only
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}
