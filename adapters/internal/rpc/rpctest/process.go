package rpctest

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/tied"
)

// child is the environment of a process that serves: the address of Redis, and the scope of its keys.
const child = "IDEM_TEST_CHILD"

// ServeIfChild serves until the process is killed, if TestAKilledServerIsTakenOver has started it, and otherwise returns. serve
// serves on l, and h handles every unary method under e.
func ServeIfChild(serve func(e *core.Engine, h Handler, l net.Listener)) {
	spec := strings.Fields(os.Getenv(child))
	if len(spec) != 2 {
		return
	}
	client := redis.NewClient(&redis.Options{Addr: spec[0], ContextTimeoutEnabled: true})
	engine, err := core.New(core.Config{
		Store: redisstore.New(client), Lease: core.LeaseConfig{Duration: time.Second},
		Scope: func(context.Context, *core.Request) string { return spec[1] },
	})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	serve(engine, func(ctx context.Context, _ *structpb.Struct, _ Exchange) (*structpb.Struct, *status.Status) {
		run, _ := core.FromContext(ctx)
		client.Incr(context.Background(), spec[1])
		if !run.Takeover {
			select {} // until the process is killed
		}
		return object("attempt", fmt.Sprint(run.Attempt)), nil
	}, l)
}

// TestAKilledServerIsTakenOver kills the process of a server while a handler runs. A client that dials another process is refused
// for the lease, and then runs the operation, which knows that it takes over.
func TestAKilledServerIsTakenOver(t *testing.T, dial func(t *testing.T, addr string) Client) {
	server, scope := redistest.Shared(t), rand.Text()
	spawn := func() (cmd *exec.Cmd, c Client) {
		cmd = exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), child+"="+server.Addr+" "+scope)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, tied.Start(cmd, syscall.SIGKILL))
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		addr, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		return cmd, dial(t, strings.TrimSpace(addr))
	}
	killed, first := spawn()
	_, second := spawn()
	lost := make(chan Reply)
	go func() { lost <- first.Call(context.Background(), NewRequest()) }()
	client := server.Client(t)
	runs := func() int { n, _ := client.Get(t.Context(), scope).Int(); return n }
	require.Eventually(t, func() bool { return runs() == 1 }, 10*time.Second, time.Millisecond)
	_ = killed.Process.Kill()
	assert.Equal(t, code.Code_UNAVAILABLE, (<-lost).code())

	reply := second.Call(t.Context(), NewRequest())
	reply.assertRefused(t, code.Code_ABORTED, "in-progress")
	assert.True(t, reply.detail(&errdetails.RetryInfo{}))
	require.Eventually(t, func() bool {
		reply = second.Call(t.Context(), NewRequest())
		return reply.code() == code.Code_OK
	}, 10*time.Second, 10*time.Millisecond)
	assert.Equal(t, "2", reply.Message.GetFields()["attempt"].GetStringValue())
	assert.True(t, second.Call(t.Context(), NewRequest()).isReplay())
	assert.Equal(t, 2, runs())
}
