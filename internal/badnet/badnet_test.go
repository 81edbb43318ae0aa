package badnet

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dial returns a connection through a network to a server that sends back what it gets.
func dial(t *testing.T, n *Net) net.Conn {
	t.Helper()
	c, err := n.Dial(context.Background(), "tcp", echoServer(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(5*time.Second)))
	return c
}

func echoServer(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return l.Addr().String()
}

func echo(c net.Conn) error {
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return err
}

func TestEachFaultHitsAndIsCounted(t *testing.T) {
	for name, f := range map[string]Faults{
		"a lost reply":   {LoseReplies: 1},
		"a lost request": {LoseRequests: 1},
	} {
		n := New(1)
		c := dial(t, n)
		require.NoError(t, echo(c), name)
		require.Zero(t, n.Hits(), name)
		n.Set(f)
		assert.Error(t, echo(c), name)
		assert.Equal(t, 1, n.Hits(), name)
		n.Set(Faults{})
		assert.Error(t, echo(c), "%s: the connection is broken", name)
	}
	for name, f := range map[string]Faults{"delay": {Delay: 30 * time.Millisecond}, "rate": {Rate: 5 * 30}} {
		n := New(1)
		c := dial(t, n)
		n.Set(f)
		began := time.Now()
		require.NoError(t, echo(c), name)
		assert.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond, name)
		assert.NotZero(t, n.Hits(), name)
	}
}

func TestABlackHoleBreaksNothingAndHonoursDeadlines(t *testing.T) {
	n := New(1)
	c := dial(t, n)
	n.Set(Faults{Hole: true})
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := c.Write([]byte("hello"))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 5))
	require.ErrorContains(t, err, "timeout")
	n.Set(Faults{})
	require.NoError(t, c.SetDeadline(time.Now().Add(5*time.Second)))
	require.NoError(t, echo(c))
}

func TestHalfAReplyArrivesAndThenNothing(t *testing.T) {
	n := New(1)
	c := dial(t, n)
	n.Set(Faults{HalfReply: true})
	for _, want := range []string{"hel", ""} {
		require.NoError(t, c.SetDeadline(time.Time{}))
		_, err := c.Write([]byte("hello"))
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		got, err := io.ReadAll(c)
		require.ErrorContains(t, err, "timeout")
		assert.Equal(t, want, string(got))
	}
}

func TestFaultsCanBeForSomeConnectionsAlone(t *testing.T) {
	n := New(1)
	plain, listener := dial(t, n), dial(t, n)
	require.Equal(t, 2, n.Open())
	n.Set(Faults{LoseReplies: 1, Listeners: true})
	_, err := listener.Write([]byte("*2\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n"))
	require.NoError(t, err)
	_, err = listener.Read(make([]byte, 5))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, echo(plain))

	n.Set(Faults{LoseReplies: 1, Later: true})
	require.NoError(t, echo(plain))
	require.ErrorIs(t, echo(dial(t, n)), io.EOF)
	require.Equal(t, 1, n.Open())
}

func TestADelayEndsAtTheDeadline(t *testing.T) {
	n := New(1)
	c := dial(t, n)
	n.Set(Faults{Delay: time.Hour})
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Millisecond)))
	require.ErrorContains(t, echo(c), "timeout")
}

func TestSlicesArriveWhole(t *testing.T) {
	n := New(1)
	c := dial(t, n)
	n.Set(Faults{Slice: 1})
	require.NoError(t, echo(c))
	assert.GreaterOrEqual(t, n.Hits(), 4)
}

func TestResetAndRefuse(t *testing.T) {
	n := New(1)
	c := dial(t, n)
	n.Reset()
	assert.Error(t, echo(c))
	n.Lose(1)
	c = dial(t, n)
	assert.ErrorIs(t, echo(c), io.EOF)
	n.Set(Faults{Refuse: true})
	_, err := n.Dial(context.Background(), "tcp", c.RemoteAddr().String())
	assert.ErrorIs(t, err, errRefused)
}

func TestALineIsAsLongAsItIsToldAndLosesWhatIsUnderWayWhenItIsCut(t *testing.T) {
	l, err := NewLine(echoServer(t), 50*time.Millisecond)
	require.NoError(t, err)
	defer l.Cut()
	c, err := net.Dial("tcp", l.Addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	began := time.Now()
	require.NoError(t, echo(c))
	assert.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond, "there and back")
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	l.Cut()
	_, err = io.ReadFull(c, make([]byte, 5))
	assert.Error(t, err)
	_, err = net.Dial("tcp", l.Addr)
	assert.Error(t, err)
}
