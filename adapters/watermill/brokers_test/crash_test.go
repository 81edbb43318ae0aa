package brokers_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/watermill"
	"github.com/go-idem/idem/core"
)

// A test that needs a process that crashes starts this binary again as a consumer; child says which.
const child = "IDEM_TEST_CHILD" // broker, its address, that of Redis, name of the site, where to crash

// Where a consumer may crash.
const (
	inTheHandler     = "handler"   // behind its effect, before its messages are kept
	beforePublishing = "kept"      // of what is kept
	beforeAck        = "published" // of what is published
	nowhere          = "nowhere"
)

func crash() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// billing charges for orders, and counts that beside the store, and its runs.
func billing(engine engine, client *redis.Client, site, where string) route {
	count := func(what string) error { return client.Incr(context.Background(), site+":"+what).Err() }
	return route{
		group: site + "-billing", from: site + "-orders", to: site + "-invoices",
		around: []message.HandlerMiddleware{idem.Watermill(engine.Consumer, site+"-billing")},
		handle: func(msg *message.Message) ([]*message.Message, error) {
			if err := count("runs"); err != nil {
				return nil, err
			}
			_, err := core.Step(msg.Context(), "charge", func(context.Context) (string, error) { return "", count("charges") })
			if err != nil {
				return nil, err
			}
			if where == inTheHandler {
				crash()
			}
			return bill(msg)
		},
		publishing: func(p message.Publisher) (message.Publisher, error) { return crashing{p, where}, nil },
	}
}

// crashing is a publisher.
type crashing struct {
	message.Publisher
	where string
}

func (p crashing) Publish(topic string, messages ...*message.Message) error {
	if p.where == beforePublishing {
		crash()
	}
	err := p.Publisher.Publish(topic, messages...)
	if p.where == beforeAck && err == nil {
		crash()
	}
	return err
}

func runChild(name, addr, redisAddr, site, where string) {
	client := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	engine, err := newEngine(client)
	if err != nil {
		panic(err)
	}
	for _, b := range brokers {
		if strings.ReplaceAll(b.name, " ", "") == name {
			if _, err := billing(engine, client, site, where).run(b.connect(addr)); err != nil {
				panic(err)
			}
		}
	}
	select {}
}

// spawn runs a consumer in a process of its own until it crashes.
func (s *site) spawn(where string) {
	ctx, cancel := context.WithTimeout(s.Context(), aWhile)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	spec := []string{strings.ReplaceAll(s.broker.name, " ", ""), s.addr, s.redis.Options().Addr, s.name, where}
	cmd.Env = append(os.Environ(), child+"="+strings.Join(spec, " "))
	cmd.Stderr = os.Stderr
	_ = cmd.Run()
	require.NoError(s, ctx.Err(), "it does not crash")
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.Equal(s, syscall.SIGKILL, status.Signal(), "%s", cmd.ProcessState)
}

// EVT-04, over processes: whatever the moment, one charge and one booking of its invoice.
func TestWhatACrashLosesTheNextConsumerMakesUpFor(t *testing.T) {
	for _, c := range []struct {
		where          string
		runs, invoices int
	}{
		{inTheHandler, 2, 1},
		{beforePublishing, 1, 1},
		{beforeAck, 1, 2},
	} {
		t.Run("a crash at "+c.where, func(t *testing.T) {
			for _, b := range brokers[1:] { // gochannel ends with its process
				t.Run(b.name, func(t *testing.T) {
					t.Parallel()
					s := newSite(t, b)
					booking := s.consume("booking", "invoices", func(*message.Message) ([]*message.Message, error) { return nil, nil })
					s.raw("orders") // provisions the topic
					s.publish("orders", "1", "tea")
					s.spawn(c.where)
					s.start(billing(s.engine, s.redis, s.name, nowhere))
					booking.acknowledged(c.invoices)
					booking.ran(1)
					count := func(what string) (n int) { n, _ = s.redis.Get(t.Context(), s.name+":"+what).Int(); return n }
					assert.Equal(t, c.runs, count("runs"), "runs")
					assert.Equal(t, 1, count("charges"), "charges")
				})
			}
		})
	}
}
