// Command consumer handles the payments of a Redis Stream, while consumers crash and messages are delivered again:
//
//	$ REDIS_URL=redis://127.0.0.1:6379/0 go run ./examples/consumer
//	$ redis-cli XADD payments '*' id p-1 payload 100
//
// Add p-1 again: it is a duplicate, and has the result of the first delivery. Kill a consumer at work (WORK=1m gives it time),
// and another takes the message over. It needs Redis 6.2 or later.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/redisstore"
)

const (
	stream, group, dead = "payments", "ledger", "payments-dead"

	lease     = 2 * time.Second
	abandoned = lease + time.Second // a delivery that is older is taken from who has it
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal("REDIS_URL is not a URL such as redis://user:password@host:6379/0")
	}
	options.ContextTimeoutEnabled = true
	rdb := redis.NewClient(options)
	engine, err := core.New(core.Config{
		Store: redisstore.New(rdb), Scope: core.SingleTenant,
		Lease: core.LeaseConfig{Duration: lease},
	})
	if err != nil {
		log.Fatal(err)
	}
	payments, err := consumer.New(engine, consumer.Config{MaxAttempts: 3})
	if err != nil {
		log.Fatal(err)
	}
	for ctx.Err() == nil { // what is in hand when a signal comes is finished
		for _, m := range next(rdb) {
			consume(rdb, payments, m)
		}
	}
	_ = engine.Close(context.Background())
}

// next returns messages that a consumer has left, or else new ones.
func next(rdb *redis.Client) []redis.XMessage {
	ctx := context.Background()
	_ = rdb.XGroupCreateMkStream(ctx, stream, group, "0").Err() // it is there already, or else the next call fails, too
	left, _, err := rdb.XAutoClaim(ctx, &redis.XAutoClaimArgs{
		Stream: stream, Group: group, Consumer: "any", MinIdle: abandoned, Start: "0-0", Count: 10,
	}).Result()
	if err == nil && len(left) > 0 {
		return left
	}
	read, err := rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
		Streams: []string{stream, ">"}, Group: group, Consumer: "any", Count: 10, Block: time.Second,
	}).Result()
	if err == nil {
		return read[0].Messages
	}
	if !errors.Is(err, redis.Nil) { // which says that there is none
		log.Print(err)
		time.Sleep(time.Second)
	}
	return nil
}

// consume handles a message and acknowledges it, unless it is to come again: what is left pending does, after abandoned.
func consume(rdb *redis.Client, payments *consumer.Consumer, m redis.XMessage) {
	ctx := context.Background()
	id, payload := fmt.Sprint(m.Values["id"]), fmt.Sprint(m.Values["payload"])
	message := consumer.Message{Group: group, ID: id, Payload: []byte(payload)}
	d := consumer.Consume(ctx, payments, message, func(ctx context.Context) (string, error) { return book(ctx, id, payload) })
	log.Printf("%s: %s, result %q, error %v", id, d.Verdict, d.Result, d.Err)
	if d.Verdict == consumer.Busy || d.Verdict == consumer.Failed {
		return
	}
	if d.Verdict == consumer.Dead && rdb.XAdd(ctx, &redis.XAddArgs{Stream: dead, Values: m.Values}).Err() != nil {
		return
	}
	_ = rdb.XAck(ctx, stream, group, m.ID).Err() // if it fails, the message comes again, as a duplicate
}

// book is the effect. A crash before its result is kept runs it again: give core.ChildKey(ctx, "book") to who does it.
func book(ctx context.Context, id, payload string) (string, error) {
	run, _ := core.FromContext(ctx)
	log.Printf("%s: run %d", id, run.Attempt)
	work, _ := time.ParseDuration(os.Getenv("WORK"))
	time.Sleep(work)
	if payload == "" {
		return "", errors.New("there is no amount")
	}
	return "booked " + payload, nil
}
