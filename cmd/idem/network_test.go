package main

import (
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// network forwards connections to a server until it hangs. Then no byte goes on, and no connection breaks.
type network struct {
	url   string // of the store behind the network
	hangs atomic.Bool
}

// newNetwork returns a network in front of a store.
func newNetwork(t *testing.T, store string) *network {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	at, err := url.Parse(store)
	require.NoError(t, err)
	server := at.Host
	at.Host = listener.Addr().String()
	n := &network{url: at.String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			go n.forward(to, client)
			go n.forward(client, to)
		}
	}()
	return n
}

// hang stops all traffic.
func (n *network) hang() { n.hangs.Store(true) }

// forward copies what comes from one side to the other, until a side closes.
func (n *network) forward(to, from net.Conn) {
	defer to.Close()
	for buffer := make([]byte, 32<<10); ; {
		read, err := from.Read(buffer)
		if err != nil {
			return
		}
		if n.hangs.Load() {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if _, err := to.Write(buffer[:read]); err != nil {
			return
		}
	}
}
