package idem_test

import (
	"testing"

	"github.com/go-idem/idem/adapters/internal/rpc/rpctest"
)

func TestAKilledServerIsTakenOver(t *testing.T) {
	for protocol, option := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			rpctest.TestAKilledServerIsTakenOver(t, func(t *testing.T, addr string) rpctest.Client {
				return clientOf(newHTTPClient(t), "http://"+addr, option)
			})
		})
	}
}
