package seal_test

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/seal"
)

func Example() {
	secret := make([]byte, 32) // in a service: from its secrets
	rand.Read(secret)
	codec, err := seal.New([]seal.Key{{ID: "2026-11", Secret: secret}})
	if err != nil {
		fmt.Println(err)
		return
	}
	mine, theirs := [32]byte{1}, [32]byte{2}
	kept := codec.Encode(mine, []byte("1 outcome"))
	outcome, err := codec.Decode(mine, kept)
	fmt.Printf("%s %v\n", outcome, err)

	_, err = codec.Decode(theirs, kept)
	fmt.Println(errors.Is(err, driver.ErrUnreadable))
	// Output:
	// 1 outcome <nil>
	// true
}

func ExampleNew_rotation() {
	older, newer := seal.Key{ID: "older", Secret: secret("older")}, seal.Key{ID: "newer", Secret: secret("newer")}
	for _, keys := range [][]seal.Key{{older}, {older, newer}, {newer, older}, {newer}} { // one roll-out each
		codec, err := seal.New(keys)
		if err != nil {
			fmt.Println(err)
			return
		}
		kept := codec.Encode([32]byte{}, []byte("1 outcome"))
		fmt.Printf("sealed with %s\n", kept[2:7])
	}
	// Output:
	// sealed with older
	// sealed with older
	// sealed with newer
	// sealed with newer
}
