package redisstore_test

import (
	"context"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/redisstore"
)

// A service on Redis checks at its start what could lose records or make requests hang.
func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	findings, err := redisstore.Check(context.Background(), client)
	if err != nil {
		log.Fatal(err)
	}
	for _, finding := range findings {
		log.Println(finding)
	}
	engine, err := core.New(core.Config{Store: redisstore.New(client), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	_ = engine
}

// Behind Sentinel, a claim counts when a replica has it, so that a failover forgets no key.
func ExampleWaitReplicas() {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "payments", SentinelAddrs: []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
		ContextTimeoutEnabled: true,
	})
	store := redisstore.New(client, redisstore.WaitReplicas(1, 100*time.Millisecond))
	_ = store // for core.Config.Store
}
