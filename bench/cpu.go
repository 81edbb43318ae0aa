package main

import (
	"context"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

// cpu is what this process and the server have used so far.
type cpu struct{ own, server time.Duration }

func (b *bench) used() cpu { return cpu{ownCPU(), b.serverCPU()} }

func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var usedCPU = regexp.MustCompile(`used_cpu_(?:sys|user):([0-9.]+)`)

func (b *bench) serverCPU() (sum time.Duration) {
	info := b.client.Info(context.Background(), "cpu").Val() // without an answer, all that is measured fails
	for _, found := range usedCPU.FindAllStringSubmatch(info, -1) {
		seconds, _ := strconv.ParseFloat(found[1], 64) // digits only
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}
