package blobs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"time"

	"github.com/go-idem/idem/core/blobs"
)

func ExampleDir() {
	dir, err := os.MkdirTemp("", "blobs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := blobs.Dir(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	err = store.Put(ctx, "report-7", []byte("a long answer"), time.Hour)
	data, getErr := store.Get(ctx, "report-7")
	fmt.Printf("%s %v %v\n", data, err, getErr)

	_, err = store.Get(ctx, "report-8")
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output:
	// a long answer <nil> <nil>
	// true
}

// Expired files go when somebody sweeps. One process is enough.
func ExampleDirStore_Sweep() {
	store, err := blobs.Dir("/var/lib/service/outcomes")
	if err != nil {
		log.Fatal(err)
	}
	for range time.Tick(time.Hour) {
		if _, err := store.Sweep(context.Background()); err != nil {
			log.Print(err)
		}
	}
}
