package main

import (
	"fmt"
	"io"
	"time"
)

// progress says on a terminal how many records a scan has read, since a scan of a large store can take minutes. Its zero
// value says nothing, as for a script or a file. It is drawn on standard error, so it is in no result.
type progress struct {
	to      io.Writer // nil: nobody looks
	read    int
	drawnAt time.Time // the zero time: nothing is drawn
}

// newProgress returns the progress of a scan.
func (p *program) newProgress() *progress {
	if !p.draws {
		return &progress{}
	}
	return &progress{to: p.stderr}
}

// step counts a record, and draws the count five times a second at most.
func (g *progress) step() {
	g.read++
	if g.to != nil && time.Since(g.drawnAt) > time.Second/5 {
		g.drawnAt = time.Now()
		fmt.Fprintf(g.to, "\r\x1b[K%d read", g.read)
	}
}

// clear removes what is drawn, before something else is printed.
func (g *progress) clear() {
	if !g.drawnAt.IsZero() {
		fmt.Fprint(g.to, "\r\x1b[K")
		g.drawnAt = time.Time{}
	}
}
