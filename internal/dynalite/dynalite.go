// Package dynalite starts real processes of dynalite, a server that is compatible with DynamoDB, on free loopback ports for
// tests, and ends them by process id. It needs no driver.
package dynalite

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-idem/idem/internal/needs"
	"github.com/go-idem/idem/internal/tied"
)

// Version is the version to test with, which .ci/tools installs.
const Version = "4.0.0"

// Server is one dynalite process. It keeps its tables in memory.
type Server struct {
	URL string

	process *os.Process
}

// Directory returns the directory in whose node_modules dynalite is: $DYNALITE, or the one in the user's cache where .ci/tools
// installs it. Without one, or without node, the test ends as [needs.Missing] says. With -short it skips all tests.
func Directory(tb testing.TB) string {
	tb.Helper()
	needs.Server(tb, "dynalite")
	cache, _ := os.UserCacheDir()
	for _, dir := range []string{os.Getenv("DYNALITE"), filepath.Join(cache, "idem-tools", "dynalite-"+Version)} {
		_, noServer := os.Stat(filepath.Join(dir, "node_modules", "dynalite"))
		_, noNode := exec.LookPath("node")
		if dir != "" && noServer == nil && noNode == nil {
			return dir
		}
	}
	needs.Missing(tb, "NO DYNALITE: this test needs node and dynalite (make tools)")
	return ""
}

// Start starts a server for this test alone.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, err := start(Directory(tb))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Kill)
	return s
}

var shared needs.Shared[*Server]

// Shared returns the server that the tests of this process share. It ends with the process.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	dir := Directory(tb)
	return shared.Get(tb, func() (*Server, error) { return start(dir) })
}

// program listens on a free port, and prints it.
const program = `require('dynalite')({createTableMs: 0, deleteTableMs: 0, updateTableMs: 0})
	.listen(0, '127.0.0.1', function () { console.log(this.address().port) })`

func start(dir string) (*Server, error) {
	cmd := exec.Command("node", "-e", program)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := tied.Start(cmd, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("dynalite: node does not start: %w", err)
	}
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		return nil, fmt.Errorf("dynalite: the server does not start: %w", err)
	}
	return &Server{URL: "http://127.0.0.1:" + strings.TrimSpace(port), process: cmd.Process}, nil
}

// Kill ends the server as kill -9 does. Its tables are gone.
func (s *Server) Kill() {
	_ = s.process.Kill()
	_, _ = s.process.Wait()
}

// Stop stops the server, which then responds to nothing, until Continue.
func (s *Server) Stop() error { return s.process.Signal(syscall.SIGSTOP) }

// Continue continues the server after Stop.
func (s *Server) Continue() error { return s.process.Signal(syscall.SIGCONT) }
