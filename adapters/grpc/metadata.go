package idem

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/go-idem/idem/core"
)

// binarySuffix ends the names of metadata whose values may have any bytes. On the wire they are in base64.
const binarySuffix = "-bin"

// fieldsOf returns metadata as fields, sorted by name, so that equal metadata is stored in equal bytes.
func fieldsOf(md metadata.MD) (fields []core.Field) {
	for _, name := range slices.Sorted(maps.Keys(md)) {
		for _, value := range md[name] {
			if strings.HasSuffix(name, binarySuffix) {
				value = base64.RawStdEncoding.EncodeToString([]byte(value))
			}
			fields = append(fields, core.Field{Name: name, Value: value})
		}
	}
	return fields
}

// mdOf reverses fieldsOf. It leaves out binary values that are not in base64.
func mdOf(fields []core.Field) metadata.MD {
	md := metadata.MD{}
	for _, f := range fields {
		name, value := strings.ToLower(f.Name), f.Value
		if strings.HasSuffix(name, binarySuffix) {
			decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
			if err != nil {
				continue
			}
			value = string(decoded)
		}
		md.Append(name, value)
	}
	return md
}
