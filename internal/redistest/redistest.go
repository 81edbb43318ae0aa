// Package redistest starts real redis-servers on free loopback ports for tests, and ends them by process id.
package redistest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/internal/needs"
	"github.com/go-idem/idem/internal/tied"
)

// Server is one redis-server process.
type Server struct {
	Addr string

	binary, dir string
	args        []string
	env         []string // more than this process's
	process     *os.Process
}

// Binary returns the path of the server to test with: $REDIS_SERVER, or redis-server or valkey-server on the PATH. Without
// one the test ends as [needs.Missing] says. With -short it skips all tests.
func Binary(tb testing.TB) string {
	tb.Helper()
	needs.Server(tb, "a redis-server")
	for _, name := range []string{os.Getenv("REDIS_SERVER"), "redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	missing(tb, "redis-server")
	return ""
}

// missing ends a test that needs a server which is not there.
func missing(tb testing.TB, server string) {
	tb.Helper()
	const how = "this test needs it on the PATH (Debian: apt-get install redis-server redis-sentinel, or make tools)"
	needs.Missing(tb, "NO "+strings.ToUpper(server)+": "+how)
}

// Start starts a server for this test alone. args are arguments of redis-server, such as "--appendonly", "yes"; Restart uses
// them again. Without arguments the server keeps nothing on disk.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return startWith(tb, nil, args)
}

func startWith(tb testing.TB, env, args []string) *Server {
	tb.Helper()
	s, err := start(Binary(tb), tb.TempDir(), env, args)
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
	binary := Binary(tb)
	return shared.Get(tb, func() (*Server, error) {
		dir, err := os.MkdirTemp("", "redistest")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir) // the server writes nothing
		return start(binary, dir, nil, nil)
	})
}

// start tries ports until a server answers on one.
func start(binary, dir string, env, args []string) (s *Server, err error) {
	for range 20 {
		s = newServer(binary, dir, freePort(), append([]string{"--save", "", "--appendonly", "no"}, args...))
		s.env = env
		if err = s.spawn(); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("redistest: no server started: %w", err)
}

// newServer returns a server that is not started yet. Of repeated arguments the last one counts.
func newServer(binary, dir string, port int, args []string) *Server {
	common := []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--logfile", filepath.Join(dir, "redis.log")}
	return &Server{Addr: fmt.Sprintf("127.0.0.1:%d", port), binary: binary, dir: dir, args: slices.Concat(args, common)}
}

// ports are the UDP sockets with which this process reserves ports.
var ports struct {
	sync.Mutex
	sockets []net.PacketConn
}

// freePort returns a free port, and reserves it for this process. No other test gets it, because a sentinel continues to
// watch the address of a server that was killed, and would add a new server at that address to its group. The port is below
// 22000, so that the bus port of a cluster node, which is 10000 higher, is below the ephemeral range.
func freePort() int {
	for {
		port := 12000 + rand.IntN(10000)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		kept, err := net.ListenPacket("udp", addr) // which no server uses
		if err != nil {
			continue
		}
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			_ = kept.Close()
			continue
		}
		_ = listener.Close()
		ports.Lock()
		ports.sockets = append(ports.sockets, kept)
		ports.Unlock()
		return port
	}
}

// FreeAddr is the address of a port that no server has. No test of this process gets it.
func FreeAddr() string { return fmt.Sprintf("127.0.0.1:%d", freePort()) }

// silence is how long a server may send nothing before its start counts as failed.
const silence = 10 * time.Second

// spawn starts the process and waits until it answers. A server that loads its data may take as long as it needs.
func (s *Server) spawn() error {
	cmd := exec.Command(s.binary, s.args...)
	cmd.Env = append(os.Environ(), s.env...)
	signal.Ignore(syscall.SIGXFSZ) // inherited: to reach the limit of FillDisk is an error, as on a full disk, and not the end
	if err := tied.Start(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	s.process = cmd.Process
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	for deadline := time.Now().Add(silence); time.Now().Before(deadline); {
		switch s.answer() {
		case "+PONG":
			if s.owned() {
				return nil
			}
		case "-LOAD": // LOADING
			deadline = time.Now().Add(silence)
		}
		select {
		case <-ended:
			log, _ := os.ReadFile(filepath.Join(s.dir, "redis.log"))
			return fmt.Errorf("redis-server ended: %s", log)
		case <-time.After(5 * time.Millisecond):
		}
	}
	s.Kill()
	return fmt.Errorf("redis-server on %s does not answer", s.Addr)
}

// answer is the beginning of what the server says to a PING, "" when it says nothing.
func (s *Server) answer() string {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	answer := make([]byte, 5)
	_, _ = fmt.Fprint(conn, "PING\r\n")
	if _, err := io.ReadFull(conn, answer); err != nil {
		return ""
	}
	return string(answer)
}

// owned reports whether the server that answers is this process. Another server may have taken the port, and then this one
// ends.
func (s *Server) owned() bool {
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	return infoField(client.Info(context.Background(), "server").Val(), "process_id") == strconv.Itoa(s.process.Pid)
}

// Kill ends the process at once, as a crash would.
func (s *Server) Kill() { _ = s.process.Kill() }

// Config changes a setting of the running server.
func (s *Server) Config(tb testing.TB, name, value string) {
	tb.Helper()
	must(tb, s.Client(tb).ConfigSet(context.Background(), name, value).Err())
}

// Info returns a field of INFO; "" when it is not there. It closes its connection, because tests poll it.
func (s *Server) Info(tb testing.TB, field string) string {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	return infoField(client.Info(context.Background(), "all").Val(), field)
}

// Knows reports whether the server has a command. An older server lacks some.
func (s *Server) Knows(tb testing.TB, command string) bool {
	tb.Helper()
	known, err := s.Client(tb).Do(context.Background(), "COMMAND", "INFO", command).Slice()
	must(tb, err)
	return len(known) == 1 && known[0] != nil
}

func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Restart starts the server again on the same port and directory.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if err := s.spawn(); err != nil {
		tb.Fatal(err)
	}
}

// Pause stops the process where it is; Resume lets it go on. Connections stay open meanwhile.
func (s *Server) Pause() { _ = s.process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { _ = s.process.Signal(syscall.SIGCONT) }

// Client returns a client of the server as the README recommends it, after change if there is one.
func (s *Server) Client(tb testing.TB, change ...func(*redis.Options)) *redis.Client {
	options := &redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true}
	for _, f := range change {
		f(options)
	}
	client := redis.NewClient(options)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Eventually waits, for at most two minutes, until done returns true. It is for changes in other processes.
func Eventually(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("redistest: never: %s", what)
		}
	}
}
