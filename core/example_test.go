package core_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// A client that did not get the response sends its request again. The order is placed once.
func ExampleEngine_Do() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		fmt.Println(err)
		return
	}
	request := core.Request{
		Method: "POST",
		Path:   "/orders",
		Header: func(string) []string { return []string{"8e03978e-40d5-43e8-bc93-6894a57f9324"} },
		Body:   func(int64) ([]byte, error) { return []byte(`{"tea": 2}`), nil },
	}
	for range 3 {
		result, err := engine.Do(context.Background(), request, func(ctx context.Context) (*core.Response, error) {
			fmt.Println("placing the order")
			return &core.Response{Status: 201, Body: []byte("order 7")}, nil
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(result.Response.Status, string(result.Response.Body), "replayed:", result.Replayed)
	}
	// Output:
	// placing the order
	// 201 order 7 replayed: false
	// 201 order 7 replayed: true
	// 201 order 7 replayed: true
}

// A configuration that cannot work is refused as a whole, before the first request.
func ExampleNew_invalid() {
	_, err := core.New(core.Config{Store: memstore.New(), Key: core.KeyConfig{Methods: []string{"GET"}}})
	fmt.Println(err)
	// Output:
	// idem: Config.Scope: is required: say who a key belongs to, or core.SingleTenant if every caller may share one set of keys
	// idem: Config.Key.Methods: GET is safe to repeat and cannot be guarded
}

// A route of its own needs no engine of its own.
func ExampleEngine_With() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		fmt.Println(err)
		return
	}
	refunds := engine.With(func(c *core.Config) { c.Key.Required = true })
	keyless := core.Request{Method: "POST", Path: "/refunds", Header: func(string) []string { return nil }}
	result, _ := refunds.Do(context.Background(), keyless, nil)
	fmt.Println(result.Response.Status, result.Problem)
	// Output: 400 key-missing
}

// order returns a request with a key.
func order(key string) core.Request {
	return core.Request{
		Method: "POST", Path: "/orders",
		Header: func(string) []string { return []string{key} },
		Body:   func(int64) ([]byte, error) { return []byte("{}"), nil },
	}
}

// crashed returns an engine in whose store a run of the key has vanished: its process has died with the claim.
func crashed(key string, config core.Config) *core.Engine {
	config.Store, config.Scope, config.Lease.Duration = memstore.New(), core.SingleTenant, 20*time.Millisecond
	engine, err := core.New(config)
	if err != nil {
		panic(err)
	}
	_, err = engine.Do(context.Background(), order(key), func(ctx context.Context) (*core.Response, error) {
		core.Decide(ctx, core.LeaveUnknown) // as a crash does
		return &core.Response{Status: 201}, nil
	})
	if err != nil {
		panic(err)
	}
	time.Sleep(2 * config.Lease.Duration)
	return engine
}

// After a crash an operator finds out that the order was placed, and says so. The client's next retry gets that response.
func ExampleEngine_Resolve() {
	engine := crashed("order-7", core.Config{Lease: core.LeaseConfig{OnUnknown: core.RefuseUnknown}})
	place := func(context.Context) (*core.Response, error) { return &core.Response{Status: 201}, nil }

	refused, _ := engine.Do(context.Background(), order("order-7"), place)
	fmt.Println(refused.Response.Status, refused.Problem)

	which := core.Task{Scope: core.SingleTenant(context.Background(), nil), Key: "order-7"}
	err := engine.Resolve(context.Background(), which, &core.Response{Status: 201, Body: []byte("order 7")})
	fmt.Println(err)

	replayed, _ := engine.Do(context.Background(), order("order-7"), place)
	fmt.Println(replayed.Response.Status, string(replayed.Response.Body), "replayed:", replayed.Replayed)
	// Output:
	// 409 outcome-unknown
	// <nil>
	// 201 order 7 replayed: true
}

// After a crash the service looks at its own records, and the retry gets what it finds.
func ExampleLeaseConfig_onUnknown() {
	placed := map[string]string{"order-7": "order 7"} // the table of orders, by key
	engine := crashed("order-7", core.Config{Lease: core.LeaseConfig{
		OnUnknown: func(ctx context.Context, _ *core.Request) (*core.Response, error) {
			if found := placed["order-7"]; found != "" { // A service looks by what is in the request.
				return &core.Response{Status: 201, Body: []byte(found)}, nil
			}
			return nil, core.ErrOutcomeUnknown
		},
	}})
	result, err := engine.Do(context.Background(), order("order-7"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Response.Status, string(result.Response.Body))
	// Output: 201 order 7
}

// A call to another service gets a key that is the same in each run of the same request.
func ExampleChildKey() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		fmt.Println(err)
		return
	}
	var keys []string
	for range 2 { // The first run fails, so the retry runs again.
		_, _ = engine.Do(context.Background(), order("order-7"), func(ctx context.Context) (*core.Response, error) {
			keys = append(keys, core.ChildKey(ctx, "charge")) // the Idempotency-Key of the request to the payment provider
			return &core.Response{Status: 503}, nil
		})
	}
	fmt.Println(len(keys), len(keys[0]), keys[0] == keys[1])
	// Output: 2 64 true
}

// A handler sees whether an earlier run has vanished, and which attempt this is. The fence grows from run to run: a system that
// remembers the greatest one can refuse what a paused process sends later.
func ExampleFromContext() {
	engine := crashed("order-7", core.Config{})
	_, _ = engine.Do(context.Background(), order("order-7"), func(ctx context.Context) (*core.Response, error) {
		run, ok := core.FromContext(ctx)
		fmt.Println(ok, "attempt:", run.Attempt, "takeover:", run.Takeover, "has a fence:", run.Fence > 0)
		return &core.Response{Status: 201}, nil
	})
	// Output: true attempt: 2 takeover: true has a fence: true
}

// A handler knows more than its status says: here nothing has happened, so the client may use the key for a corrected request.
func ExampleDecide() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, status := range []int{400, 201} {
		result, _ := engine.Do(context.Background(), order("order-7"), func(ctx context.Context) (*core.Response, error) {
			if status == 400 {
				core.Decide(ctx, core.Release) // By default a 400 is stored, and replayed.
			}
			return &core.Response{Status: status}, nil
		})
		fmt.Println(result.Response.Status, result.Replayed)
	}
	// Output:
	// 400 false
	// 201 false
}

// A step that has ended is not repeated when the handler runs again.
func ExampleStep() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		fmt.Println(err)
		return
	}
	mailIsDown := true
	for range 2 {
		result, _ := engine.Do(context.Background(), order("order-7"), func(ctx context.Context) (*core.Response, error) {
			charge, err := core.Step(ctx, "charge", func(context.Context) (string, error) {
				fmt.Println("charging")
				return "charge 1", nil
			})
			if err != nil || mailIsDown {
				mailIsDown = false
				return &core.Response{Status: 503}, err
			}
			return &core.Response{Status: 201, Body: []byte(charge)}, nil
		})
		fmt.Printf("%d %q\n", result.Response.Status, result.Response.Body)
	}
	// Output:
	// charging
	// 503 ""
	// 201 "charge 1"
}
