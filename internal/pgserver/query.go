package pgserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// patience is how long a server may take to answer, or to reach a state.
const patience = 30 * time.Second

// execute executes a statement, and returns the first value of the last row as text.
func (s *Server) execute(tb testing.TB, sql string) string {
	tb.Helper()
	value, err := s.query("postgres", sql, patience)
	if err != nil {
		tb.Fatalf("pgserver: %s: %v\n%s", sql, err, s.log())
	}
	return value
}

// log returns what the server has logged.
func (s *Server) log() []byte {
	log, _ := os.ReadFile(filepath.Join(s.dir, "server.log"))
	return log
}

// query connects to a database of the server, as the tests' user without a password, executes a statement unless it is empty, and
// returns the first value of the last row as text.
func (s *Server) query(database, sql string, timeout time.Duration) (value string, err error) {
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", s.port), timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	const version3 = "\x00\x03\x00\x00"
	if err = send(conn, "", version3+"user\x00postgres\x00database\x00"+database+"\x00\x00"); err == nil {
		_, err = receive(conn)
	}
	if err == nil && sql != "" {
		if err = send(conn, "Q", sql+"\x00"); err == nil {
			value, err = receive(conn)
		}
	}
	_ = send(conn, "X", "") // the end of the session, which a server that has refused it does not read
	return value, err
}

// send sends one message of the protocol. The first message of a connection has no kind.
func send(conn net.Conn, kind, body string) error {
	message := binary.BigEndian.AppendUint32([]byte(kind), uint32(4+len(body)))
	_, err := conn.Write(append(message, body...))
	return err
}

// receive reads messages until the server is ready for the next query. It returns the first value of the last row, or the
// server's error.
func receive(conn net.Conn) (value string, err error) {
	for {
		head := make([]byte, 5)
		if _, readErr := io.ReadFull(conn, head); readErr != nil {
			return "", errors.Join(err, readErr)
		}
		body := make([]byte, max(4, binary.BigEndian.Uint32(head[1:]))-4)
		if _, readErr := io.ReadFull(conn, body); readErr != nil {
			return "", errors.Join(err, readErr)
		}
		switch head[0] {
		case 'D': // a row: the number of its values, then each value's length and text
			value = ""
			if length := int32(binary.BigEndian.Uint32(body[2:])); length > 0 { // it is -1 for NULL
				value = string(body[6 : 6+length])
			}
		case 'E':
			err = errors.New(string(bytes.ReplaceAll(body, []byte{0}, []byte(" "))))
		case 'Z':
			return value, err
		}
	}
}
