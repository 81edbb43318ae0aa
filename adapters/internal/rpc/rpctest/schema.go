// Package rpctest has the table of what a client of a guarded service sees. Every adapter of package rpc passes it.
package rpctest

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// The methods of the service. Requests and responses are google.protobuf.Struct, which has maps.
const (
	Service = "idem.test.Payments"
	Pay     = "/" + Service + "/Pay"
	Refund  = "/" + Service + "/Refund"
	Look    = "/" + Service + "/Look"  // its idempotency_level is NO_SIDE_EFFECTS
	Watch   = "/" + Service + "/Watch" // a stream of responses
)

// init registers the service, as generated code does.
func init() {
	method := func(name string, options *descriptorpb.MethodOptions, streams bool) *descriptorpb.MethodDescriptorProto {
		message := proto.String(".google.protobuf.Struct")
		return &descriptorpb.MethodDescriptorProto{
			Name: &name, InputType: message, OutputType: message, Options: options, ServerStreaming: &streams,
		}
	}
	isReadOnly := &descriptorpb.MethodOptions{IdempotencyLevel: descriptorpb.MethodOptions_NO_SIDE_EFFECTS.Enum()}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("idem/test/payments.proto"), Package: proto.String("idem.test"), Syntax: proto.String("proto3"),
		Dependency: []string{structpb.File_google_protobuf_struct_proto.Path()},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Payments"), Method: []*descriptorpb.MethodDescriptorProto{
			method("Pay", nil, false), method("Refund", nil, false), method("Look", isReadOnly, false), method("Watch", nil, true),
		}}},
	}, protoregistry.GlobalFiles)
	if err == nil {
		err = protoregistry.GlobalFiles.RegisterFile(file)
	}
	if err != nil {
		panic(err)
	}
}
