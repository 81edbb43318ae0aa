package core_test

import (
	"context"
	"fmt"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// A client that did not get its answer sends its request again. The order is placed once.
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

// A configuration that can not work is refused as a whole, before the first request.
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
