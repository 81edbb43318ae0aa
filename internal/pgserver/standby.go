package pgserver

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// standbyName is the name by which a primary knows its standby.
const standbyName = "standby"

// noReceiver asks a standby whether nothing receives a stream from its primary.
const noReceiver = "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)"

// Standby makes a copy of the server with pg_basebackup and starts it as a hot standby that streams from it, for this test alone.
// If synchronous is true, the server then acknowledges no commit before the standby has it.
func (s *Server) Standby(tb testing.TB, synchronous bool) *Server {
	tb.Helper()
	dir, lifeline, err := newDirectory()
	if err != nil {
		tb.Fatal(err)
	}
	backup := command(s.baseBackup(tb), "-D", dir, "-h", "127.0.0.1", "-p", fmt.Sprint(s.port), "-U", "postgres",
		"--checkpoint=fast", "--write-recovery-conf", "--no-sync")
	if out, err := backup.CombinedOutput(); err != nil {
		tb.Fatalf("pgserver: pg_basebackup: %v: %s", err, out)
	}
	standby := &Server{binaries: s.binaries, dir: dir, lifeline: lifeline}
	if err = standby.onFreePort(func() error { return standby.spawn("cluster_name=" + standbyName) }); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		standby.Kill()
		_ = standby.lifeline.Close()
	})
	state := "async"
	if synchronous {
		state = "sync"
		s.execute(tb, "ALTER SYSTEM SET synchronous_standby_names = "+standbyName)
		s.execute(tb, "SELECT pg_reload_conf()")
	}
	s.await(tb, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '"+state+"')")
	return standby
}

// baseBackup returns the path of pg_basebackup. It is beside the server, beside what that is a link to, or on the PATH.
func (s *Server) baseBackup(tb testing.TB) string {
	tb.Helper()
	const name = "pg_basebackup"
	server, err := filepath.EvalSymlinks(filepath.Join(s.binaries, "postgres"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range []string{filepath.Join(s.binaries, name), filepath.Join(filepath.Dir(server), name), name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	tb.Fatal("pgserver: there is no pg_basebackup beside " + server + " or on the PATH (Debian: apt-get install postgresql-client)")
	return ""
}

// Promote makes a standby whose primary has ended a primary, and returns when it accepts writes. The standby is restarted first,
// as after a crash, because that of PostgreSQL 15 now and then stays in the recovery for ever when its primary is killed.
func (s *Server) Promote(tb testing.TB) {
	tb.Helper()
	s.Kill()
	s.Restart(tb)
	s.execute(tb, "SELECT pg_promote(true)")
	s.await(tb, "SELECT NOT pg_is_in_recovery()")
}

// CutOff ends the stream from the primary to this standby, which then gets nothing more.
func (s *Server) CutOff(tb testing.TB) {
	tb.Helper()
	s.execute(tb, "ALTER SYSTEM SET primary_conninfo = ''")
	s.execute(tb, "SELECT pg_reload_conf()")
	s.await(tb, noReceiver)
}

// CatchUp returns when the standby has received all that the server has written so far.
func (s *Server) CatchUp(tb testing.TB, standby *Server) {
	tb.Helper()
	written := s.execute(tb, "SELECT pg_current_wal_flush_lsn()")
	standby.await(tb, "SELECT pg_last_wal_receive_lsn() >= '"+written+"'::pg_lsn")
}

// await asks a question until the answer is true.
func (s *Server) await(tb testing.TB, question string) {
	tb.Helper()
	for deadline := time.Now().Add(patience); s.execute(tb, question) != "t"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("pgserver: never: %s\n%s", question, s.log())
		}
	}
}
