package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
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

// The figures of a turn: CPU of the service for each request, and that with the CPU of Redis. A call that costs the service less
// may cost Redis more, so neither of them is enough.
const (
	ofService = "service"
	withRedis = "service and Redis"
)

// Compare builds the command serve with the working tree and with a commit, and prints how much CPU a request takes in each: of the
// service, and with that of Redis. Compare must run in the directory bench.
func Compare(tb testing.TB, commit string) error {
	older, newer, err := build(tb, commit)
	if err != nil {
		return err
	}
	server := redistest.Start(tb)
	printHead("The working tree beside the commit")
	for _, c := range []struct {
		name     string
		workload workload
		args     []string
	}{
		{"new keys, Redis", allNew, []string{"-redis", server.Addr}},
		{"replays, Redis", allReplays, []string{"-redis", server.Addr}},
		{"new keys, memory", allNew, nil},
	} {
		used, err := sessionsOf(tb, server, [3]candidate{{older, c.args}, {older, c.args}, {newer, c.args}}, c.workload)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		printRow(c.name, used, ofService)
		if c.args != nil { // then Redis has worked for it
			printRow(c.name+", with the CPU of Redis", used, withRedis)
		}
	}
	return nil
}

// printHead prints what the rows compare.
func printHead(what string) {
	requests := turnClients * turnEach
	fmt.Printf("%s: CPU of the service in µs per request, by %d turns of %d requests.\n", what, sessions*turns, requests)
	fmt.Printf("Differences are medians of all turns; the range is that of the medians of %d sessions.\n\n", sessions)
}

// printRow prints by how much a figure of the last candidate differs from that of the first. The second candidate is the same
// program as the first in another process. What those two differ by is not a difference of the code.
func printRow(name string, used [3]rounds, figure string) {
	first, again, last := used[0][figure], used[1][figure], used[2][figure]
	fmt.Printf("%-55s %s of %.1f", name, difference(last, first, turns), median(first))
	fmt.Printf("; the same again: %s\n", difference(again, first, turns))
}

// difference describes by how much a figure differs from another one, each of which has the values of sessions with so many
// turns. A difference that is smaller than the range of the sessions is none.
func difference(own, beside []float64, turns int) string {
	var all, medians []float64
	for i := range own {
		all = append(all, own[i]-beside[i])
	}
	for session := range slices.Chunk(all, turns) {
		medians = append(medians, median(session))
	}
	percent := 100 * median(all) / median(beside)
	return fmt.Sprintf("%+.2f (%+.1f %%), %+.2f to %+.2f", median(all), percent, slices.Min(medians), slices.Max(medians))
}

// candidate is a program whose CPU is measured, and its arguments. It runs in a process of its own, so its figures leave out the
// clients.
type candidate struct {
	binary string
	args   []string
}

// sessionsOf returns the CPU of each candidate in the turns of all sessions. Each session begins with an empty Redis, because the
// clients of each session send the same keys.
func sessionsOf(tb testing.TB, server *redistest.Server, all [3]candidate, w workload) (used [3]rounds, err error) {
	used = [3]rounds{{}, {}, {}}
	client := server.Client(tb)
	for range sessions {
		if err := client.FlushAll(context.Background()).Err(); err != nil {
			return used, err
		}
		if err := session(used, client, all, w); err != nil {
			return used, err
		}
	}
	return used, nil
}

// session starts a process of each candidate and lets each handle the same number of requests, in turns. A turn is short, so that
// the three of them meet the same machine. Its order is random, so that no process is always the one after another. session
// appends the CPU of each turn to used.
func session(used [3]rounds, redis *redis.Client, all [3]candidate, w workload) error {
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
			before := usedByServer(redis)
			cpu, err := services[i].turn()
			if err != nil {
				return err
			}
			if n >= warmTurns {
				all := cpu + micros(usedByServer(redis)-before)/(turnClients*turnEach)
				used[i][ofService], used[i][withRedis] = append(used[i][ofService], cpu), append(used[i][withRedis], all)
			}
		}
	}
	return nil
}

// service is a process of serve or of observed under load.
type service struct {
	process *exec.Cmd
	target  *target
	players []*player
}

// start starts a process and its clients, whose numbers depend on the number of the process: no two processes get one key, since
// they share a Redis.
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
	if s.players, err = newPlayers(s.target, w, turnClients, turnClients*number); err != nil {
		s.stop()
	}
	return s, err
}

// stop ends the process.
func (s *service) stop() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait() // it was killed
}

// turn sends one turn of requests, and returns the CPU of each in µs. The service says itself what it has used, to the
// microsecond: the kernel's list of processes has hundredths of a second, of which a turn takes a few.
func (s *service) turn() (float64, error) {
	before, first := s.used()
	played := together(s.players, func(p *player) error {
		for range turnEach {
			if err := p.next(); err != nil {
				return err
			}
		}
		return nil
	})
	after, last := s.used()
	return (after - before) / 1e3 / (turnClients * turnEach), errors.Join(first, played, last)
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
