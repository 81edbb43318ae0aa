package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing" // stands for the generated code of your service
	"google.golang.org/grpc/metadata"

	idem "github.com/go-idem/idem/adapters/grpc"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

type payments struct {
	pb.UnimplementedTestServiceServer
	made atomic.Int64
}

func (p *payments) UnaryCall(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Username: fmt.Sprint("payment ", p.made.Add(1))}, nil
}

func main() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(idem.UnaryServerInterceptor(engine)),
		grpc.ChainStreamInterceptor(idem.StreamServerInterceptor(engine)),
	)
	pb.RegisterTestServiceServer(server, &payments{})
	listener, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(server.Serve(listener)) }()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		ctx, header := metadata.AppendToOutgoingContext(context.Background(), "idempotency-key", "order-7"), metadata.MD{}
		paid, err := pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{}, grpc.Header(&header))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(paid.GetUsername(), "replayed:", header["idempotent-replayed"])
	}
}
