package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"sync/atomic"

	"connectrpc.com/connect"
	pb "google.golang.org/grpc/interop/grpc_testing" // stands for the generated code of your service

	idem "github.com/go-idem/idem/adapters/connect"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

func main() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	var made atomic.Int64
	pay := func(context.Context, *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error) {
		return connect.NewResponse(&pb.SimpleResponse{Username: fmt.Sprint("payment ", made.Add(1))}), nil
	}
	const method = "/grpc.testing.TestService/UnaryCall"
	mux := http.NewServeMux()
	mux.Handle(method, connect.NewUnaryHandler(method, pay, connect.WithInterceptors(idem.Interceptor(engine))))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", mux))
}
