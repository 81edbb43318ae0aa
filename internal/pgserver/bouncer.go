package pgserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-idem/idem/internal/needs"
)

// Bouncer starts a PgBouncer in front of the server, for this test alone. It shares four connections to the server between all
// of its clients. mode is the pool_mode of PgBouncer: session, transaction or statement. Without a PgBouncer the test
// ends as [needs.Missing] says.
func (s *Server) Bouncer(tb testing.TB, mode string) *Server {
	tb.Helper()
	binary := bouncerBinary(tb)
	dir, lifeline, err := newDirectory()
	if err != nil {
		tb.Fatal(err)
	}
	b := &Server{dir: dir, lifeline: lifeline}
	if err = b.onFreePort(func() error { return b.spawnBouncer(binary, mode, s.port) }); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		b.Kill()
		_ = b.lifeline.Close()
	})
	return b
}

// bouncerBinary returns the path of the PgBouncer to test with. Debian installs it where only root looks.
func bouncerBinary(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	needs.Missing(tb, "NO PGBOUNCER: this test needs pgbouncer (Debian: apt-get install pgbouncer, or make tools)")
	return ""
}

// spawnBouncer starts a PgBouncer on the port of b, in front of the server on another port.
func (b *Server) spawnBouncer(binary, mode string, server int) error {
	config := filepath.Join(b.dir, "pgbouncer.ini")
	lines := []string{
		"[databases]", fmt.Sprintf("postgres = host=127.0.0.1 port=%d user=postgres", server),
		"[pgbouncer]", "listen_addr = 127.0.0.1", fmt.Sprintf("listen_port = %d", b.port), "unix_socket_dir =", "auth_type = any",
		"pool_mode = " + mode, "default_pool_size = 4", "max_client_conn = 300",
	}
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	return b.run(command(binary, config))
}
