package idem_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing" // It stands for the generated code of your service.
	"google.golang.org/grpc/metadata"

	idem "github.com/go-idem/idem/adapters/grpc"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// payments counts the payments that it makes.
type payments struct {
	pb.UnimplementedTestServiceServer
	made int
}

func (p *payments) UnaryCall(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	p.made++
	return &pb.SimpleResponse{Username: fmt.Sprint("payment ", p.made)}, nil
}

func Example() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(idem.UnaryServerInterceptor(engine)),
		grpc.ChainStreamInterceptor(idem.StreamServerInterceptor(engine)),
	)
	pb.RegisterTestServiceServer(server, &payments{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor((&idem.Client{}).UnaryInterceptor())) // It retries, and adds a key to calls without one.
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	for _, key := range []string{"order-7", "order-7", "order-8"} {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "idempotency-key", key)
		var header metadata.MD
		paid, err := pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{}, grpc.Header(&header))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(key, paid.GetUsername(), header["idempotent-replayed"])
	}
	// Output:
	// order-7 payment 1 []
	// order-7 payment 1 [true]
	// order-8 payment 2 []
}
