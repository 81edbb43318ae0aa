package idem_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	idem "github.com/go-idem/idem/adapters/connect"
	"github.com/go-idem/idem/adapters/internal/rpc/rpctest"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

func Example() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	made := 0
	pay := func(context.Context, *connect.Request[structpb.Struct]) (*connect.Response[structpb.Struct], error) {
		made++
		paid, err := structpb.NewStruct(map[string]any{"payment": made})
		return connect.NewResponse(paid), err
	}
	// Generated code makes the handler and the client.
	server := httptest.NewServer(connect.NewUnaryHandler(rpctest.Pay, pay, connect.WithInterceptors(idem.Interceptor(engine))))
	defer server.Close()
	client := connect.NewClient[structpb.Struct, structpb.Struct](server.Client(), server.URL+rpctest.Pay,
		connect.WithInterceptors((&idem.Client{}).Interceptor())) // It retries, and adds a key to calls without one.

	for _, key := range []string{"order-7", "order-7", "order-8"} {
		req := connect.NewRequest(&structpb.Struct{})
		req.Header().Set("Idempotency-Key", key)
		paid, err := client.CallUnary(context.Background(), req)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(key, paid.Msg.GetFields()["payment"].GetNumberValue(), paid.Header()["Idempotent-Replayed"])
	}
	// Output:
	// order-7 1 []
	// order-7 1 [true]
	// order-8 2 []
}
