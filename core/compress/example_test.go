package compress_test

import (
	"bytes"
	"fmt"
	"os"

	"github.com/go-idem/idem/core/compress"
)

func ExampleZstd() {
	codec, err := compress.Zstd(compress.Threshold(512))
	if err != nil {
		fmt.Println(err)
		return
	}
	var record [32]byte
	outcome := bytes.Repeat([]byte("1 and so on. "), 100)
	kept := codec.Encode(record, outcome)
	again, err := codec.Decode(record, kept)
	fmt.Println(len(kept) < 50, bytes.Equal(outcome, again), err)

	short := []byte("1 short")
	fmt.Printf("%s\n", codec.Encode(record, short))
	// Output:
	// true true <nil>
	// 1 short
}

// A new dictionary goes in front. The old one stays until the retention of what it encoded is over.
func ExampleDictionary() {
	may, err := os.ReadFile("testdata/orders.dict") // zstd --train answers/* --maxdict=4096 --dictID=9
	if err != nil {
		fmt.Println(err)
		return
	}
	june := []byte(`{"order":"ord_1","status":"accepted","currency":"EUR"}{"order":"ord_2","status":"paid","currency":"EUR"}`)
	codec, err := compress.Zstd(compress.Dictionary(10, june), compress.Dictionary(9, may), compress.Threshold(64))
	if err != nil {
		fmt.Println(err)
		return
	}
	outcome := []byte(`1 {"order":"ord_3","status":"accepted","currency":"EUR"} {"order":"ord_4","status":"paid","currency":"EUR"}`)
	kept := codec.Encode([32]byte{}, outcome)
	again, err := codec.Decode([32]byte{}, kept)
	fmt.Println(len(kept) < len(outcome)/2, bytes.Equal(outcome, again), err)
	// Output: true true <nil>
}
