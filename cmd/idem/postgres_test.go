package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// postgres is the server that the tests of this process share. It starts with the first test that asks for it.
var postgres struct {
	sync.Mutex
	cmd       *exec.Cmd
	dir, addr string
	databases atomic.Int64
}

// database makes a database for this test and returns its URL. Without a server's programs the test is skipped, and fails
// where CI is set: there a missing server is a broken set-up.
func database(t *testing.T) string {
	t.Helper()
	postgres.Lock()
	defer postgres.Unlock()
	if postgres.cmd == nil {
		require.NoError(t, startPostgres(programs(t)))
	}
	name := "idem" + strconv.FormatInt(postgres.databases.Add(1), 10)
	conn, err := pgx.Connect(t.Context(), "postgres://postgres@"+postgres.addr+"/postgres")
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	return "postgres://postgres@" + postgres.addr + "/" + name
}

// programs returns the directory of initdb and postgres: of the PATH, or the newest where Debian has them.
func programs(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test needs PostgreSQL")
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		const missing = "NO POSTGRES: this test needs its programs on the PATH or in /usr/lib/postgresql " +
			"(Debian: apt-get install postgresql)"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return filepath.Dir(found[len(found)-1])
}

func startPostgres(bin string) error {
	dir, err := os.MkdirTemp("", "idem-postgres")
	if err != nil {
		return err
	}
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", filepath.Join(dir, "data"), "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir = dir
	if err := unprivileged(initdb, dir); err != nil {
		return err
	}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	port := freePort()
	cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", filepath.Join(dir, "data"), "-h", "127.0.0.1", "-p", port, "-k", "",
		"-c", "fsync=off", "-c", "max_connections=200") // nobody cuts the power in a test
	cmd.Dir = dir
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := errors.Join(unprivileged(cmd, dir), startTied(cmd)); err != nil {
		return err
	}
	postgres.cmd, postgres.dir, postgres.addr = cmd, dir, "127.0.0.1:"+port
	return answers(postgres.addr, log.Name())
}

// answers waits until the server takes connections.
func answers(addr, log string) error {
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(context.Background(), "postgres://postgres@"+addr+"/postgres"); err == nil {
			return conn.Close(context.Background())
		}
	}
	text, _ := os.ReadFile(log)
	return fmt.Errorf("postgres does not answer: %w: %s", err, text)
}

// stopPostgres ends the server and removes what it wrote.
func stopPostgres() {
	if postgres.cmd == nil {
		return
	}
	_ = postgres.cmd.Process.Signal(syscall.SIGINT)
	_ = postgres.cmd.Wait()
	_ = os.RemoveAll(postgres.dir)
}

func freePort() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	return listener.Addr().String()[strings.LastIndex(listener.Addr().String(), ":")+1:]
}
