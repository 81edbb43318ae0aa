package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/pprof"
)

// hotLine is a line of the library with all that it calls outside of it.
type hotLine struct {
	share    string // of the samples of the whole process
	function string
	line     string
}

// measureProfile plays new keys at this library on net/http and Redis under the profiler.
func measureProfile(b *bench) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	name := cmp.Or(b.profile, filepath.Join(dir, "cpu.out"))
	if err := b.record(name); err != nil {
		return err
	}
	b.results.hottest, err = hottest(name)
	return err
}

// record writes the profile.
func (b *bench) record(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	slower := *b
	slower.plan.slice = b.plan.profile
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	for _, s := range b.subjects {
		if s.rank == onRedis && s.framework == "http" {
			_, err = slower.load(s, workloads[0])
		}
	}
	return err
}

var topLine = regexp.MustCompile(`(?m)^ *\S+ +(\S+%) .* github\.com/go-idem/idem/(\S+) \S*?/((?:core|adapters)/\S+)`)

// hottest returns the ten lines of the library that take most of the time.
func hottest(profile string) ([]hotLine, error) {
	const library = `go-idem/idem/(core|adapters)`
	var failure bytes.Buffer
	top := exec.Command("go", "tool", "pprof", "-top", "-lines", "-nodecount=10", "-show="+library, "-focus="+library, profile)
	top.Stderr = &failure
	out, err := top.Output()
	if err != nil {
		return nil, fmt.Errorf("go tool pprof: %w: %s", err, &failure)
	}
	return hotLines(out), nil
}

// hotLines reads what pprof prints.
func hotLines(top []byte) (lines []hotLine) {
	for _, m := range topLine.FindAllSubmatch(top, -1) {
		if string(m[1]) == "0%" {
			continue // it only leads to other lines of the library
		}
		lines = append(lines, hotLine{string(m[1]), string(m[2]), string(m[3])})
	}
	return lines
}
