package rpc

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Schema returns the descriptor of a procedure, such as "/acme.Payments/Pay", or nil if the registry of the program lacks it. The
// registry has what generated code has registered. Without a descriptor a replay could not be decoded.
func Schema(procedure string) protoreflect.MethodDescriptor {
	name := strings.ReplaceAll(strings.TrimPrefix(procedure, "/"), "/", ".")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil
	}
	method, _ := found.(protoreflect.MethodDescriptor)
	return method
}

// isReadOnly reports whether the option idempotency_level of a method is NO_SIDE_EFFECTS.
func isReadOnly(method protoreflect.MethodDescriptor) bool {
	if method == nil {
		return false
	}
	options, ok := method.Options().(*descriptorpb.MethodOptions)
	return ok && options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// newResponse returns an empty response message of a method: of the generated type, if the program has one. A dynamic message has
// the same fields and the same encoding, so it can be sent in place of a generated one.
func newResponse(method protoreflect.MethodDescriptor) proto.Message {
	output := method.Output()
	if generated, err := protoregistry.GlobalTypes.FindMessageByName(output.FullName()); err == nil {
		return generated.New().Interface()
	}
	return dynamicpb.NewMessage(output)
}
