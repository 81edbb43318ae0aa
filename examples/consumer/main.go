// Command consumer handles the payments of a Redis Stream. Consumers may crash, and messages may be delivered again:
//
//	$ REDIS_URL=redis://127.0.0.1:6379/0 go run ./examples/consumer
//	$ redis-cli XADD payments '*' id p-1 payload 100
//
// If you add p-1 again, it is a duplicate, and has the result of the first delivery. If you kill a consumer while it works,
// another one takes the message over; WORK=1m makes each payment take a minute. The command needs Redis 6.2 or later.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/observe/slogidem"
)

const (
	stream, group, dead = "payments", "ledger", "payments-dead"

	lease     = 2 * time.Second
	abandoned = lease + time.Second // After this time a delivery without acknowledgement goes to another consumer.
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
		Hooks: slogidem.Hooks(slog.Default(), core.Hooks{}), // a line for each delivery
	})
	if err != nil {
		log.Fatal(err)
	}
	payments, err := consumer.New(engine, consumer.Config{MaxAttempts: 3})
	if err != nil {
		log.Fatal(err)
	}
	for ctx.Err() == nil { // After a signal the messages that were read are still handled.
		for _, m := range next(rdb) {
			consume(rdb, payments, m)
		}
	}
	_ = engine.Close(context.Background())
}

// next returns messages that another consumer has not acknowledged in time, or else new ones.
func next(rdb *redis.Client) []redis.XMessage {
	ctx := context.Background()
	_ = rdb.XGroupCreateMkStream(ctx, stream, group, "0").Err() // The group may exist; after another error the next call fails, too.
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
	if !errors.Is(err, redis.Nil) { // redis.Nil means that there is no message.
		log.Print(err)
		time.Sleep(time.Second)
	}
	return nil
}

// consume handles a message. It acknowledges the message unless that must be delivered again: a message that stays pending is
// delivered again after abandoned. A dead message goes to the stream of the dead first.
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
	_ = rdb.XAck(ctx, stream, group, m.ID).Err() // If this fails, the message is delivered again, as a duplicate.
}

// book is the effect. After a crash before its result is stored, it runs again: a service that makes the booking should get
// core.ChildKey(ctx, "book") as its idempotency key.
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
