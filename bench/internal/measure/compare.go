package measure

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/internal/redistest"
)

// How much Compare measures. More sessions make the ranges tell more; more turns make the medians more exact.
const (
	sessions    = 8 // of processes, which are started anew in each, since two processes of one binary differ, too
	warmTurns   = 4 // which do not count
	turns       = 20
	turnClients = 32
	turnEach    = 12 // requests of each client
)

// Compare builds the command serve with the working tree and with a commit, and writes how much CPU a request takes in each. The
// services get the same requests in turns. The row "the commit, again" is a second process of the commit: what it differs by is
// not a difference of the code. Compare must run in the directory bench.
func Compare(tb testing.TB, commit string, out io.Writer) error {
	older, newer, err := build(tb, commit)
	if err != nil {
		return err
	}
	redis := redistest.Start(tb)
	fmt.Fprintf(out, "CPU of the service in µs per request, by %d turns of %d requests.\n", sessions*turns, turnClients*turnEach)
	fmt.Fprintf(out, "Differences are medians of all turns; the range is that of the medians of %d sessions.\n\n", sessions)
	for _, c := range []struct {
		name     string
		workload workload
		args     []string
	}{
		{"new keys, Redis", allNew, []string{"-redis", redis.Addr}},
		{"replays, Redis", allReplays, []string{"-redis", redis.Addr}},
		{"new keys, memory", allNew, nil},
	} {
		var used [3][]float64
		for range sessions {
			if err := redis.Client(tb).FlushAll(context.Background()).Err(); err != nil {
				return err
			}
			all := [3]candidate{{older, c.args}, {older, c.args}, {newer, c.args}}
			if err := session(&used, all, c.workload); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		fmt.Fprintf(out, "%s: the commit takes %.1f\n", c.name, median(used[0]))
		fmt.Fprintf(out, "  the commit, again  %s\n", difference(used[1], used[0], turns))
		fmt.Fprintf(out, "  the working tree   %s\n\n", difference(used[2], used[0], turns))
	}
	return nil
}

// difference describes by how much own differs from beside, which are values of sessions with so many turns.
func difference(own, beside []float64, turns int) string {
	var all, medians []float64
	for i := range own {
		all = append(all, own[i]-beside[i])
	}
	for session := range slices.Chunk(all, turns) {
		medians = append(medians, median(session))
	}
	middle := median(all)
	percent := 100 * middle / median(beside)
	return fmt.Sprintf("%+.2f (%+.1f %%), %+.2f to %+.2f", middle, percent, slices.Min(medians), slices.Max(medians))
}

// candidate is a program whose CPU is measured, and its arguments.
type candidate struct {
	binary string
	args   []string
}

// session starts a process of each candidate and lets each handle the same number of requests, in turns. The order within a turn is
// random, so that no process is always the one after another. It appends the CPU of each turn to used.
func session(used *[3][]float64, all [3]candidate, w workload) error {
	var services [3]*service
	for i, c := range all {
		s, err := start(c.binary, w, i, c.args)
		if err != nil {
			return err
		}
		defer s.stop()
		services[i] = s
	}
	for n := range warmTurns + turns {
		for _, i := range rand.Perm(len(services)) {
			cpu, err := services[i].turn()
			if err != nil {
				return err
			}
			if n >= warmTurns {
				used[i] = append(used[i], cpu)
			}
		}
	}
	return nil
}

// service is a process of serve under load.
type service struct {
	process *exec.Cmd
	target  *target
	players []*player
}

// start starts a process of serve and its clients, whose numbers depend on the number of the process: no two processes get one
// key, since they share a Redis.
func start(binary string, w workload, number int, args []string) (*service, error) {
	s := &service{process: exec.Command(binary, args...)}
	s.process.Stderr = os.Stderr
	stdout, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("%s printed no address: %w", binary, err)
	}
	s.target = newTarget(strings.TrimSpace(addr))
	for i := range turnClients {
		s.players = append(s.players, newPlayer(s.target, w, turnClients*number+i))
	}
	return s, together(s.players, (*player).warm)
}

// stop ends the process.
func (s *service) stop() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait() // it was killed
}

// turn sends one turn of requests, and returns the CPU of each in µs.
func (s *service) turn() (float64, error) {
	before, err := s.used()
	if err != nil {
		return 0, err
	}
	err = together(s.players, func(p *player) error {
		for range turnEach {
			if err := p.next(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	after, err := s.used()
	return (after - before) / 1e3 / (turnClients * turnEach), err
}

// used asks the process for its CPU time in ns.
func (s *service) used() (float64, error) {
	_, text, err := fasthttp.Get(nil, "http://"+s.target.client.Addr+"/cpu")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(string(text), 64)
}

// build returns the paths of serve built with a commit and with the working tree. The commit is checked out into a temporary git
// worktree. serve is that of the working tree both times: a copy of go.mod replaces the library by the worktree, so that the two
// binaries differ in nothing else.
func build(tb testing.TB, commit string) (older, newer string, err error) {
	dir := tb.TempDir()
	tree, mod := filepath.Join(dir, "tree"), filepath.Join(dir, "go.mod")
	older, newer = filepath.Join(dir, "older"), filepath.Join(dir, "newer")
	tb.Cleanup(func() { _ = exec.Command("git", "worktree", "remove", "--force", tree).Run() })
	for _, command := range [][]string{
		{"git", "worktree", "add", "--quiet", "--detach", tree, commit},
		{"cp", "go.mod", "go.sum", dir},
		{"go", "mod", "edit", "-replace", "github.com/go-idem/idem=" + tree, mod},
		{"go", "build", "-mod=mod", "-modfile", mod, "-o", older, "./serve"},
		{"go", "build", "-o", newer, "./serve"},
	} {
		if text, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, text)
		}
	}
	return older, newer, nil
}
