// Package pgserver starts real PostgreSQL servers on free loopback ports for tests, and ends them by process id. It needs no
// driver.
package pgserver

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-idem/idem/internal/needs"
	"github.com/go-idem/idem/internal/tied"
)

// Server is one PostgreSQL server with a database of its own.
type Server struct {
	URL string

	binaries, dir string
	port          int
	lifeline      io.Closer // while it is open, dir stays
	process       *os.Process
	ended         chan struct{} // closed when process is gone
}

// Binaries returns the directory of the initdb and postgres to test with: $POSTGRES_BIN, one on the PATH, or the newest that
// Debian's packages have installed. Without one the test ends as [needs.Missing] says. With -short it skips all tests.
func Binaries(tb testing.TB) string {
	tb.Helper()
	needs.Server(tb, "PostgreSQL")
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(debian, func(a, b string) int { return version(b) - version(a) })
	for _, dir := range slices.Concat([]string{os.Getenv("POSTGRES_BIN")}, filepath.SplitList(os.Getenv("PATH")), debian) {
		if dir != "" && isExecutable(filepath.Join(dir, "initdb")) && isExecutable(filepath.Join(dir, "postgres")) {
			return dir
		}
	}
	needs.Missing(tb, "NO POSTGRES: this test needs initdb and postgres (Debian: apt-get install postgresql, or make tools)")
	return ""
}

// version is the 15 of /usr/lib/postgresql/15/bin.
func version(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

func isExecutable(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}

// Start starts a server with more settings, as name=value, for this test alone.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s, err := start(Binaries(tb), settings)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		s.Kill()
		_ = s.lifeline.Close()
	})
	return s
}

var shared needs.Shared[*Server]

// Shared returns the server that the tests of this process share. It ends with the process.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	binaries := Binaries(tb)
	return shared.Get(tb, func() (*Server, error) { return start(binaries, nil) })
}

// databases counts the databases that [Database] has made.
var databases atomic.Int64

// Database makes an empty database on the shared server, and returns its URL.
func Database(tb testing.TB) string {
	tb.Helper()
	s, name := Shared(tb), fmt.Sprintf("test%d", databases.Add(1))
	s.execute(tb, "CREATE DATABASE "+name)
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s", s.port, name)
}

// start makes a database in a new directory, and tries ports until a server answers on one. The directory is removed when this
// process ends.
func start(binaries string, settings []string) (*Server, error) {
	dir, lifeline, err := newDirectory()
	if err != nil {
		return nil, err
	}
	initdb := command(filepath.Join(binaries, "initdb"), "-D", dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pgserver: initdb: %w: %s", err, out)
	}
	s := &Server{binaries: binaries, dir: dir, lifeline: lifeline}
	return s, s.onFreePort(func() error { return s.spawn(settings...) })
}

// onFreePort gives the server one free port after the other until spawn starts it.
func (s *Server) onFreePort(spawn func() error) (err error) {
	for range 20 {
		port := 22000 + rand.IntN(8000) // below the ephemeral range, and above those of redistest
		listener, taken := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if taken != nil {
			continue
		}
		_ = listener.Close()
		s.port = port
		s.URL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
		if err = spawn(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("pgserver: no server started: %w", err)
}

// newDirectory makes a directory that belongs to the servers' user. It is removed when the returned lifeline is closed, or when
// this process ends.
func newDirectory() (dir string, lifeline io.Closer, err error) {
	if dir, err = os.MkdirTemp("", "pgserver"); err != nil {
		return "", nil, err
	}
	if lifeline, err = clearBehind(dir); err == nil {
		err = giveToServer(dir)
	}
	return dir, lifeline, err
}

// clearBehind starts a shell that removes dir when its input ends. That happens when the returned lifeline is closed, or when
// this process ends in any way.
func clearBehind(dir string) (io.Closer, error) {
	const script = `cat; for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$1" && break; sleep 1; done 2>/dev/null`
	shell := exec.Command("sh", "-c", script, "sh", dir)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is not for it
	lifeline, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	return lifeline, shell.Start()
}

// spawn starts the process and waits until it answers. Without fsync a crash of the machine would lose data; one of the
// process does not.
func (s *Server) spawn(settings ...string) error {
	settings = append([]string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(s.port), "unix_socket_directories=", "max_connections=300", "fsync=off",
		"full_page_writes=off", "logging_collector=off",
	}, settings...)
	args := []string{"-D", s.dir}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	return s.run(command(filepath.Join(s.binaries, "postgres"), args...))
}

// run starts the process of the server and waits until it answers. Its log goes to the server's directory.
func (s *Server) run(cmd *exec.Cmd) error {
	log, err := os.OpenFile(filepath.Join(s.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := giveToServer(log.Name()); err != nil { // pg_basebackup copies it
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	ended := make(chan struct{})
	s.ended = ended
	if err := tied.Start(cmd, syscall.SIGQUIT); err != nil { // the signal for: end at once, and take your children with you
		return err
	}
	s.process = cmd.Process
	go func() { _ = cmd.Wait(); close(ended) }() // which is that of this process, also after a restart
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); {
		if s.answers() {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended: %s", filepath.Base(cmd.Path), s.log())
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.Kill()
	return fmt.Errorf("%s on %s does not answer", filepath.Base(cmd.Path), s.URL)
}

// answers reports whether the server is up and has recovered its data.
func (s *Server) answers() bool {
	_, err := s.query("postgres", "", time.Second)
	return err == nil
}

// Kill ends the server at once, as a crash would: no transaction is finished and no page is written back.
func (s *Server) Kill() {
	_ = s.process.Signal(syscall.SIGQUIT)
	<-s.ended
}

// Restart starts the server again on the same port and directory.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if err := s.spawn(); err != nil {
		tb.Fatal(err)
	}
}
